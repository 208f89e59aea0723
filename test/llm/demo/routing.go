package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/headgate-rls/headgate/test/llmtest"
	"github.com/headgate-rls/headgate/test/testenv"
)

// providers are those of examples/llm/routing.yaml, and how many clients would take each.
var providers = []struct {
	name    string
	clients int
}{{"azure", 350}, {"openai", 50}}

// asClientsChoose are rules with the same budgets, for the provider that a client has chosen.
const asClientsChoose = `domain: llm
descriptors:
- key: x-user
  reserve: {amount: estimate, default: 16384, max: 100000}
  limits: [{name: tpm, algorithm: token_bucket, rate: 1000000/min}]
`

// showRouting has clients of two providers at once: most of them would take the same.
func showRouting(ctx context.Context, tb *testenv.Servers, s llmtest.Setup, out io.Writer) error {
	rules, err := os.ReadFile(filepath.Join(s.Root, "examples", "llm", "routing.yaml"))
	if err != nil {
		return err
	}
	chosen := s
	chosen.Rules = string(rules)
	for _, p := range providers {
		chosen.Providers = append(chosen.Providers, p.name)
	}
	s.Rules = asClientsChoose
	fmt.Fprintf(out, "\ntwo providers, 1,000,000 tokens a minute each; %d clients would take %s, %d %s, "+
		"each for 10,000 tokens:\n\n", providers[0].clients, providers[0].name, providers[1].clients, providers[1].name)
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintf(table, "\tpass\trefused\t%s spent\t%s spent\t\n", providers[0].name, providers[1].name)
	for _, w := range []struct {
		title string
		setup llmtest.Setup
	}{{"clients choose", s}, {"headgate chooses", chosen}} {
		l := llmtest.StartLab(tb, w.setup)
		o := burst(ctx, l)
		if o.Failed > 0 {
			return fmt.Errorf("%d calls failed: %s", o.Failed, o.Why)
		}
		fmt.Fprintf(table, "%s\t%d\t%d\t%s\t%s\t\n", w.title, o.Passed, o.Refused, thousands(spentBy(l, providers[0].name)),
			thousands(spentBy(l, providers[1].name)))
	}
	return table.Flush()
}

// burst sends the calls of all clients at once.
func burst(ctx context.Context, l *llmtest.Lab) (sum llmtest.Outcome) {
	outcomes := make([]llmtest.Outcome, len(providers))
	var all sync.WaitGroup
	for i, p := range providers {
		all.Go(func() {
			outcomes[i] = l.Burst(ctx, p.clients, llmtest.Call{User: p.name, Stream: true, MaxTokens: 10_000,
				Plan: llmtest.Plan{Output: 10_000, Takes: time.Second}})
		})
	}
	all.Wait()
	for _, o := range outcomes {
		sum.Passed, sum.Refused, sum.Failed = sum.Passed+o.Passed, sum.Refused+o.Refused, sum.Failed+o.Failed
		if o.Why != "" {
			sum.Why = o.Why
		}
	}
	return sum
}

// spentBy is what a provider has spent: the one that clients name, or the one that served them.
func spentBy(l *llmtest.Lab, provider string) (tokens int64) {
	if l.Model != nil {
		tokens, _ = l.Model.Spent(provider, time.Time{})
		return tokens
	}
	for _, p := range providers {
		n, _ := l.Providers[provider].Spent(p.name, time.Time{})
		tokens += n
	}
	return tokens
}
