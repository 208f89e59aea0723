package capture

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/backends/stack"
	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/descriptors/rulefile"
	"github.com/headgate-rls/headgate/internal/app/replay"
	"github.com/headgate-rls/headgate/ratelimit"
	"github.com/headgate-rls/headgate/ratelimit/leases"
	"github.com/headgate-rls/headgate/test/testenv"
)

const rules = `domain: shop
descriptors:
- {key: tenant, rate_limit: {name: per-tenant, unit: hour, requests_per_unit: 3}}
- {key: busy, concurrency: [{threshold: 2, response: {statusCode: 503}}]}
- key: user
  reserve: {amount: estimate, default: 100, max: 400, ttl: 1h, on_5xx: free}
  limits: [{name: tpm, algorithm: fixed_window, limit: 4000, window: 24h}]
- key: oldest
  reserve: {amount: auto, default: 100, max: 400, ttl: 1h, match: oldest}
  limits: [{name: tpm, algorithm: fixed_window, limit: 3000, window: 24h}]
`

// newService returns a service whose requests the hub sees.
func newService(t testing.TB, h *Hub) (*ratelimit.Service, *descriptors.Set) {
	t.Helper()
	set, problems := rulefile.Load([]rulefile.Source{{Name: "rules.yaml", Data: []byte(rules)}}, rulefile.Options{})
	if set == nil {
		t.Fatal(problems)
	}
	store, err := stack.New(t.Context(), "memory://", stack.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	s, err := ratelimit.New(ratelimit.Config{Backend: store.Backend, Caps: store.Caps, Local: store.Local, Now: store.Now,
		Log: slog.New(slog.DiscardHandler), Taps: []ratelimit.Tap{h}}, set)
	if err != nil {
		t.Fatal(err)
	}
	return s, set
}

func ask(s *ratelimit.Service, entries ...string) ratelimit.Response {
	req := ratelimit.Request{Domain: "shop", InProcess: true}
	for _, e := range entries {
		key, value, _ := strings.Cut(e, "=")
		req.Descriptors = append(req.Descriptors, ratelimit.Descriptor{Entries: []descriptors.Entry{{Key: key,
			Value: value}}})
	}
	var resp ratelimit.Response
	s.Decide(context.Background(), []*ratelimit.Request{&req}, []*ratelimit.Response{&resp})
	return resp
}

// started is a hub that captures into a file until stop is called.
func started(t *testing.T, text string) (h *Hub, file string, log *testenv.Log, stop func()) {
	t.Helper()
	c, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	log = new(testenv.Log)
	if h, err = New(c, slog.New(slog.NewTextHandler(log, nil))); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); h.Run(ctx) }()
	stop = func() { cancel(); <-done }
	t.Cleanup(stop)
	return h, c.File, log, stop
}

// What a capture has, a replay by the same rules answers as the service did.
func TestCaptureIsReplayed(t *testing.T) {
	h, file, _, stop := started(t, filepath.Join(t.TempDir(), "capture.jsonl"))
	s, set := newService(t, h)
	for range 5 {
		ask(s, "tenant=a\"\n<ö>", "other=x")
	}
	first, second := ask(s, "busy=x"), ask(s, "busy=x")
	if refused := ask(s, "busy=x"); !refused.OverLimit {
		t.Error("three requests are in flight")
	}
	time.Sleep(5 * time.Millisecond)
	s.Leases().ApplyOwn(t.Context(), leases.Release, first.Inside.Lease)
	s.Leases().ApplyOwn(t.Context(), leases.Release, first.Inside.Lease)
	if again := ask(s, "busy=x"); again.OverLimit {
		t.Error("one request is in flight")
	}
	_ = second
	stop()
	text, err := os.ReadFile(file)
	if err != nil || strings.Count(string(text), "\n") != 9 || strings.Count(string(text), `"until"`) != 1 {
		t.Fatalf("%v:\n%s", err, text)
	}
	r, err := replay.Run(t.Context(), replay.Options{Files: []string{file}, New: set, Reorder: time.Minute,
		Hold: time.Hour})
	if err != nil || r.Requests != 9 || r.Answered != 9 || r.RefusedOld != 3 || r.RefusedNew != 3 || r.NewlyRefused != 0 ||
		r.Bad != 0 || r.Rules[0].Change != 0 || r.Rules[1].Change != 0 {
		t.Errorf("%v: %+v\n%s", err, r, text)
	}
}

// Sampling keeps a key whole or leaves it out, and hashing keeps values from the file.
func TestSampleAndHash(t *testing.T) {
	h, file, _, stop := started(t, filepath.Join(t.TempDir(), "c.jsonl")+"?sample=0.25&hash=tenant")
	s, _ := newService(t, h)
	for range 3 {
		for i := range 400 {
			ask(s, fmt.Sprintf("tenant=secret%d", i), "path=/pay")
		}
	}
	stop()
	seen := map[string]int{}
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var l struct {
			Descriptors []struct{ Entries []struct{ Key, Value string } }
		}
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(lines.Text(), "secret") || l.Descriptors[1].Entries[0].Value != "/pay" {
			t.Fatalf("%s", lines.Text())
		}
		seen[l.Descriptors[0].Entries[0].Value]++
	}
	if len(seen) < 60 || len(seen) > 140 {
		t.Errorf("%d of 400 keys at a quarter", len(seen))
	}
	for key, n := range seen {
		if n != 3 {
			t.Errorf("%s has %d of 3 requests", key, n)
		}
	}
}

func TestFilesRotate(t *testing.T) {
	h, file, _, stop := started(t, filepath.Join(t.TempDir(), "c.jsonl")+"?max=1MiB")
	s, _ := newService(t, h)
	for range 40 {
		for i := range 1000 {
			ask(s, fmt.Sprintf("tenant=%d", i))
		}
		testenv.Eventually(t, 10*time.Second, "have written what waits", func() string {
			h.file.mu.Lock()
			defer h.file.mu.Unlock()
			if len(h.file.queue) > 100_000 {
				return "lines wait"
			}
			return ""
		})
	}
	stop()
	for _, name := range []string{file, file + ".1"} {
		info, err := os.Stat(name)
		if err != nil || info.Size() > 512<<10+maxQueued/16 || info.Size() < 1000 {
			t.Errorf("%s: %v, %+v", name, err, info)
		}
		text, _ := os.ReadFile(name)
		if !strings.HasPrefix(string(text), `{"t":`) || !strings.HasSuffix(string(text), "}\n") {
			t.Errorf("%s has parts of lines", name)
		}
	}
	if info, err := os.Stat(file); err == nil && info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v", info.Mode())
	}
}

// A disk that is full, or a bound on the size of files, stops the capture and nothing else. What is in the file are
// whole lines.
func TestFullDisk(t *testing.T) {
	full := func(t *testing.T, dir string) {
		h, file, log, stop := started(t, filepath.Join(dir, "c.jsonl"))
		s, _ := newService(t, h)
		for i := 0; len(h.list()) > 0 && i < 1_000_000; i++ {
			if resp := ask(s, fmt.Sprintf("tenant=%d", i)); resp.Err != nil || resp.OverLimit {
				t.Fatalf("%+v", resp)
			}
			if i%100 == 0 {
				runtime.Gosched()
			}
		}
		testenv.Eventually(t, 5*time.Second, "stop the capture, and count that", func() string {
			if h.Active() || h.failed.Value() != 1 {
				return fmt.Sprintf("%d captures go on, %d have failed", len(h.list()), h.failed.Value())
			}
			return ""
		})
		if resp := ask(s, "tenant=after"); resp.Err != nil || resp.OverLimit {
			t.Errorf("%+v", resp)
		}
		stop()
		text, err := os.ReadFile(file)
		if err != nil || len(text) > 0 && !strings.HasSuffix(string(text), "}\n") {
			t.Errorf("%v: %d bytes, which end in %q", err, len(text), text[max(0, len(text)-20):])
		}
		if !strings.Contains(log.String(), "the capture of requests has stopped") {
			t.Errorf("the log:\n%s", log)
		}
	}
	t.Run("tmpfs", func(t *testing.T) {
		dir := t.TempDir()
		if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=256k"); err != nil {
			t.Skipf("a file system needs rights: %v", err)
		}
		defer func() { _ = syscall.Unmount(dir, 0) }()
		full(t, dir)
	})
	t.Run("limit", func(t *testing.T) {
		var before syscall.Rlimit
		if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &before); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 100_000, Max: before.Max}); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = syscall.Setrlimit(syscall.RLIMIT_FSIZE, &before) }()
		full(t, t.TempDir())
	})
}

// TestCaptureGoesOn when the file can be written again. The log says both once, and no line is cut.
func TestCaptureGoesOn(t *testing.T) {
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &before); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Setrlimit(syscall.RLIMIT_FSIZE, &before) }()
	log := new(testenv.Log)
	h, err := New(Config{File: filepath.Join(t.TempDir(), "c.jsonl"), Sample: 1, Max: 1 << 30},
		slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	h.again = time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { h.Run(ctx) })
	stop := func() { cancel(); running.Wait() }
	defer stop()
	s, _ := newService(t, h)
	asking := func(want string, done func() bool) {
		t.Helper()
		testenv.Eventually(t, 20*time.Second, want, func() string {
			for range 1000 {
				ask(s, "tenant=a")
			}
			if done() {
				return ""
			}
			return h.Problem() + log.String()
		})
	}
	// Nothing fits into the file: else a short line might, after a long one that did not.
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 1, Max: before.Max}); err != nil {
		t.Fatal(err)
	}
	asking("stop", func() bool { return strings.Contains(h.Problem(), "file too large") })
	for range 20 { // in vain
		ask(s, "tenant=a")
		time.Sleep(5 * time.Millisecond)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &before); err != nil {
		t.Fatal(err)
	}
	asking("go on", func() bool { return h.Problem() == "" })
	ask(s, "tenant=last")
	stop()
	text, err := os.ReadFile(h.conf.File)
	if err != nil || !strings.Contains(string(text), "last") || !strings.HasSuffix(string(text), "}\n") {
		t.Errorf("%v: %s", err, text)
	}
	if said := log.String(); strings.Count(said, "level=ERROR") != 1 || strings.Count(said, "goes on") != 1 ||
		h.failed.Value() != 1 {
		t.Errorf("the log, after %d failures:\n%s", h.failed.Value(), said)
	}
}

// A reader that does not read has lines dropped, not answers delayed.
func TestNothingWaits(t *testing.T) {
	h, err := New(Config{}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	s, _ := newService(t, h)
	stuck := newStream(Config{Sample: 1})
	if err := h.add(stuck); err != nil {
		t.Fatal(err)
	}
	value := strings.Repeat("x", 1000)
	for range 20_000 {
		ask(s, "tenant="+value)
	}
	lines, dropped := stuck.counts()
	if lines+dropped != 20_000 || dropped == 0 || len(stuck.queue) > maxQueued {
		t.Errorf("%d lines, %d dropped, %d bytes", lines, dropped, len(stuck.queue))
	}
	for range maxPending + 10 {
		stuck.wait(fmt.Sprint(len(stuck.pending)), pending{at: 1})
	}
	if len(stuck.pending) > maxPending {
		t.Errorf("%d lines wait for ends", len(stuck.pending))
	}
	h.remove(stuck)
	if l, d := h.counts(); l+d != 20_010 {
		t.Errorf("after its end: %d lines, %d dropped", l, d)
	}
}

func TestOverHTTP(t *testing.T) {
	h, err := New(Config{}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	s, _ := newService(t, h)
	server := httptest.NewServer(h)
	defer server.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	get := func(ctx context.Context, query string) *http.Response {
		t.Helper()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"/admin/capture?"+query, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = resp.Body.Close() })
		return resp
	}
	for _, query := range []string{"", "for=2h", "for=1m&sample=2", "for=1m&size=3", "for=-1s"} {
		if resp := get(t.Context(), query); resp.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: %s", query, resp.Status)
		}
	}
	resp := get(t.Context(), "for=400ms")
	for range maxStreams - 1 {
		get(ctx, "for=1m")
	}
	if resp := get(t.Context(), "for=1m"); resp.StatusCode != http.StatusTooManyRequests {
		t.Errorf("the fifth: %s", resp.Status)
	}
	ask(s, "tenant=a")
	ask(s, "tenant=b")
	n := 0
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); n++ {
		if !json.Valid(lines.Bytes()) {
			t.Errorf("%s", lines.Text())
		}
	}
	if n != 2 || resp.Trailer.Get(DroppedTrailer) != "0" {
		t.Errorf("%d lines, %s dropped", n, resp.Trailer.Get(DroppedTrailer))
	}
	cancel()
	testenv.Eventually(t, 10*time.Second, "have ended with their clients", func() string {
		if n := len(h.list()); n > 0 {
			return fmt.Sprint(n, " captures are running")
		}
		return ""
	})
}

func TestParse(t *testing.T) {
	c, err := Parse("/tmp/a?b.jsonl?sample=0.5&max=2MiB&hash=a,b")
	if err != nil || c.File != "/tmp/a?b.jsonl" || c.Sample != 0.5 || c.Max != 2<<20 || !c.hashes("b") || c.hashes("c") {
		t.Errorf("%+v, %v", c, err)
	}
	for text, want := range map[string]string{
		"": "a file is missing", "?sample=1": "a file is missing", "f.gz": "not compressed",
		"f?sample=0":   "sample=0: want a part",
		"f?sample=NaN": "want a part", "f?max=5": "at least 1MiB", "f?max=9999999999GiB": "want a size",
		"f?sampel=1": `did you mean "sample"?`,
	} {
		if _, err := Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	_, err = New(Config{File: filepath.Join(t.TempDir(), "none", "f")}, nil)
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a folder that is not there: %v", err)
	}
	if _, err = New(Config{File: "/dev/null"}, nil); err == nil {
		t.Error("a device is a file")
	}
}
