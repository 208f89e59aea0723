//go:build chaos

package chaos

import (
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
	startLimit = 20 * time.Second
	stopLimit  = 20 * time.Second
)

// A process is what startProcess started.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it is gone
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

// startProcess starts cmd. The test's cleanup ends it.
func startProcess(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	cmd.SysProcAttr = dieWithParent()
	started := make(chan error)
	startRequests() <- func() { started <- cmd.Start() }
	if err := <-started; err != nil {
		t.Fatalf("start %s: %v", cmd.Path, err)
	}
	p := &process{cmd: cmd, done: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // the exit code is in ProcessState
		close(p.done)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // an error means that it is gone
		select {
		case <-p.done:
		case <-time.After(stopLimit):
			t.Errorf("%s did not end within %v of SIGTERM and was killed", cmd.Path, stopLimit)
			_ = cmd.Process.Kill()
			<-p.done
		}
	})
	return p
}

func (p *process) exited() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// A service is a running `headgate serve`.
type service struct {
	*process
	grpc, debug string // addresses
	log         string // a file
}

var servingLine = regexp.MustCompile(`msg=serving grpc=(\S+) http=(\S+) debug=(\S+)`)

// startService runs headgate on free ports and waits until it serves.
func startService(t *testing.T, flags ...string) *service {
	t.Helper()
	dir := t.TempDir()
	s := &service{log: filepath.Join(dir, "headgate.log")}
	log, err := os.Create(s.log)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	t.Cleanup(func() { s.complain(t) }) // runs after the process has ended
	cmd := exec.Command(program, append([]string{"serve", "--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0",
		"--debug", "127.0.0.1:0", "--services", "127.0.0.1:0", "--drain-delay", "0s"}, flags...)...)
	cmd.Dir = dir
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "HEADGATE_") { // would be settings
			cmd.Env = append(cmd.Env, e)
		}
	}
	cmd.Stdout, cmd.Stderr = log, log
	s.process = startProcess(t, cmd)
	eventually(t, startLimit, "start headgate", func() string {
		if s.exited() {
			t.Fatalf("headgate ended by itself: %v", cmd.ProcessState)
		}
		m := servingLine.FindStringSubmatch(s.text())
		if m == nil {
			return "it does not say that it is serving"
		}
		s.grpc, s.debug = m[1], m[3]
		return ""
	})
	return s
}

func (s *service) text() string {
	data, err := os.ReadFile(s.log)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// complain prints the end of the log of a test that failed, and fails one whose
// service panicked.
func (s *service) complain(t *testing.T) {
	text := s.text()
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if t.Failed() {
		t.Logf("the log of headgate %s ends with:\n%s", s.grpc, strings.Join(lines[max(0, len(lines)-25):], "\n"))
	}
	if strings.Contains(text, "panic") {
		t.Errorf("headgate panicked:\n%s", strings.Join(lines[max(0, len(lines)-60):], "\n"))
	}
}

// fetch gets a page of the debug listener.
func (s *service) fetch(path string) (string, error) {
	client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get("http://" + s.debug + path)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	return string(data), err
}

// A size is how much of the machine a service holds.
type size struct {
	goroutines int
	rss        int // MiB; 0 where the system does not tell
}

func (z size) String() string { return fmt.Sprintf("%d goroutines, %d MiB", z.goroutines, z.rss) }

func (s *service) size() (z size, err error) {
	page, err := s.fetch("/debug/pprof/goroutine?debug=1")
	if err != nil {
		return z, err
	}
	if _, err := fmt.Sscanf(page, "goroutine profile: total %d", &z.goroutines); err != nil {
		return z, fmt.Errorf("the goroutine profile has no total: %w", err)
	}
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	for line := range strings.Lines(string(status)) {
		if kib, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			n, err := strconv.Atoi(strings.Fields(kib)[0])
			if err != nil {
				return z, err
			}
			z.rss = n >> 10
		}
	}
	return z, nil
}
