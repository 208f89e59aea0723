package stack

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/backends/layers/fallback"
	"github.com/headgate-rls/headgate/backends/memory"
	"github.com/headgate-rls/headgate/internal/kit/background"
	"github.com/headgate-rls/headgate/limit"
)

// nowhere is a store at which nobody answers.
const nowhere = "redis://127.0.0.1:1?dial_timeout=100ms"

func open(t *testing.T, url string) *Stack {
	t.Helper()
	return openWith(t, url, Options{})
}

func openWith(t *testing.T, url string, opt Options) *Stack {
	t.Helper()
	s, err := New(context.Background(), url, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// TestLayersAreInTheOrderOfTheDesign: docs/design.md lists the layers from the
// inside out.
func TestLayersAreInTheOrderOfTheDesign(t *testing.T) {
	text, err := os.ReadFile("../../docs/design.md")
	if err != nil {
		t.Fatal(err)
	}
	_, list, ok := strings.Cut(string(text), "**The order of layers**")
	if !ok {
		t.Fatal("docs/design.md has no order of layers")
	}
	list, _, _ = strings.Cut(list, "\n\n**")
	var documented []string
	observed := Options{Observe: true}
	for _, m := range regexp.MustCompile("(?m)^\\d+\\. `(\\w+)`").FindAllStringSubmatch(list, -1) {
		documented = append(documented, m[1])
	}
	if got := openWith(t, nowhere, observed).names; !slices.Equal(got, documented) {
		t.Errorf("the layers around a store are %v, docs/design.md says %v", got, documented)
	}
	if got := openWith(t, "memory://", observed).names; !slices.Equal(got, documented[:1]) {
		t.Errorf("the layers around a store in this process are %v, want the first of %v", got, documented)
	}
}

func request(at limit.Instant) []limit.Request {
	l := limit.MustNew(limit.Spec{Algorithm: limit.FixedWindow, Max: 1, Window: time.Hour})
	op := limit.Op{Key: limit.Key{Group: "g", Limit: "l"}, Limit: l, Cost: 1}
	return []limit.Request{{Ops: []limit.Op{op}, At: at}}
}

func TestStackInMemoryDecides(t *testing.T) {
	s := open(t, "memory://")
	var out [1]limit.Verdict
	for _, admitted := range []bool{true, false} {
		s.Backend.Take(context.Background(), request(s.Now()), out[:])
		if out[0].Err != nil || out[0].Admitted != admitted {
			t.Errorf("got %+v, want admitted: %v", out[0], admitted)
		}
	}
}

// TestFallbackDecidesWhileTheStoreIsAway: the store's failure is the caller's to
// see, and the fallback knows nothing of it.
func TestFallbackDecidesWhileTheStoreIsAway(t *testing.T) {
	s := open(t, nowhere)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var out [1]limit.Verdict
	s.Backend.Take(ctx, request(0), out[:])
	if !errors.Is(out[0].Err, backends.ErrUnavailable) {
		t.Errorf("the store: %+v, want it unavailable", out[0])
	}
	s.Local.Take(ctx, request(s.Now()), out[:])
	if out[0].Err != nil || !out[0].Admitted {
		t.Errorf("the fallback: %+v, want it to admit", out[0])
	}
}

// TestFiguresHaveNamesOfTheirOwn: metrics are registered by name, once.
func TestFiguresHaveNamesOfTheirOwn(t *testing.T) {
	for url, want := range map[string]string{"memory://": "headgate_memory_keys", nowhere: "headgate_local_pending_keys"} {
		var names []string
		for _, f := range open(t, url).Figures() {
			names = append(names, f.Name)
			if f.Help == "" || f.Value() != 0 {
				t.Errorf("%s: figure %s: help %q, %v at first", url, f.Name, f.Help, f.Value())
			}
		}
		slices.Sort(names)
		if len(slices.Compact(slices.Clone(names))) != len(names) || !slices.Contains(names, want) {
			t.Errorf("%s: figures %v, want each once, and %s", url, names, want)
		}
	}
}

// TestRunEndsWithItsContext: Run returns when its context ends.
func TestRunEndsWithItsContext(t *testing.T) {
	s := open(t, nowhere)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.Run(ctx)
	}()
	cancel()
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Fatal("Run goes on after its context has ended")
	}
}

// swept counts the calls of Sweep.
type swept struct {
	backends.Backend
	times atomic.Int64
}

func (s *swept) Sweep(limit.Instant) { s.times.Add(1) }

// TestRunSweeps: what has expired in memory goes although nobody asks, and each layer gets its turn once a second.
func TestRunSweeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, layer := memory.New(memory.Config{}), &swept{}
		s := &Stack{clock: newClock(), memory: m, parts: []backends.Backend{layer}}
		ctx, stop := context.WithCancel(t.Context())
		defer synctest.Wait()
		defer stop()
		var out [1]limit.Verdict
		m.Take(ctx, request(s.Now()), out[:])
		go s.Run(ctx)
		time.Sleep(30 * time.Second)
		if n := m.Stats().Keys; n != 1 {
			t.Fatalf("%d counters after 30 s, want the one that counts", n)
		}
		time.Sleep(time.Hour)
		if n := m.Stats().Keys; n != 0 {
			t.Errorf("%d counters are left after their windows", n)
		}
		if n := layer.times.Load(); n < 3629 || n > 3630 {
			t.Errorf("a layer was swept %d times in 3630 s", n)
		}
	})
}

// A clumsy store panics the first time.
type clumsy struct {
	backends.Backend
	calls int
}

func (c *clumsy) Take(ctx context.Context, reqs []limit.Request, out []limit.Verdict) {
	if c.calls++; c.calls == 1 {
		panic("first time")
	}
	c.Backend.Take(ctx, reqs, out)
}

// TestSettlingSurvivesAPanic: what was decided locally is charged to the store
// although the first attempt panics.
func TestSettlingSurvivesAPanic(t *testing.T) {
	clock, panics := newClock(), 0
	primary := &clumsy{Backend: memory.New(memory.Config{})}
	local := fallback.New(memory.New(memory.Config{}), primary, fallback.Config{Every: 10 * time.Millisecond}, clock.now)
	tasks := []backends.Task{{Name: "fallback", Run: local.Run}}
	s := &Stack{clock: clock, memory: memory.New(memory.Config{}), tasks: tasks, opt: Options{
		Panics: &background.Reporter{Log: slog.New(slog.DiscardHandler), Count: func(string) { panics++ }},
	}}
	var out [1]limit.Verdict
	local.Take(context.Background(), request(clock.now()), out[:])
	if !out[0].Admitted || local.Pending() != 1 {
		t.Fatalf("%+v, %d keys pending", out[0], local.Pending())
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.Run(ctx)
	}()
	for local.Pending() > 0 && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	cancel()
	<-ended
	if local.Pending() != 0 || panics != 1 {
		t.Errorf("%d keys are still pending after %d panics, want 0 after 1", local.Pending(), panics)
	}
}
