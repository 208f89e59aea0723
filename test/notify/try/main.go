// Command try is `make notify`: it starts the notification gateway and everything that it
// needs from the test environment, says what to try, and ends with Ctrl-C.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/headgate-rls/headgate/test/testenv"
)

func main() {
	http := flag.String("http", "127.0.0.1:8080", "the `address` of the gateway")
	root := flag.String("root", ".", "the `directory` of the repository")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *root, *http, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "notify:", err)
		stop()
		os.Exit(1)
	}
}

// run starts everything, and ends it when ctx ends.
func run(ctx context.Context, root, http string, out io.Writer) error {
	skipped, err := testenv.WithServers("notify",
		func(tb *testenv.Servers) error { return start(ctx, tb, root, http, out) })
	if skipped != "" {
		return errors.New(skipped)
	}
	return err
}

func start(ctx context.Context, tb *testenv.Servers, root, http string, out io.Writer) error {
	dir := tb.TempDir()
	fmt.Fprintln(out, "building notify-gateway and notify-sender")
	gateway, err := testenv.Build(root, dir, "./cmd/notify-gateway")
	if err != nil {
		return err
	}
	sender, err := testenv.Build(root, dir, "./cmd/notify-sender")
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "starting PostgreSQL, Kafka and Redis")
	database := testenv.StartDatabase(tb, testenv.Postgres)
	redis := testenv.StartRedis(tb)
	kafka := testenv.StartKafka(tb)
	g := testenv.StartProgram(tb, gateway, nil, "--http", http, "--debug", "", "--database", database.URL(), "--kafka",
		kafka.Addr, "--redis", redis.URL(), "--delivery", "outbox")
	s := testenv.StartProgram(tb, sender, nil, "--http", "", "--kafka", kafka.Addr)
	testenv.Eventually(tb, time.Minute, "start the programs", func() string {
		for _, p := range []*testenv.Program{g, s} {
			if p.Exited() {
				tb.Fatalf("a program has ended:\n%s", p.Log())
			}
			if !strings.Contains(p.Log(), "msg=serving") {
				return "not both serve"
			}
		}
		return ""
	})
	fmt.Fprintf(out, `
The gateway is at http://%[1]s. Try, in another terminal:

  curl -sS -H 'Content-Type: application/json' \
    -d '{"userId":"alice","rateLimit":3,"timeWindow":1}' http://%[1]s/api/config
  curl -sS -H 'Content-Type: application/json' -d '{"userId":"alice","message":"hello"}' http://%[1]s/api/send

The fourth message within a minute is refused. What the sender sends is shown here. Ctrl-C ends everything.

`, http)
	return show(ctx, out, g, s)
}

// show prints what the sender logs, until ctx ends.
func show(ctx context.Context, out io.Writer, gateway, sender *testenv.Program) error {
	shown := 0
	for {
		log := sender.Log()
		for line := range strings.Lines(log[shown:]) {
			if strings.Contains(line, "SMS SENT") {
				fmt.Fprint(out, line)
			}
		}
		shown = len(log)
		if gateway.Exited() || sender.Exited() {
			return errors.New("a program has ended by itself")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(200 * time.Millisecond):
		}
	}
}
