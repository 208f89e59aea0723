package headgate

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/headgate-rls/headgate/internal/kit/metrics"
)

// TestGateClosesWhenAllHaveLeft: many goroutines come and go by all lanes while the gate is closed. It waits for those
// inside, lets nobody in afterwards, and ends although callers do not stop coming.
func TestGateClosesWhenAllHaveLeft(t *testing.T) {
	for range 20 {
		g := gate{drained: make(chan struct{})}
		var inside, over atomic.Int64
		var running sync.WaitGroup
		stop := make(chan struct{})
		begun := make(chan struct{}, 4)
		for i := range 4 {
			running.Go(func() {
				for n := 0; ; n++ {
					if lane := (i + n) % metrics.MaxLanes; g.enter(lane) {
						inside.Add(1)
						over.Add(g.late())
						inside.Add(-1)
						g.leave(lane)
					}
					if n == 10 {
						begun <- struct{}{}
					}
					select {
					case <-stop:
						return
					default:
					}
				}
			})
		}
		<-begun
		var closers sync.WaitGroup
		for range 2 {
			closers.Go(func() { <-g.close() })
		}
		closers.Wait()
		if n := inside.Load(); n != 0 {
			t.Fatalf("the gate is closed, and %d are inside", n)
		}
		if g.enter(0) {
			t.Fatal("a closed gate lets a caller in")
		}
		close(stop)
		running.Wait()
		if over.Load() != 0 {
			t.Fatalf("%d were inside after the gate had closed", over.Load())
		}
	}
}

// late is 1 if the gate reports that no caller is inside.
func (g *gate) late() int64 {
	select {
	case <-g.drained:
		return 1
	default:
		return 0
	}
}

// TestGateWaits: a closed gate drains when the last caller leaves, although others are rejected meanwhile.
func TestGateWaits(t *testing.T) {
	g := gate{drained: make(chan struct{})}
	if !g.enter(1) || !g.enter(2) || !g.enter(2) {
		t.Fatal("the gate is not open")
	}
	drained := g.close()
	for i, leave := range []func(){func() {}, func() { g.leave(2) }, func() { g.enter(3) }, func() { g.leave(1) }} {
		leave()
		if g.late() != 0 {
			t.Fatalf("the gate does not wait any more after step %d", i)
		}
	}
	g.leave(2)
	<-drained
}

// TestCallsAreCountedExactly: callers on several cores lose no count, while rules change and when the limiter closes.
func TestCallsAreCountedExactly(t *testing.T) {
	sink := &rows{}
	rules := func(n int) Rules {
		return YAML("r.yaml", fmt.Sprintf("domain: d\ndescriptors:\n  - {key: user, rate_limit: {unit: hour, "+
			"requests_per_unit: %d}}\n  - {key: two, rate_limit: {unit: hour, requests_per_unit: 1000000000}}\n", 1e9+n))
	}
	l, err := Open(t.Context(), Options{Rules: []Rules{rules(0)}, Metrics: sink})
	if err != nil {
		t.Fatal(err)
	}
	var alone, both atomic.Int64
	var running sync.WaitGroup
	for i := range 8 {
		running.Go(func() {
			for n := 0; ; n++ {
				list := []Descriptor{Describe("user", fmt.Sprint(n%10))}
				count := &alone
				if n%16 == i {
					list, count = append(list, Describe("two", "x")), &both
				}
				d, err := l.Check(t.Context(), "d", list...)
				if errors.Is(err, ErrClosed) {
					return
				}
				count.Add(1)
				if err != nil || !d.Allowed {
					t.Errorf("%+v %v", d, err)
				}
			}
		})
	}
	for n := 0; alone.Load() < 150_000; n++ { // enough for lanes
		if err := l.SetRules(rules(n)); err != nil {
			t.Error(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	got := sink.sums()
	running.Wait()
	calls, pairs := alone.Load()+both.Load(), both.Load()
	for name, want := range map[string]int64{
		"headgate_decisions_total": calls + pairs, "headgate_calls_matched_total": calls,
		"headgate_descriptors_matched_total": calls + pairs, "headgate_descriptors_unmatched_total": 0,
	} {
		if got[name] != want {
			t.Errorf("%s is %d, want %d", name, got[name], want)
		}
	}
}

// rows are the metrics of a limiter.
type rows struct{ list []metrics.Row }

func (r *rows) Register(list ...metrics.Row) (func(), error) {
	r.list = list
	return func() {}, nil
}

// sums are the sums of all series of each metric with labels.
func (r *rows) sums() map[string]int64 {
	sums := map[string]int64{}
	for _, row := range r.list {
		if row.Each != nil {
			row.Each(func(_ []string, v float64, _ *metrics.Counts) { sums[row.Name] += int64(v) })
		}
	}
	return sums
}
