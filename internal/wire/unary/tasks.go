package unary

import (
	"sync"

	"github.com/headgate-rls/headgate/internal/kit/background"
)

// tasks are the goroutines of a server, for Close to wait for.
type tasks struct {
	panics *background.Reporter

	mu      sync.Mutex
	closed  bool
	running sync.WaitGroup
}

// enter counts a task in, and reports false when the server is closed. A caller that
// enters must leave.
func (t *tasks) enter() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false
	}
	t.running.Add(1)
	return true
}

func (t *tasks) leave() { t.running.Done() }

// start runs f in a goroutine, unless the server is closed.
func (t *tasks) start(where string, f func()) {
	if t.enter() {
		t.run(where, f)
	}
}

// run runs f in a goroutine, for a task that has entered.
func (t *tasks) run(where string, f func()) {
	t.panics.Go(where, func() {
		defer t.leave()
		f()
	})
}

// close lets no more tasks enter.
func (t *tasks) close() {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
}

// ended returns a channel that is closed when all tasks have left.
func (t *tasks) ended() <-chan struct{} {
	done := make(chan struct{})
	t.panics.Go("close", func() {
		defer close(done)
		t.running.Wait()
	})
	return done
}
