package testenv

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	headgateStartLimit = 20 * time.Second
	headgateStopLimit  = 20 * time.Second
)

// BuildHeadgate builds the program of the repository at root into dir and
// returns its path. It is built as it is shipped, but for further flags of go
// build, and without the race detector, under which times mean little.
func BuildHeadgate(root, dir string, flags ...string) (string, error) {
	program := filepath.Join(dir, "headgate")
	args := append([]string{"build", "-trimpath", "-o", program}, flags...)
	build := exec.Command("go", append(args, "./cmd/headgate")...)
	build.Dir = root
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build headgate: %w\n%s", err, out)
	}
	return program, nil
}

// Headgate is a running `headgate serve`.
type Headgate struct {
	GRPC     string // as --grpc takes it: host:port or unix:PATH
	Debug    string // host:port
	Services string // host:port; empty if it is all on GRPC

	tb      TB
	proc    *process
	stop    sync.Once
	stopErr error
}

var headgateServing = regexp.MustCompile(`msg=serving grpc=(\S+) http=(\S+) debug=(\S+)(?: services=(\S+))?`)

// StartHeadgate runs a program that BuildHeadgate built, on free ports of
// 127.0.0.1 and with further flags, which win over those given here, and waits
// until it serves. The test's cleanup ends it, fails the test if it does not end
// in good order or has panicked, and prints the end of its log if the test
// failed.
func StartHeadgate(tb TB, program string, flags ...string) *Headgate {
	tb.Helper()
	dir := tb.TempDir()
	cmd := exec.Command(program, append([]string{"serve", "--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0",
		"--debug", "127.0.0.1:0", "--services", "127.0.0.1:0", "--drain-delay", "0s"}, flags...)...)
	cmd.Dir = dir
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "HEADGATE_") { // would be settings
			cmd.Env = append(cmd.Env, e)
		}
	}
	proc, err := startCommand("headgate", filepath.Join(dir, "headgate.log"), cmd)
	if err != nil {
		tb.Fatalf("testenv: %v", err)
	}
	h := &Headgate{tb: tb, proc: proc}
	tb.Cleanup(h.cleanup)
	err = waitFor(headgateStartLimit, "start headgate", func() (bool, string, error) {
		if proc.exited() {
			return false, "", fmt.Errorf("it ended by itself (%v)", proc.err)
		}
		m := headgateServing.FindStringSubmatch(proc.newLog())
		if m == nil {
			return false, "it does not say that it is serving", nil
		}
		h.GRPC, h.Debug, h.Services = m[1], m[3], m[4]
		return true, "", nil
	})
	if err != nil {
		tb.Fatalf("testenv: %v", err)
	}
	return h
}

// Log returns what headgate has printed.
func (h *Headgate) Log() string { return h.proc.newLog() }

// Stop asks headgate to end (SIGTERM) and waits until it is gone. The error
// says that it had ended before, did not end in time, or not with exit code 0.
// Later calls return the same.
func (h *Headgate) Stop() error {
	h.stop.Do(func() {
		if h.proc.exited() {
			h.stopErr = fmt.Errorf("headgate ended by itself: %v", h.proc.cmd.ProcessState)
			return
		}
		h.stopErr = h.proc.terminate(headgateStopLimit)
		if h.stopErr == nil && h.proc.err != nil {
			h.stopErr = fmt.Errorf("headgate ended on SIGTERM with %w", h.proc.err)
		}
	})
	return h.stopErr
}

func (h *Headgate) cleanup() {
	if err := h.Stop(); err != nil {
		h.tb.Errorf("testenv: %v", err)
	}
	if strings.Contains(h.Log(), "panic") {
		h.tb.Errorf("testenv: headgate panicked:\n%s", tail(h.proc.log, 60))
	} else if h.tb.Failed() {
		h.tb.Logf("testenv: the log of headgate on %s ends with:\n%s", h.GRPC, tail(h.proc.log, 25))
	}
}

// Fetch gets a page of the debug listener, such as "/metrics".
func (h *Headgate) Fetch(path string) (string, error) {
	client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get("http://" + h.Debug + path)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", path, resp.Status)
	}
	return string(data), err
}

// Metrics returns the current values of the named series, which have no labels.
// One that is not there is an error.
func (h *Headgate) Metrics(names ...string) ([]float64, error) {
	page, err := h.Fetch("/metrics")
	if err != nil {
		return nil, err
	}
	found := map[string]string{}
	for line := range strings.Lines(page) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			found[name] = value
		}
	}
	values := make([]float64, len(names))
	var errs []error
	for i, name := range names {
		if values[i], err = strconv.ParseFloat(found[name], 64); err != nil {
			errs = append(errs, fmt.Errorf("the metric %s: %w", name, err))
		}
	}
	return values, errors.Join(errs...)
}

// Size is how much of the machine a process holds.
type Size struct {
	Goroutines int
	HeapMiB    int // allocated, what is not collected yet included
	RSSMiB     int // resident; 0 where the system does not tell
}

func (z Size) String() string {
	return fmt.Sprintf("%d goroutines, heap %d MiB, resident %d MiB", z.Goroutines, z.HeapMiB, z.RSSMiB)
}

// Size returns what headgate says of itself just now.
func (h *Headgate) Size() (Size, error) {
	v, err := h.Metrics("go_goroutines", "go_memstats_heap_alloc_bytes")
	if err != nil {
		return Size{}, err
	}
	return Size{Goroutines: int(v[0]), HeapMiB: int(v[1]) >> 20, RSSMiB: residentMiB(h.proc.cmd.Process.Pid)}, nil
}

func residentMiB(pid int) int {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(status)) {
		if kib, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			if f := strings.Fields(kib); len(f) > 0 {
				n, _ := strconv.Atoi(f[0]) // 0 means unknown here too
				return n >> 10
			}
		}
	}
	return 0
}
