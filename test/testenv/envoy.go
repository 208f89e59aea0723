package testenv

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.yaml.in/yaml/v3"
)

const (
	envoyStartLimit = 30 * time.Second
	envoyStopLimit  = 10 * time.Second
)

// EnvoyOption changes how an Envoy is started.
type EnvoyOption func(*envoyConfig)

type envoyConfig struct {
	concurrency int
	args        []string
}

// WithConcurrency sets the number of worker threads; the default is 1.
func WithConcurrency(n int) EnvoyOption {
	return func(c *envoyConfig) { c.concurrency = n }
}

// WithEnvoyArgs appends command-line arguments, such as "--log-level", "debug".
func WithEnvoyArgs(args ...string) EnvoyOption {
	return func(c *envoyConfig) { c.args = append(c.args, args...) }
}

// Envoy is a running Envoy.
type Envoy struct {
	AdminAddr string // host:port
	Version   string

	tb   TB
	proc *process
	log  string
	stop sync.Once
}

// StartEnvoy runs Envoy, version "1.40.0", "1.38.3" or "1.36.4", with the given bootstrap
// and waits until it is ready. The bootstrap must have an admin listener; its
// port, like that of every listener, may be 0 (see AdminAddr and ListenerAddr)
// or come from FreePort. When the test fails, the end of Envoy's log is printed.
func StartEnvoy(tb TB, version, bootstrapYAML string, opts ...EnvoyOption) *Envoy {
	tb.Helper()
	engine := "envoy-" + version
	binary := Require(tb, engine)
	c := envoyConfig{concurrency: 1}
	for _, o := range opts {
		o(&c)
	}
	if err := hasAdmin(bootstrapYAML); err != nil {
		tb.Fatalf("testenv: the bootstrap of Envoy %s: %v", version, err)
	}

	dir := tb.TempDir()
	config, adminFile := filepath.Join(dir, "envoy.yaml"), filepath.Join(dir, "admin-address")
	if err := os.WriteFile(config, []byte(bootstrapYAML), 0o600); err != nil {
		tb.Fatalf("testenv: write the bootstrap of Envoy: %v", err)
	}
	e := &Envoy{Version: version, tb: tb, log: filepath.Join(dir, "envoy.log")}
	args := append([]string{
		"--config-path", config,
		"--admin-address-path", adminFile,
		"--concurrency", strconv.Itoa(c.concurrency),
		// Hot restart shares memory between Envoys of the same base id, and
		// leaves it behind when killed. Without it any number can run at once.
		"--disable-hot-restart",
	}, c.args...)
	if !slices.Contains(c.args, "--log-level") { // Envoy takes it once only
		args = append(args, "--log-level", "warning")
	}
	proc, err := startProcess("Envoy "+version, e.log, binary, args...)
	if err != nil {
		tb.Fatalf("testenv: %v", err)
	}
	e.proc = proc
	tb.Cleanup(e.cleanup)

	err = waitFor(envoyStartLimit, "start Envoy "+version, func() (bool, string, error) {
		if proc.exited() {
			return false, "", fmt.Errorf("it ended by itself (%v)", proc.err)
		}
		addr, err := os.ReadFile(adminFile)
		if err != nil || len(addr) == 0 {
			return false, "its admin listener is not up", nil
		}
		e.AdminAddr = strings.TrimSpace(string(addr))
		body, err := e.get("/ready")
		if err != nil {
			return false, err.Error(), nil
		}
		return strings.TrimSpace(body) == "LIVE", "/ready says " + body, nil
	})
	if err != nil {
		// The cleanup prints the log.
		tb.Fatalf("testenv: %v", err)
	}
	ran(tb, engine, version)
	return e
}

// EnvoyAddress returns host:port as Envoy's configuration has addresses.
func EnvoyAddress(addr string) string {
	host, port, _ := net.SplitHostPort(addr)
	return fmt.Sprintf("{socket_address: {address: %s, port_value: %s}}", host, port)
}

func hasAdmin(bootstrapYAML string) error {
	var b struct {
		Admin *struct {
			Address any `yaml:"address"`
		} `yaml:"admin"`
	}
	if err := yaml.Unmarshal([]byte(bootstrapYAML), &b); err != nil {
		return fmt.Errorf("it is no YAML: %w", err)
	}
	if b.Admin == nil || b.Admin.Address == nil {
		return errors.New("it has no admin address, which is where readiness is asked for; add\n" +
			"admin: {address: {socket_address: {address: 127.0.0.1, port_value: 0}}}")
	}
	return nil
}

func (e *Envoy) cleanup() {
	e.Stop()
	if e.tb.Failed() {
		e.tb.Logf("testenv: the log of Envoy %s ends with:\n%s", e.Version, tail(e.log, 60))
	}
}

// Stop ends Envoy in an orderly way (SIGTERM) and waits until it is gone.
func (e *Envoy) Stop() {
	e.tb.Helper()
	e.stop.Do(func() {
		if err := e.proc.terminate(envoyStopLimit); err != nil {
			e.tb.Errorf("testenv: %v", err)
		}
	})
}

// Kill ends Envoy like a crash (SIGKILL) and waits until it is gone.
func (e *Envoy) Kill() {
	e.tb.Helper()
	if err := e.proc.kill(); err != nil {
		e.tb.Errorf("testenv: %v", err)
	}
}

// Running reports whether the process exists: Envoy has been known to crash.
func (e *Envoy) Running() bool { return !e.proc.exited() }

// Log returns what Envoy has printed, including access logs that go to
// /dev/stdout.
func (e *Envoy) Log() string { return e.proc.newLog() }

// Admin fetches a path such as "/stats" from the admin listener.
func (e *Envoy) Admin(path string) string {
	e.tb.Helper()
	body, err := e.get(path)
	if err != nil {
		e.tb.Fatalf("testenv: Envoy's admin listener: %v", err)
	}
	return body
}

// ListenerAddr returns the address that the listener of this name is bound to,
// for listeners whose port is 0 in the bootstrap.
func (e *Envoy) ListenerAddr(name string) string {
	e.tb.Helper()
	var list struct {
		Statuses []struct {
			Name    string `json:"name"`
			Address struct {
				Socket struct {
					Address string `json:"address"`
					Port    int    `json:"port_value"`
				} `json:"socket_address"`
			} `json:"local_address"`
		} `json:"listener_statuses"`
	}
	body := e.Admin("/listeners?format=json")
	if err := json.Unmarshal([]byte(body), &list); err != nil {
		e.tb.Fatalf("testenv: Envoy's list of listeners: %v: %s", err, body)
	}
	for _, l := range list.Statuses {
		if l.Name == name {
			return net.JoinHostPort(l.Address.Socket.Address, strconv.Itoa(l.Address.Socket.Port))
		}
	}
	e.tb.Fatalf("testenv: Envoy has no listener %q, but: %s", name, body)
	return ""
}

func (e *Envoy) get(path string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+e.AdminAddr+path, nil)
	if err != nil {
		return "", err
	}
	// A connection of its own: kept ones would outlive the Envoy they lead to.
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", fmt.Errorf("read %s: %w", path, err)
	}
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s: %s: %s", path, resp.Status, body)
	}
	return string(body), nil
}
