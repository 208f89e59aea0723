// Command demo is `make demo`: it starts a small application, headgate and Envoy from the files in examples/envoy on
// free ports, sends requests and prints what became of them. Everything is stopped again when it ends.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/headgate-rls/headgate/test/testenv"
)

// limit bounds the whole run.
const limit = time.Minute

func main() {
	root := flag.String("root", ".", "the `directory` of the repository")
	program := flag.String("headgate", "", "the headgate `program` (default: build it)")
	version := flag.String("envoy", "1.40.0", "the `version` of Envoy")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Stdout, *root, *program, *version); err != nil {
		fmt.Fprintln(os.Stderr, "demo: error:", err)
		stop()
		os.Exit(1)
	}
}

// run starts everything, shows it, and stops it whatever happens.
func run(ctx context.Context, out io.Writer, root, program, version string) error {
	root, err := filepath.Abs(root) // programs run in directories of their own
	if err != nil {
		return err
	}
	skipped, err := testenv.WithServers("demo", func(tb *testenv.Servers) (err error) {
		if program == "" {
			fmt.Fprintln(out, "demo: building headgate (the first time takes a minute or two)")
			if program, err = testenv.BuildHeadgate(root, tb.TempDir()); err != nil {
				return err
			}
		}
		ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not done within %v", limit))
		defer cancel()
		const rules, bootstrap = "examples/envoy/rules.yaml", "examples/envoy/envoy.yaml"
		app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") }))
		tb.Cleanup(app.Close)
		service := testenv.StartHeadgate(tb, program, "--rules", filepath.Join(root, rules), "--rule-header",
			"x-headgate-rule")
		config, err := withAddresses(filepath.Join(root, bootstrap), service.GRPC, app.Listener.Addr().String())
		if err != nil {
			return err
		}
		proxy := testenv.StartEnvoy(tb, version, config)
		fmt.Fprintf(out, "Envoy runs with %s and asks headgate, which answers by %s.\n\n", bootstrap, rules)
		if err := show(ctx, out, "http://"+proxy.ListenerAddr("ingress")); err != nil {
			return fmt.Errorf("%w\nthe log of headgate:\n%s\nthe log of Envoy:\n%s", err, service.Log(), proxy.Log())
		}
		fmt.Fprintln(out, "\nAll is stopped again. To run it yourself, see examples/envoy/README.md.")
		return nil
	})
	if skipped != "" {
		return errors.New(skipped)
	}
	return err
}

// withAddresses returns the example's file for other addresses, each of which it must have exactly once.
func withAddresses(file, headgate, app string) (string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	text := string(data)
	for old, fresh := range map[string]string{
		"{socket_address: {address: 127.0.0.1, port_value: 8081}}": testenv.EnvoyAddress(headgate),
		"{socket_address: {address: 127.0.0.1, port_value: 9000}}": testenv.EnvoyAddress(app),
		"{socket_address: {address: 127.0.0.1, port_value: 9901}}": testenv.EnvoyAddress("127.0.0.1:0"),
		"{socket_address: {address: 0.0.0.0, port_value: 10000}}":  testenv.EnvoyAddress("127.0.0.1:0"),
	} {
		if n := strings.Count(text, old); n != 1 {
			return "", fmt.Errorf("%s has %q %d times instead of once", file, old, n)
		}
		text = strings.Replace(text, old, fresh, 1)
	}
	return text, nil
}
