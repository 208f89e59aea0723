package main

import (
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

const envoyVersion = "envoy-1.40.0"

//go:embed envoy.yaml
var envoyBootstrap string

func envoyBinary() (string, error) {
	dir := os.Getenv("HEADGATE_TESTENV_DIR")
	if dir == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", err
		}
		dir = filepath.Join(home, ".cache", "headgate-testenv")
	}
	path := filepath.Join(dir, envoyVersion, "envoy")
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("no Envoy: %w; `make setup` installs it", err)
	}
	return path, nil
}

func (b *bench) envoyTable(ctx context.Context) error {
	binary, err := envoyBinary()
	if err != nil {
		fmt.Println("\ntable envoy is not run:", err)
		return nil
	}
	fmt.Printf("\n%s with one worker before a small HTTP server; %d HTTP/1.1 connections; CPU µs per request\n\n",
		envoyVersion, inFlight)
	fmt.Printf("%-34s %10s %9s %9s %9s %8s %8s %8s\n", "service", "requests/s", "Envoy", "service", "Redis", "p50 ms",
		"p99 ms", "p99.9 ms")
	for _, name := range []string{"", cases[0].name, "memory, grpc-go", "memory fixed_window", "redis fixed_window"} {
		var c benchCase
		if name != "" {
			if c, err = findCase(name); err != nil {
				return err
			}
		}
		if c.redis && b.redis == nil {
			continue
		}
		r, err := b.measureEnvoy(ctx, binary, c)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		fmt.Printf("%-34s %10.0f %9.1f %9.1f %9.1f %8.2f %8.2f %8.2f\n", cmp.Or(name, "none"), r.rate, r.cpu(0),
			r.cpu(1), r.cpu(2),
			r.at(0.5), r.at(0.99), r.at(0.999))
	}
	return nil
}

// measureEnvoy measures a case behind Envoy, or Envoy alone if c is empty. Envoy's
// CPU time comes first.
func (b *bench) measureEnvoy(ctx context.Context, binary string, c benchCase) (result, error) {
	addr := "127.0.0.1:1" // of a service that is not there
	var pids []int
	if c.name != "" {
		t, err := b.start(ctx, c)
		if err != nil {
			return result{}, err
		}
		defer t.close()
		addr, pids = t.srv.addr, t.pids
	}
	e, err := startEnvoy(ctx, binary, addr, c.name != "")
	if err != nil {
		return result{}, err
	}
	defer e.stop()
	pids = append([]int{e.pid}, pids...)
	if _, err := e.run(ctx, after(b.warmUp)); err != nil {
		return result{}, err
	}
	return measureCPU(pids, func() ([]time.Duration, error) { return e.run(ctx, after(b.length)) })
}

// An envoy is an Envoy and a client for it.
type envoy struct {
	url    string
	pid    int
	client *http.Client
	next   atomic.Int64
	stop   func()
}

func startEnvoy(ctx context.Context, binary, service string, limited bool) (*envoy, error) {
	addr, port, err := freeAddr()
	if err != nil {
		return nil, err
	}
	_, servicePort, err := net.SplitHostPort(service)
	if err != nil {
		return nil, err
	}
	application := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	_, applicationPort, _ := net.SplitHostPort(application.Listener.Addr().String())
	bootstrap := strings.NewReplacer("LISTENER_PORT", port, "SERVICE_PORT", servicePort, "APPLICATION_PORT",
		applicationPort,
		"NOT_LIMITED", strconv.FormatBool(!limited)).Replace(envoyBootstrap)
	cmd := exec.CommandContext(ctx, binary, "--config-yaml", bootstrap, "--concurrency", "1", "--disable-hot-restart",
		"--log-level", "error")
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		application.Close()
		return nil, err
	}
	e := &envoy{url: "http://" + addr, pid: cmd.Process.Pid,
		client: &http.Client{Timeout: deadline, Transport: &http.Transport{MaxIdleConnsPerHost: inFlight,
			MaxConnsPerHost: inFlight}}}
	e.stop = func() {
		e.client.CloseIdleConnections()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		application.Close()
	}
	if err := waitFor(ctx, func() error { return e.get(ctx) }); err != nil {
		e.stop()
		return nil, fmt.Errorf("no answer through Envoy: %w", err)
	}
	return e, nil
}

// run makes requests on all connections as long as more says so and returns
// how long each took.
func (e *envoy) run(ctx context.Context, more func() bool) ([]time.Duration, error) {
	return loop(inFlight, more, func(int, time.Time) error { return e.get(ctx) })
}

func (e *envoy) get(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, e.url, nil)
	if err != nil {
		return err
	}
	req.Header.Set("x-client", clientName(int(e.next.Add(1)%keys)))
	resp, err := e.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("answer through Envoy: %s", resp.Status)
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}
