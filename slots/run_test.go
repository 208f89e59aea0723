package slots_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-rls/headgate/slots"
	"github.com/headgate-rls/headgate/slots/internal/slotstest"
)

// Run asks for the generation, so that requests need not, and stops when nobody uses configs. It makes the windows
// ahead of now, again and again.
func TestRunWorksAheadOfRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := slotstest.NewModel()
		asked := func() int { return store.Counts()["generation"] }
		s := newScheduler(t, store, slots.Settings{Ahead: time.Minute, Chunk: 10})
		c := put(t, s, slots.NewConfig{Max: 1, SizeMs: 1000})
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { s.Run(ctx) })
		defer running.Wait()
		defer stop()
		time.Sleep(time.Millisecond)
		for range 100 { // for 37 s
			if _, err := s.Config(t.Context(), ""); err != nil {
				t.Fatal(err)
			}
			before := asked()
			if _, err := s.Config(t.Context(), ""); err != nil {
				t.Fatal(err)
			}
			if asked() != before {
				t.Fatal("a request has asked for the generation")
			}
			time.Sleep(370 * time.Millisecond)
			synctest.Wait()
			if n := asked() - before; n < 3 || n > 4 {
				t.Fatalf("the generation was asked for %d times in 370 ms, want each 100 ms", n)
			}
		}
		now := time.Now()
		windows, err := store.Windows(t.Context(), slots.SeriesOf(c, false), now.UnixMilli(),
			now.Add(40*time.Second).UnixMilli(), 100)
		if err != nil || len(windows) < 40 {
			t.Errorf("%d windows of the next 40 s are there: %v", len(windows), err)
		}
		time.Sleep(time.Minute)
		before := asked()
		time.Sleep(time.Minute)
		if n := asked() - before; n != 0 {
			t.Errorf("the generation was asked for %d times in a minute in which nobody used configs", n)
		}
	})
}
