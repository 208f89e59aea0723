package e2e

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	serviceStartLimit = 20 * time.Second
	serviceStopLimit  = 20 * time.Second
)

// A service is a running `headgate serve`.
type service struct {
	GRPC  string // as --grpc takes it: host:port or unix:PATH
	HTTP  string // host:port
	Debug string // host:port

	t    *testing.T
	cmd  *exec.Cmd
	log  string
	done chan struct{} // closed when the process is gone
}

// startService runs headgate on free ports of 127.0.0.1 with further flags,
// which win over the defaults here, and waits until it serves. The test's
// cleanup ends it, and prints its log if the test failed.
func startService(t *testing.T, flags ...string) *service {
	t.Helper()
	transport := "unary"
	if strings.Contains(t.Name(), onGRPC) {
		transport = "grpc"
	}
	s := launch(t, nil, append([]string{"serve", "--transport", transport,
		"--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0", "--debug", "127.0.0.1:0", "--services", "127.0.0.1:0", "--drain-delay", "0s",
	}, flags...)...)
	eventually(t, serviceStartLimit, "start headgate", func() string {
		if s.exited() {
			t.Fatalf("headgate ended by itself: %v", s.cmd.ProcessState)
		}
		if !s.announced() {
			return "it does not say that it is serving"
		}
		return ""
	})
	return s
}

var servingLine = regexp.MustCompile(`msg=serving grpc=(\S+) http=(\S+) debug=(\S+)`)

// announced reads the addresses from the log, once they are there.
func (s *service) announced() bool {
	m := servingLine.FindStringSubmatch(s.Log())
	if m == nil {
		return false
	}
	s.GRPC, s.HTTP, s.Debug = m[1], m[2], m[3]
	if !strings.Contains(s.GRPC, ":") {
		s.GRPC = "unix:" + s.GRPC
	}
	return true
}

// launch starts headgate with arguments and, besides what this process has,
// environment variables. Its output goes to a log file.
func launch(t *testing.T, env []string, args ...string) *service {
	t.Helper()
	dir := t.TempDir()
	s := &service{t: t, log: filepath.Join(dir, "headgate.log"), done: make(chan struct{})}
	log, err := os.Create(s.log)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	s.cmd = exec.Command(program, args...)
	s.cmd.Dir = dir // where there is no directory called rules
	s.cmd.Env = append(cleanEnvironment(), env...)
	s.cmd.Stdout, s.cmd.Stderr = log, log
	s.cmd.SysProcAttr = dieWithParent()
	if err := startOnLastingThread(s.cmd); err != nil {
		t.Fatalf("start headgate: %v", err)
	}
	go func() {
		_ = s.cmd.Wait() // the exit code is in ProcessState
		close(s.done)
	}()
	t.Cleanup(s.cleanup)
	return s
}

// cleanEnvironment is this process's environment without settings of headgate.
func cleanEnvironment() []string {
	var env []string
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "HEADGATE_") {
			env = append(env, e)
		}
	}
	return env
}

// startRequests feeds the one thread that starts all processes: the kernel
// takes the end of the thread that started a child for the parent's end.
var startRequests = sync.OnceValue(func() chan<- func() {
	requests := make(chan func())
	go func() {
		runtime.LockOSThread()
		for f := range requests {
			f()
		}
	}()
	return requests
})

func startOnLastingThread(cmd *exec.Cmd) error {
	started := make(chan error)
	startRequests() <- func() { started <- cmd.Start() }
	return <-started
}

// Log returns what the service has printed.
func (s *service) Log() string {
	data, err := os.ReadFile(s.log)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

func (s *service) exited() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// Terminate asks the service to end, as an orchestrator does.
func (s *service) Terminate() {
	s.t.Helper()
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		s.t.Fatalf("send SIGTERM to headgate: %v", err)
	}
}

// Wait waits for the service's end and returns its exit code.
func (s *service) Wait(limit time.Duration) int {
	s.t.Helper()
	select {
	case <-s.done:
		return s.cmd.ProcessState.ExitCode()
	case <-time.After(limit):
		s.t.Fatalf("headgate still runs after %v", limit)
		return -1
	}
}

// Kill ends the service like a crash.
func (s *service) Kill() {
	s.t.Helper()
	_ = s.cmd.Process.Kill() // an error means that it is gone already
	s.Wait(serviceStopLimit)
}

func (s *service) cleanup() {
	if !s.exited() {
		_ = s.cmd.Process.Signal(syscall.SIGTERM)
	}
	select {
	case <-s.done:
	case <-time.After(serviceStopLimit):
		s.t.Errorf("headgate did not end within %v of SIGTERM and was killed", serviceStopLimit)
		_ = s.cmd.Process.Kill()
		<-s.done
	}
	if s.t.Failed() {
		s.t.Logf("the log of headgate %s ends with:\n%s", s.GRPC, lastLines(s.Log(), 40))
	}
	if strings.Contains(s.Log(), "panic") {
		s.t.Errorf("headgate panicked:\n%s", lastLines(s.Log(), 60))
	}
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// fetch gets a page of the service's own HTTP listeners.
func fetch(t *testing.T, addr, path string) (code int, body string) {
	t.Helper()
	client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get("http://" + addr + path)
	if err != nil {
		t.Fatalf("headgate's %s: %v", path, err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("headgate's %s: %v", path, err)
	}
	return resp.StatusCode, string(bytes.TrimSpace(data))
}

// Metric adds up the series of a metric whose labels include all of labels,
// each written as name="value".
func (s *service) Metric(name string, labels ...string) float64 {
	s.t.Helper()
	_, body := fetch(s.t, s.Debug, "/metrics")
	sum := 0.0
	for line := range strings.Lines(body) {
		series, value, _ := strings.Cut(strings.TrimSpace(line), "} ")
		if !strings.Contains(line, "{") {
			series, value, _ = strings.Cut(strings.TrimSpace(line), " ")
		}
		if metric, _, _ := strings.Cut(series, "{"); metric != name {
			continue
		}
		if !containsAll(series, labels) {
			continue
		}
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			s.t.Fatalf("metric %s has the value %q", name, value)
		}
		sum += v
	}
	return sum
}

func containsAll(s string, parts []string) bool {
	for _, p := range parts {
		if !strings.Contains(s, p) {
			return false
		}
	}
	return true
}

// result is how a finished command ended.
type result struct {
	code        int
	out, errOut string
}

func (r result) String() string {
	return fmt.Sprintf("exit code %d\nstdout:\n%s\nstderr:\n%s", r.code, r.out, r.errOut)
}

// command runs headgate to its end.
func command(t *testing.T, env []string, args ...string) result {
	t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Dir = t.TempDir()
	cmd.Env = append(cleanEnvironment(), env...)
	cmd.SysProcAttr = dieWithParent()
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := startOnLastingThread(cmd); err != nil {
		t.Fatalf("start headgate: %v", err)
	}
	timer := time.AfterFunc(30*time.Second, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	_ = cmd.Wait() // the exit code is in ProcessState
	return result{cmd.ProcessState.ExitCode(), out.String(), errOut.String()}
}
