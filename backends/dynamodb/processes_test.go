package dynamodb

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/test/testenv"
)

// A crowd sends slices of one key through several backends, which know nothing of each other, as
// several processes do: one slice at a time each, as the layers above do.
type crowd struct {
	mu                 sync.Mutex
	admitted, unknown  int64
	refused, notReally int64
}

// send sends slices of n requests until ctx ends.
func (c *crowd) send(ctx context.Context, b *Backend, l *limit.Limit, n int) {
	reqs, out := make([]limit.Request, n), make([]limit.Verdict, n)
	for i := range reqs {
		reqs[i] = one(l, "crowd", 1)
	}
	for ctx.Err() == nil {
		call, cancel := context.WithTimeout(context.Background(), b.conf.Timeout)
		b.Take(call, reqs, out)
		cancel()
		c.mu.Lock()
		for i := range out {
			switch err := out[i].Err; {
			case err == nil && out[i].Admitted:
				c.admitted++
			case err == nil:
				c.refused++
			case errors.Is(err, backends.ErrNotApplied):
				c.notReally++
			default:
				c.unknown++
			}
		}
		c.mu.Unlock()
	}
}

func (c *crowd) progress() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.admitted
}

// runCrowd has three backends send until the test is done with them.
func runCrowd(t *testing.T, url string, l *limit.Limit, during func(c *crowd)) *crowd {
	t.Helper()
	c := &crowd{}
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for range 3 {
		b := open(t, url)
		all.Go(func() { c.send(ctx, b, l, 20) })
	}
	during(c)
	cancel()
	all.Wait()
	return c
}

// TestProcessesShareAKey: three who write to one key all the time admit as much as there is, and hardly
// ever give up.
func TestProcessesShareAKey(t *testing.T) {
	l := limit.MustNew(limit.Spec{Algorithm: limit.FixedWindow, Max: 1500, Window: time.Hour})
	url := newTable(t)
	c := runCrowd(t, url, l, func(c *crowd) {
		testenv.Eventually(t, time.Minute, "use up the limit", func() string {
			c.mu.Lock()
			defer c.mu.Unlock()
			if c.admitted < l.Max() || c.refused == 0 {
				return "units are left"
			}
			return ""
		})
	})
	t.Logf("%d admitted, %d refused, %d not applied, %d unknown", c.admitted, c.refused, c.notReally, c.unknown)
	if c.admitted != l.Max() || c.unknown > 0 {
		t.Errorf("%d were admitted of %d, and %d unknown", c.admitted, l.Max(), c.unknown)
	}
}

// TestChaos: while DynamoDB is stopped, killed and started again, the store records each admitted
// request, and none that was reported as not applied.
func TestChaos(t *testing.T) {
	server := testenv.StartDynamoDB(t, testenv.InFiles)
	url := newTableAt(t, server.URL) + "&timeout=400ms"
	moves := func(c *crowd, what string) {
		before := c.progress()
		testenv.Eventually(t, time.Minute, "go on "+what, func() string {
			if c.progress() < before+100 {
				return "nothing is admitted"
			}
			return ""
		})
	}
	c := runCrowd(t, url, perHour, func(c *crowd) {
		moves(c, "at first")
		for range 3 {
			server.Pause()
			time.Sleep(600 * time.Millisecond) // longer than a call
			server.Resume()
			moves(c, "after a stop")
		}
		server.Kill()
		server.Restart()
		moves(c, "after a crash")
	})
	recorded := used(t, open(t, newURL(t, url)), "crowd")
	t.Logf("%d admitted, %d recorded, %d not applied, %d unknown", c.admitted, recorded, c.notReally, c.unknown)
	if recorded < c.admitted || recorded > c.admitted+c.unknown {
		t.Errorf("%d units are recorded, %d were admitted, and of %d nobody knows", recorded, c.admitted, c.unknown)
	}
	if c.notReally+c.unknown == 0 {
		t.Error("no call has failed: there was no chaos")
	}
}

// newURL is the URL of the same table with the time-out of tests.
func newURL(t *testing.T, url string) string {
	c, err := Parse(url)
	check(t, err)
	return testenv.DynamoTable(c.Endpoint, c.Table)
}
