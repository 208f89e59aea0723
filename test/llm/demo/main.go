// Command demo is `make demo-llm`: 200 clients call a language model at once, behind a stock Envoy, against a budget of
// tokens; first as gateways do it today, then with reservations. Then 400 clients call two providers, which the clients
// choose, and which headgate chooses. It prints what was spent, as the model counts it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/headgate-rls/headgate/test/llmtest"
	"github.com/headgate-rls/headgate/test/testenv"
)

// limit bounds the whole run.
const limit = time.Minute

func main() {
	root := flag.String("root", ".", "the `directory` of the repository")
	version := flag.String("envoy", "1.40.0", "the `version` of Envoy")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *root, *version, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "demo-llm: error:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, root, version string, out io.Writer) error {
	skipped, err := testenv.WithServers("demo-llm", func(tb *testenv.Servers) error {
		fmt.Fprintln(out, "demo-llm: building headgate (the first time takes a minute or two)")
		program, err := testenv.BuildHeadgate(root, tb.TempDir())
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not done within %v", limit))
		defer cancel()
		return show(ctx, tb, llmtest.Setup{Root: root, Program: program, Envoy: version}, out)
	})
	if skipped != "" {
		return errors.New(skipped)
	}
	return err
}

// clients is how many there are.
const clients = 200

// A scene is what clients do, and for how long they try again when they are refused.
type scene struct {
	title string
	call  llmtest.Call
	again time.Duration
}

func scenes() []scene {
	call := func(most, output int64) llmtest.Call {
		return llmtest.Call{Stream: true, MaxTokens: most, Plan: llmtest.Plan{Output: output, Takes: time.Second}}
	}
	return []scene{
		{"each uses the 100,000 tokens that it asks for", call(100_000, 100_000), 0},
		{"each asks for 20,000 and uses 5,000; who is refused tries again, for ten seconds", call(20_000, 5_000),
			10 * time.Second},
	}
}

// A wire is a way to limit.
type wire struct {
	title string
	setup func(llmtest.Setup, string) llmtest.Setup
}

var wires = []wire{
	{"ask, then report", func(s llmtest.Setup, rules string) llmtest.Setup {
		s.Gateway, s.Rules = true, asGateway(rules)
		return s
	}},
	{"with reservations", func(s llmtest.Setup, rules string) llmtest.Setup {
		s.Rules = rules
		return s
	}},
}

var reservation = regexp.MustCompile(`(?m)^    reserve:\n(      .*\n)+`)

// asGateway returns the example's rules without reservations, for the descriptors that a gateway sends.
func asGateway(rules string) string {
	_, rule, _ := strings.Cut(reservation.ReplaceAllString(rules, "    overflow: debt\n"), "- key: x-user\n")
	return fmt.Sprintf("domain: %s\ndescriptors:\n- key: '%[2]s'\n  value: '%[2]s'\n  descriptors:\n  - key: %s\n%s",
		llmtest.GatewayDomain, llmtest.GatewayRoute, llmtest.GatewayUser, rule)
}

func show(ctx context.Context, tb *testenv.Servers, s llmtest.Setup, out io.Writer) error {
	rules, err := os.ReadFile(filepath.Join(s.Root, "examples", "llm", "rules.yaml"))
	if err != nil {
		return err
	}
	var labs []*llmtest.Lab
	for _, w := range wires {
		labs = append(labs, llmtest.StartLab(tb, w.setup(s, string(rules))))
	}
	fmt.Fprintf(out, "demo-llm: Envoy %s, %d clients of one user at once, a budget of 1,000,000 tokens a minute\n",
		s.Envoy, clients)
	for i, scene := range scenes() {
		fmt.Fprintf(out, "\n%s:\n\n", scene.title)
		table := tabwriter.NewWriter(out, 0, 0, 3, ' ', tabwriter.AlignRight)
		fmt.Fprintln(table, "\tpass\trefused\ttokens spent\t")
		scene.call.User = fmt.Sprint("user-", i)
		for j, w := range wires {
			o := labs[j].Retry(ctx, clients, scene.call, scene.again)
			if o.Failed > 0 {
				return fmt.Errorf("%d calls failed: %s", o.Failed, o.Why)
			}
			spent, _ := labs[j].Model.Spent(scene.call.User, time.Time{})
			fmt.Fprintf(table, "%s\t%d\t%d\t%s\t\n", w.title, o.Passed, o.Refused, thousands(spent))
		}
		if err := table.Flush(); err != nil {
			return err
		}
	}
	if err := showRouting(ctx, tb, s, out); err != nil {
		return err
	}
	fmt.Fprintln(out, "\nThe rules are in examples/llm; docs/tokens.md and docs/routing.md explain them. "+
		"All is stopped again.")
	return nil
}
