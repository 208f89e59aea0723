package e2e

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/test/testenv"
)

// A load is clients that ask one thing after the other until told to stop.
type load struct {
	count atomic.Int64
	stop  chan struct{}
	wait  sync.WaitGroup

	mu    sync.Mutex
	wrong []string // answers that check did not like
}

// startLoad has clients ask for path through f. check says what is wrong with
// an answer. Each client makes a pause between requests, so that the machine
// has time for what the test is about.
func startLoad(t *testing.T, f *front, clients int, path string, headers []string, check func(answer) string) *load {
	t.Helper()
	l := &load{stop: make(chan struct{})}
	for range clients {
		l.wait.Go(func() { l.client(f, path, headers, check) })
	}
	t.Cleanup(func() { l.end() })
	l.More(t, 20)
	return l
}

func (l *load) client(f *front, path string, headers []string, check func(answer) string) {
	for {
		select {
		case <-l.stop:
			return
		case <-time.After(2 * time.Millisecond):
		}
		a, err := f.try(path, headers...)
		l.count.Add(1)
		wrong := ""
		if err != nil {
			wrong = err.Error()
		} else {
			wrong = check(a)
		}
		if wrong != "" {
			l.mu.Lock()
			l.wrong = append(l.wrong, fmt.Sprintf("%s: %s", time.Now().Format("15:04:05.000"), wrong))
			l.mu.Unlock()
		}
	}
}

// More waits until n more requests were answered.
func (l *load) More(t *testing.T, n int64) {
	t.Helper()
	want := l.count.Load() + n
	testenv.Eventually(t, 30*time.Second, fmt.Sprintf("answer %d more requests", n), func() string {
		if got := l.count.Load(); got < want {
			return fmt.Sprintf("%d are to come", want-got)
		}
		return ""
	})
}

func (l *load) end() {
	select {
	case <-l.stop:
	default:
		close(l.stop)
	}
	l.wait.Wait()
}

// Stop ends the load, checks that nothing was wrong, and returns how many
// requests were answered.
func (l *load) Stop(t *testing.T) int {
	t.Helper()
	l.end()
	n := len(l.wrong)
	for _, w := range l.wrong[:min(n, 10)] {
		t.Error(w)
	}
	total := int(l.count.Load())
	if n > 0 {
		t.Errorf("%d of %d answers were wrong", n, total)
	}
	return total
}
