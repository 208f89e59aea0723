package slots

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// F4: in a process, callers that wait for a window get it in the order they come,
// a few at a time, and give up when their time is over.
func TestClaimsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const callers, atOnce = 9, 2
		c, k := newClaims(atOnce), WindowKey{StartMs: 1}
		soon := func() time.Time { return time.Now().Add(heldLongest) }
		var mu sync.Mutex
		var order []int
		var now, most int
		enters := func(i int) {
			mu.Lock()
			defer mu.Unlock()
			order = append(order, i)
			now++
			most = max(most, now)
		}
		leaves := func() {
			mu.Lock()
			defer mu.Unlock()
			now--
		}
		for i := range callers {
			go func() {
				if !c.take(t.Context(), k, soon()) {
					t.Errorf("caller %d did not get its turn", i)
					return
				}
				enters(i)
				time.Sleep(5 * time.Millisecond)
				leaves()
				c.release(k)
			}()
			synctest.Wait()
			time.Sleep(time.Microsecond)
		}
		if c.take(t.Context(), k, time.Time{}) || !c.has(k) || c.has(WindowKey{StartMs: 2}) {
			t.Error("who does not wait got a window that others have")
		}
		began := time.Now()
		if c.take(t.Context(), k, began.Add(3*time.Millisecond)) || time.Since(began) != 3*time.Millisecond {
			t.Errorf("waited for %v, not for 3 ms", time.Since(began))
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if c.take(gone, k, soon()) {
			t.Error("got a turn for a caller that is gone")
		}
		time.Sleep(heldLongest)
		mu.Lock()
		defer mu.Unlock()
		if want := []int{0, 1, 2, 3, 4, 5, 6, 7, 8}; !slices.Equal(order, want) || most != atOnce {
			t.Errorf("order %v, %d at once", order, most)
		}
		if c.has(k) || !c.take(t.Context(), k, time.Time{}) {
			t.Error("the window is still held")
		}
	})
}
