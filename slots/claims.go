package slots

import (
	"context"
	"sync"
	"time"
)

// claims are the windows that searches of this process are claiming.
type claims struct {
	atOnce int
	mu     sync.Mutex
	held   map[WindowKey]*claimants
}

// claimants are the searches that claim a window or wait for it.
type claimants struct {
	turns chan struct{} // as many as are claiming
	n     int
}

// newClaims has atOnce of those that wait for a window claim it at the same time.
func newClaims(atOnce int) *claims {
	return &claims{atOnce: atOnce, held: make(map[WindowKey]*claimants)}
}

// take makes the window the caller's, unless another has it. Callers that would
// wait, until an instant that is not zero, get it in the order they come, atOnce
// at a time; ok is false for one whose turn has not come by then.
func (c *claims) take(ctx context.Context, k WindowKey, until time.Time) (ok bool) {
	c.mu.Lock()
	w := c.held[k]
	if w != nil && until.IsZero() {
		c.mu.Unlock()
		return false
	}
	if w == nil {
		w = &claimants{turns: make(chan struct{}, c.atOnce)}
		c.held[k] = w
	}
	w.n++
	c.mu.Unlock()
	select {
	case w.turns <- struct{}{}:
		return true
	default:
	}
	limit := time.NewTimer(time.Until(until))
	defer limit.Stop()
	select {
	case w.turns <- struct{}{}:
		return true
	case <-limit.C:
	case <-ctx.Done():
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leave(k, w)
	return false
}

func (c *claims) release(k WindowKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.held[k]
	<-w.turns // there is one: the caller's
	c.leave(k, w)
}

// leave is called with mu held.
func (c *claims) leave(k WindowKey, w *claimants) {
	if w.n--; w.n == 0 {
		delete(c.held, k)
	}
}

func (c *claims) has(k WindowKey) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.held[k] != nil
}
