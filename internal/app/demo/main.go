// Command demo shows headgate at work: it starts a small application, headgate
// and Envoy from the files in examples/envoy on free ports, sends requests and
// prints what became of them. Everything is stopped again when it ends.
//
// scripts/demo.sh builds what it needs and runs it in the repository.
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
	"syscall"
	"time"
)

// limit bounds the whole run.
const limit = time.Minute

func main() {
	headgate := flag.String("headgate", "bin/headgate", "the headgate `program`")
	envoy := flag.String("envoy", "envoy", "the Envoy `program`")
	examples := flag.String("examples", "examples/envoy", "the `directory` with envoy.yaml and rules.yaml")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not done within %v", limit))
	defer cancel()
	if err := run(ctx, os.Stdout, *headgate, *envoy, *examples); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = fmt.Errorf("%w (%w)", err, cause)
		}
		fmt.Fprintln(os.Stderr, "demo: error:", err)
		os.Exit(1)
	}
}

// run starts everything, shows it, and stops it whatever happens.
func run(ctx context.Context, out io.Writer, headgate, envoy, examples string) (err error) {
	dir, err := os.MkdirTemp("", "headgate-demo-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	app, err := startApplication()
	if err != nil {
		return err
	}
	defer app.Close()

	rules := filepath.Join(examples, "rules.yaml")
	service, err := start(ctx, dir, "headgate", headgate, "serve", "--rules", rules, "--rule-header", "x-headgate-rule",
		"--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0", "--debug", "127.0.0.1:0", "--services", "127.0.0.1:0",
		"--drain-delay", "0s")
	if err != nil {
		return err
	}
	defer service.stop()
	grpcAddr, err := service.serving(ctx)
	if err != nil {
		return err
	}

	proxy, url, err := startEnvoy(ctx, dir, envoy, filepath.Join(examples, "envoy.yaml"), grpcAddr, app.addr)
	if err != nil {
		return err
	}
	defer proxy.stop()

	fmt.Fprintf(out, "Envoy runs with %s and asks headgate, which answers by %s.\n\n",
		filepath.Join(examples, "envoy.yaml"), rules)
	if err := show(ctx, out, url); err != nil {
		return errors.Join(err, service.failure("is asked"), proxy.failure("is asked"))
	}
	fmt.Fprintln(out, "\nAll is stopped again. To run it yourself, see examples/envoy/README.md.")
	return nil
}
