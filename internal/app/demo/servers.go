package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"
)

// startLimit is how long a server may take to start.
const startLimit = 20 * time.Second

// A server is a program that was started. Its output is in a file.
type server struct {
	name, log string
	cancel    context.CancelFunc
	done      chan struct{}
	err       error // how it ended, once done is closed
}

// start runs a program that ends with ctx, if not before.
func start(ctx context.Context, dir, name, program string, args ...string) (*server, error) {
	s := &server{name: name, log: filepath.Join(dir, name+".log"), done: make(chan struct{})}
	log, err := os.Create(s.log)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	ctx, s.cancel = context.WithCancel(ctx)
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stdout, cmd.Stderr = log, log
	for _, e := range os.Environ() { // settings of another headgate are not for this one
		if !strings.HasPrefix(e, "HEADGATE_") {
			cmd.Env = append(cmd.Env, e)
		}
	}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second // then it is killed
	if err := cmd.Start(); err != nil {
		s.cancel()
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		s.err = cmd.Wait()
		close(s.done)
	}()
	return s, nil
}

// stop ends the program and waits until it is gone.
func (s *server) stop() {
	s.cancel()
	<-s.done
}

// until polls check, for which an empty answer means success.
func (s *server) until(ctx context.Context, what string, check func() (missing string)) error {
	deadline := time.Now().Add(startLimit)
	for {
		missing := check()
		if missing == "" {
			return nil
		}
		select {
		case <-s.done:
			return fmt.Errorf("%s ended by itself (%w): %w", s.name, s.err, s.failure(what))
		case <-ctx.Done():
			return fmt.Errorf("interrupted while %s %s", s.name, what)
		case <-time.After(20 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s: %w", missing, s.failure(what))
		}
	}
}

// failure is an error with the end of the log.
func (s *server) failure(what string) error {
	data, err := os.ReadFile(s.log)
	if err != nil {
		return err
	}
	lines := strings.Split(strings.TrimRight(string(data), "\n"), "\n")
	lines = lines[max(0, len(lines)-20):]
	return fmt.Errorf("while %s %s, its log ends with:\n  %s", s.name, what, strings.Join(lines, "\n  "))
}

var servingLine = regexp.MustCompile(`msg=serving grpc=(\S+)`)

// serving waits for headgate and returns the address of its gRPC service.
func (s *server) serving(ctx context.Context) (addr string, err error) {
	err = s.until(ctx, "starts", func() string {
		data, err := os.ReadFile(s.log)
		if err != nil {
			return err.Error()
		}
		m := servingLine.FindSubmatch(data)
		if m == nil {
			return "headgate does not say that it is serving"
		}
		addr = string(m[1])
		return ""
	})
	return addr, err
}

// startEnvoy runs Envoy with the example's file, in which only addresses are
// changed, and returns the URL under which it takes requests.
func startEnvoy(ctx context.Context, dir, program, example, headgate, app string) (*server, string, error) {
	config, err := withAddresses(example, map[string]string{
		"{address: 127.0.0.1, port_value: 8081}": socketAddress(headgate),
		"{address: 127.0.0.1, port_value: 9000}": socketAddress(app),
		"{address: 127.0.0.1, port_value: 9901}": "{address: 127.0.0.1, port_value: 0}",
		"{address: 0.0.0.0, port_value: 10000}":  "{address: 127.0.0.1, port_value: 0}",
	})
	if err != nil {
		return nil, "", err
	}
	file, admin := filepath.Join(dir, "envoy.yaml"), filepath.Join(dir, "admin")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return nil, "", err
	}
	s, err := start(ctx, dir, "envoy", program, "--config-path", file, "--admin-address-path", admin,
		"--concurrency", "1", "--disable-hot-restart", "--log-level", "warning")
	if err != nil {
		return nil, "", err
	}
	url := ""
	err = s.until(ctx, "starts", func() (missing string) {
		url, missing = ingress(admin)
		return missing
	})
	if err != nil {
		s.stop()
		return nil, "", err
	}
	return s, url, nil
}

// withAddresses returns a file with each key of replace replaced, which must be
// there exactly once.
func withAddresses(file string, replace map[string]string) (string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	text := string(data)
	for old, fresh := range replace {
		if n := strings.Count(text, old); n != 1 {
			return "", fmt.Errorf("%s has %q %d times instead of once", file, old, n)
		}
		text = strings.Replace(text, old, fresh, 1)
	}
	return text, nil
}

func socketAddress(addr string) string {
	host, port, _ := net.SplitHostPort(addr)
	return fmt.Sprintf("{address: %s, port_value: %s}", host, port)
}

// ingress asks Envoy where it listens, once it is ready.
func ingress(adminFile string) (url, missing string) {
	admin, err := os.ReadFile(adminFile)
	if err != nil || len(admin) == 0 {
		return "", "Envoy's admin listener is not up"
	}
	base := "http://" + strings.TrimSpace(string(admin))
	if ready, err := get(base + "/ready"); err != nil || strings.TrimSpace(ready) != "LIVE" {
		return "", fmt.Sprintf("Envoy is not ready: %s %v", ready, err)
	}
	body, err := get(base + "/listeners?format=json")
	if err != nil {
		return "", err.Error()
	}
	var list struct {
		Statuses []struct {
			Address struct {
				Socket struct {
					Address string `json:"address"`
					Port    int    `json:"port_value"`
				} `json:"socket_address"`
			} `json:"local_address"`
		} `json:"listener_statuses"`
	}
	if err := json.Unmarshal([]byte(body), &list); err != nil || len(list.Statuses) != 1 {
		return "", fmt.Sprintf("Envoy's listeners are %s", body)
	}
	at := list.Statuses[0].Address.Socket
	return fmt.Sprintf("http://%s:%d", at.Address, at.Port), ""
}

func get(url string) (string, error) {
	client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get(url)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return string(body), err
}

// An application is what Envoy protects.
type application struct {
	http.Server
	addr string
}

func startApplication() (*application, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start the application: %w", err)
	}
	app := &application{addr: l.Addr().String()}
	app.ReadHeaderTimeout = 5 * time.Second
	app.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") })
	go func() {
		if err := app.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			fmt.Fprintln(os.Stderr, "demo: the application:", err)
		}
	}()
	return app, nil
}
