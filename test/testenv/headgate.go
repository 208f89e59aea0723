package testenv

import (
	"bytes"
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

const headgateStartLimit = 20 * time.Second

// BuildHeadgate is Build of the program headgate.
func BuildHeadgate(root, dir string, flags ...string) (string, error) {
	return Build(root, dir, "./cmd/headgate", flags...)
}

// Build builds the program in the folder source of the repository at root into dir
// and returns its path. It is built as it is shipped, but for further flags of go
// build, and without the race detector, under which times mean little. The program
// that was built before is kept in the folder of servers: if it is up to date,
// it is not linked again.
func Build(root, dir, source string, flags ...string) (string, error) {
	program := filepath.Join(dir, filepath.Base(source))
	args := append([]string{"build", "-trimpath", "-o", program}, flags...)
	build := exec.Command("go", append(args, source)...)
	build.Dir = root
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	kept := keptBuild(program, flags)
	before, err := os.ReadFile(kept)
	if err == nil {
		_ = os.WriteFile(program, before, 0o755) // go build looks whether it is up to date
	}
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", source, err, out)
	}
	after, err := os.ReadFile(program)
	if err == nil && !bytes.Equal(before, after) {
		keep(kept, after)
	}
	return program, err
}

// keep writes a program for the next build, which does without it where that cannot be done.
func keep(path string, program []byte) {
	fresh := fmt.Sprint(path, ".", os.Getpid()) // others may read the old one
	_ = os.MkdirAll(filepath.Dir(path), 0o755)
	if os.WriteFile(fresh, program, 0o755) != nil || os.Rename(fresh, path) != nil {
		_ = os.Remove(fresh)
	}
}

// keptBuild is where the program is kept. The number of flags has those with and without from taking
// each other's place.
func keptBuild(program string, flags []string) string {
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	return filepath.Join(cache, "headgate-testenv", "built", fmt.Sprint(filepath.Base(program), "-", len(flags)))
}

// Headgate is a running `headgate serve`.
type Headgate struct {
	GRPC     string // as --grpc takes it: host:port or unix:PATH
	HTTP     string // host:port
	Debug    string // host:port
	Services string // host:port; empty if it is all on GRPC

	*Program
	stop    sync.Once
	stopErr error
}

var headgateServing = regexp.MustCompile(`msg=serving grpc=(\S+) http=(\S+) debug=(\S+)(?: services=(\S+))?`)

// StartHeadgate is ServeHeadgate for a test that lets headgate end in good order:
// its cleanup fails the test if it does not.
func StartHeadgate(tb TB, program string, flags ...string) *Headgate {
	tb.Helper()
	h := ServeHeadgate(tb, program, flags...)
	tb.Cleanup(func() {
		if err := h.Stop(); err != nil {
			tb.Errorf("testenv: %v", err)
		}
	})
	return h
}

// ServeHeadgate runs a program that BuildHeadgate built, on free ports of
// 127.0.0.1 and with further flags, which win over those given here, and waits
// until it serves. The test may end it; otherwise its cleanup does, as that of
// StartProgram.
func ServeHeadgate(tb TB, program string, flags ...string) *Headgate {
	tb.Helper()
	h := &Headgate{
		Program: StartProgram(tb, program, nil, append([]string{"serve", "--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0",
			"--debug", "127.0.0.1:0", "--services", "127.0.0.1:0", "--drain-delay", "0s"}, flags...)...)}
	err := waitFor(headgateStartLimit, "start headgate", func() (bool, string, error) {
		if h.Exited() {
			return false, "", fmt.Errorf("it ended by itself (%v)", h.proc.err)
		}
		if !h.announced() {
			return false, "it does not say that it is serving", nil
		}
		return true, "", nil
	})
	if err != nil {
		tb.Fatalf("testenv: %v", err)
	}
	return h
}

// announced reads the addresses from the log, once they are there.
func (h *Headgate) announced() bool {
	m := headgateServing.FindStringSubmatch(h.Log())
	if m == nil {
		return false
	}
	h.GRPC, h.HTTP, h.Debug, h.Services = m[1], m[2], m[3], m[4]
	if !strings.Contains(h.GRPC, ":") {
		h.GRPC = "unix:" + h.GRPC
	}
	return true
}

// Stop asks headgate to end (SIGTERM) and waits until it is gone. The error
// says that it had ended before, did not end in time, or not with exit code 0.
// Later calls return the same.
func (h *Headgate) Stop() error {
	h.stop.Do(func() {
		if h.Exited() {
			h.stopErr = fmt.Errorf("headgate ended by itself: %v", h.proc.cmd.ProcessState)
			return
		}
		h.stopErr = h.proc.terminate(programStopLimit)
		if h.stopErr == nil && h.proc.err != nil {
			h.stopErr = fmt.Errorf("headgate ended on SIGTERM with %w", h.proc.err)
		}
	})
	return h.stopErr
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
	RSSMiB     int // resident; 0 if the system does not report it
}

func (z Size) String() string {
	return fmt.Sprintf("%d goroutines, heap %d MiB, resident %d MiB", z.Goroutines, z.HeapMiB, z.RSSMiB)
}

// Size returns the sizes that headgate reports in its metrics now.
func (h *Headgate) Size() (Size, error) {
	v, err := h.Metrics("go_goroutines", "go_memstats_heap_alloc_bytes")
	if err != nil {
		return Size{}, err
	}
	return Size{Goroutines: int(v[0]), HeapMiB: int(v[1]) >> 20, RSSMiB: Resident(h.PID()) >> 20}, nil
}

// Resident returns how much memory a process takes, in bytes; 0 if that is unknown.
func Resident(pid int) int {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(status)) {
		if kib, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			if f := strings.Fields(kib); len(f) > 0 {
				n, _ := strconv.Atoi(f[0]) // 0 means unknown here too
				return n << 10
			}
		}
	}
	return 0
}
