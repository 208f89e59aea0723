package persecond

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/backends/memory"
	_ "github.com/headgate-rls/headgate/backends/redis"
	"github.com/headgate-rls/headgate/backends/stack"
	"github.com/headgate-rls/headgate/internal/kit/metrics"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/test/testenv"
)

func now() limit.Instant { return limit.Instant(time.Now().UnixMicro()) }

// A broken store decides nothing.
type broken struct {
	backends.Backend
	err error
}

func (b broken) Take(_ context.Context, _ []limit.Request, out []limit.Verdict) {
	backends.Fail(out, b.err)
}

func windowOf(window time.Duration, most int64) *limit.Limit {
	return limit.MustNew(limit.Spec{Algorithm: limit.FixedWindow, Max: most, Window: window})
}

// ops are one of a second and one of an hour, of limits of two.
func ops(each bool) []limit.Op {
	second, hour := windowOf(time.Second, 2), windowOf(time.Hour, 2)
	return []limit.Op{{Key: limit.Key{Group: "s", Limit: "s"}, Limit: second, Cost: 1, Each: each},
		{Key: limit.Key{Group: "h", Limit: "h"}, Limit: hour, Cost: 1, Each: each}}
}

// left returns what a store has left of both limits.
func left(b backends.Backend, at limit.Instant) (second, hour int64) {
	out := make([]limit.Verdict, 2)
	all := ops(true)
	all[0].Cost, all[1].Cost = 0, 0
	b.Take(context.Background(), []limit.Request{{Ops: all[:1], At: at}, {Ops: all[1:], At: at}}, out)
	return out[0].Outcomes[0].Remaining, out[1].Outcomes[0].Remaining
}

// Each limit counts in its store and in no other, whatever else a request and a slice have.
func TestLimitsPerSecondHaveTheirStore(t *testing.T) {
	for _, each := range []bool{true, false} {
		main, second := memory.New(memory.Config{}), memory.New(memory.Config{})
		s := &split{main: main, second: second}
		at := now()
		both := ops(each)
		reqs := []limit.Request{{Ops: both[:1], At: at}, {Ops: both[1:], At: at}}
		out := make([]limit.Verdict, 2)
		s.Take(t.Context(), reqs, out)
		if !out[0].Admitted || !out[1].Admitted || out[0].Outcomes[0].Remaining != 1 || out[1].Outcomes[0].Remaining != 1 {
			t.Errorf("each %v: %+v", each, out)
		}
		out = out[:1]
		s.Take(t.Context(), []limit.Request{{Ops: []limit.Op{both[1], both[0]}, At: at}}, out)
		if !out[0].Admitted || out[0].At != at || out[0].Outcomes[0].Reset <= time.Second ||
			out[0].Outcomes[1].Reset > time.Second {
			t.Errorf("each %v, of both: %+v", each, out[0])
		}
		if sec, hour := left(main, at); sec != 2 || hour != 0 {
			t.Errorf("each %v: the main store has %d and %d left", each, sec, hour)
		}
		if sec, hour := left(second, at); sec != 0 || hour != 2 {
			t.Errorf("each %v: the store of seconds has %d and %d left", each, sec, hour)
		}
	}
}

// What the store of seconds refuses takes nothing of the main one where limits are charged together, and does where
// each is charged on its own.
func TestChargesOfRefusedRequests(t *testing.T) {
	for each, want := range map[bool]int64{true: 0, false: 1} {
		main := memory.New(memory.Config{})
		s := &split{main: main, second: memory.New(memory.Config{})}
		at := now()
		out := make([]limit.Verdict, 1)
		s.Take(t.Context(), []limit.Request{{Ops: []limit.Op{{Key: limit.Key{Group: "s", Limit: "s"},
			Limit: windowOf(time.Second, 2), Cost: 2}}, At: at}}, out)
		s.Take(t.Context(), []limit.Request{{Ops: ops(each)[1:], At: at}}, out)
		s.Take(t.Context(), []limit.Request{{Ops: ops(each), At: at}}, out)
		if out[0].Err != nil || out[0].Admitted || out[0].Outcomes[0].Admitted || !out[0].Outcomes[1].Admitted {
			t.Errorf("each %v: %+v", each, out[0])
		}
		if _, hour := left(main, at); hour != want {
			t.Errorf("each %v: %d are left in the main store, want %d", each, hour, want)
		}
	}
}

// A store that fails does not open the limits of the other, and what the other admits has the error.
func TestOneOfTwoStoresFails(t *testing.T) {
	away := broken{err: errors.Join(backends.ErrUnavailable, backends.ErrNotApplied)}
	for _, each := range []bool{true, false} {
		for name, of := range map[string]func(good backends.Backend) *split{
			"the main store":       func(good backends.Backend) *split { return &split{main: away, second: good} },
			"the store of seconds": func(good backends.Backend) *split { return &split{main: good, second: away} },
		} {
			s := of(memory.New(memory.Config{}))
			at := now()
			out := make([]limit.Verdict, 1)
			for i := range 3 {
				s.Take(t.Context(), []limit.Request{{Ops: ops(each), At: at}}, out)
				if i < 2 && (!errors.Is(out[0].Err, backends.ErrUnavailable) || errors.Is(out[0].Err, backends.ErrNotApplied)) {
					t.Errorf("%s, each %v, request %d: %+v, want it unavailable, and perhaps applied", name, each, i, out[0])
				}
			}
			if out[0].Err != nil || out[0].Admitted {
				t.Errorf("%s, each %v: the other store refuses, and the verdict is %+v", name, each, out[0])
			}
		}
		out := make([]limit.Verdict, 1)
		(&split{main: away, second: away}).Take(t.Context(), []limit.Request{{Ops: ops(each)}}, out)
		if !errors.Is(out[0].Err, backends.ErrNotApplied) {
			t.Errorf("both fail, each %v: %+v", each, out[0])
		}
	}
}

// open opens two stores on servers, until the test ends.
func open(t *testing.T, first, second *testenv.RedisServer) (main, other *stack.Stack) {
	t.Helper()
	main, err := stack.New(t.Context(), first.URL(), stack.Options{Observe: true})
	if err != nil {
		t.Fatal(err)
	}
	if other, err = Divide(t.Context(), main, second.URL(), stack.Options{Observe: true}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = main.Close(), other.Local.Close() })
	return main, other
}

// With two servers each has its counters. A server that is away fails the ping by name.
func TestTwoStores(t *testing.T) {
	first, second := testenv.StartRedis(t), testenv.StartRedis(t)
	s, other := open(t, first, second)
	out := make([]limit.Verdict, 1)
	s.Backend.Take(t.Context(), []limit.Request{{Ops: ops(true)}}, out)
	if out[0].Err != nil || !out[0].Admitted || s.Caps.Atomicity != backends.PerPartition ||
		other.Caps.Name != "redis-per-second" {
		t.Errorf("%+v, %v, %s", out[0], s.Caps.Atomicity, other.Caps.Name)
	}
	for server, groups := range map[*testenv.RedisServer][2]string{first: {"h", "s"}, second: {"s", "h"}} {
		for i, group := range groups {
			keys, err := server.Client().Keys(t.Context(), "*{"+group+"}*").Result()
			if err != nil || len(keys) != 1-i {
				t.Errorf("keys of group %s: %v, %v; want them in their own server only", group, keys, err)
			}
		}
	}
	second.Kill()
	err := s.Backend.Ping(t.Context())
	if err == nil || !strings.Contains(err.Error(), "the store of limits per second") {
		t.Errorf("a ping without the second store: %v", err)
	}
	for url, want := range map[string]string{"memory://": "want a store elsewhere of the kind redis, not memory",
		"redis://h:1?layout=envoy": "want a store elsewhere of the kind redis, not redis (layout=envoy)"} {
		if _, err := Divide(t.Context(), s, url, stack.Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", url, err, want)
		}
	}
}

// Each metric is there once for both stores, or names its store.
func TestFiguresOfTwoStores(t *testing.T) {
	row := func(name string, v float64) metrics.Row {
		return metrics.Row{Name: name, Kind: metrics.IsGauge, Value: func() float64 { return v }}
	}
	labelled := metrics.Row{Name: "calls", Kind: metrics.IsCounter, Labels: metrics.Open("backend"),
		Each: func(metrics.Emit) {}}
	all := Figures([]metrics.Row{row("connections", 3), row("headgate_breaker_open", 1), labelled},
		[]metrics.Row{row("connections", 4), row("headgate_breaker_open", 0.5), labelled, row("unknown", 1)})
	var got []string
	for _, r := range all {
		if r.Value != nil {
			got = append(got, fmt.Sprint(r.Name, r.Value()))
		} else {
			got = append(got, r.Name)
		}
	}
	if text := strings.Join(got, " "); text != "connections7 headgate_breaker_open1 calls calls" {
		t.Errorf("got %s", text)
	}
}

// Alternatives are decided by one store. Where no store knows all of them the request fails, and no other.
func TestAlternativesOfTwoStores(t *testing.T) {
	second, minute := windowOf(time.Second, 1), windowOf(time.Minute, 1)
	op := func(key string, l *limit.Limit, group uint8) limit.Op {
		return limit.Op{Key: limit.Key{Group: key}, Limit: l, Cost: 1, Choice: limit.Choice{Set: 1, Group: group}}
	}
	b := &split{main: memory.New(memory.Config{}), second: memory.New(memory.Config{})}
	reqs := []limit.Request{
		{At: 1, Ops: []limit.Op{op("a", minute, 0), op("b", minute, 1)}},
		{At: 1, Ops: []limit.Op{op("a", minute, 0), op("c", second, 1)}},
		{At: 1, Ops: []limit.Op{op("a", minute, 0), op("b", minute, 1)}},
		{At: 1, Ops: []limit.Op{op("c", second, 0)}},
	}
	out := make([]limit.Verdict, len(reqs))
	b.Take(t.Context(), reqs, out)
	if !out[0].Outcomes[0].Chosen || !out[2].Outcomes[1].Chosen || !out[3].Outcomes[0].Chosen {
		t.Errorf("chosen: %+v", out)
	}
	if err := out[1].Err; !errors.Is(err, backends.ErrUnsupported) || !errors.Is(err, backends.ErrNotApplied) {
		t.Errorf("alternatives of two stores: %v", err)
	}
}
