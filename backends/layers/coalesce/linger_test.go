package coalesce

import (
	"context"
	"sync"
	"testing"
	"time"
)

// TestCallersWhoComeBackShareOneSlice: callers who ask again as soon as they are answered are all
// in one slice, and do not take turns in halves.
func TestCallersWhoComeBackShareOneSlice(t *testing.T) {
	const callers, inARow = 16, 5
	s := newStore()
	s.delay = 4 * time.Millisecond
	b := New(s, Config{InFlight: 1})
	ctx, stop := context.WithTimeout(context.Background(), 30*time.Second)
	defer stop()
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for ctx.Err() == nil {
				reqs, out := ask(1)
				b.Take(context.Background(), reqs, out)
			}
		})
	}
	for !s.full(callers, inARow) && ctx.Err() == nil {
		time.Sleep(10 * time.Millisecond)
	}
	if ctx.Err() != nil {
		t.Errorf("no %d slices of all %d callers in a row; slices of %d", inARow, callers, s.lengths())
	}
	stop()
	wg.Wait()
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

// full reports whether so many slices in a row had n requests.
func (s *store) full(n, inARow int) bool {
	row := 0
	for _, length := range s.lengths() {
		row++
		if length != n {
			row = 0
		}
		if row == inARow {
			return true
		}
	}
	return false
}

func (s *store) lengths() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]int(nil), s.slices...)
}

func TestLingerEndsWhereNobodyComesBack(t *testing.T) {
	var g linger
	lingers := func(slices, come int) (n int) {
		for range slices {
			if g.begin(8) {
				n++
				g.came(come)
				g.end(8)
			}
		}
		return n
	}
	if n := lingers(100, 8); n != 100 {
		t.Errorf("lingered after %d of 100 slices whose callers came back", n)
	}
	if n := lingers(100, 4); n != 100 {
		t.Errorf("lingered after %d of 100 slices of whose callers a half came back", n)
	}
	if n := lingers(10*(maxSkips+1), 3); n > 20 {
		t.Errorf("lingered after %d of %d slices few of whose callers came back", n, 10*(maxSkips+1))
	}
	if n := lingers(maxSkips+100, 8); n < 100 {
		t.Errorf("lingered after %d of %d slices when callers came back again", n, maxSkips+100)
	}
}

func TestOnlyOneWorkerLingers(t *testing.T) {
	var g linger
	if !g.begin(2) {
		t.Fatal("nobody lingers")
	}
	if g.begin(2) {
		t.Error("two linger")
	}
	g.came(5)
	g.end(2)
	if !g.begin(2) {
		t.Error("the end of one linger is not the begin of another")
	}
	if g.begin(0) {
		t.Error("lingers for nobody")
	}
}
