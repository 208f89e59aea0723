package backendtest

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/limit"
)

// A throng is callers that acquire and release leases of one key as fast as
// they can, each until it has been admitted so many times.
type throng struct {
	key     limit.Key
	limit   *limit.Limit
	at      func() limit.Instant
	owner   string
	callers int
	each    int // admissions of each caller

	inside   atomic.Int64 // callers that hold a lease
	most     atomic.Int64 // of them at once
	admitted atomic.Int64
}

// run ends when every caller has had its share or one of them failed. It is an
// error if one waits longer than patience allows.
func (t *throng) run(ctx context.Context, handles ...backends.Backend) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 3*patience, fmt.Errorf("a caller waits for ever"))
	defer cancel()
	errs := make(chan error, t.callers)
	var all sync.WaitGroup
	for i := range t.callers {
		all.Go(func() {
			if err := t.call(ctx, handles[i%len(handles)], t.owner+strconv.Itoa(i)+"/"); err != nil {
				errs <- err
				cancel()
			}
		})
	}
	all.Wait()
	close(errs)
	return <-errs // the first; nil means none
}

func (t *throng) call(ctx context.Context, b backends.Backend, name string) error {
	reqs, out := make([]limit.Request, 1), make([]limit.Verdict, 1)
	take := func(o leaseOp) error {
		reqs[0] = o.request(t.at(), t.key, t.limit)
		b.Take(ctx, reqs, out)
		if out[0].Err != nil && context.Cause(ctx) != nil {
			return context.Cause(ctx)
		}
		return out[0].Err
	}
	for done := 0; done < t.each; {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		holder := name + strconv.Itoa(done)
		if err := take(acquire(holder)); err != nil {
			return err
		}
		if !out[0].Admitted {
			runtime.Gosched()
			continue
		}
		done++
		t.hold()
		if err := take(release(holder)); err != nil {
			return err
		}
	}
	return nil
}

// hold is what a caller does with its lease: it keeps it for long enough that a
// store that grants too many is found out.
func (t *throng) hold() {
	t.admitted.Add(1)
	n := t.inside.Add(1)
	for most := t.most.Load(); n > most && !t.most.CompareAndSwap(most, n); {
		most = t.most.Load()
	}
	time.Sleep(100 * time.Microsecond)
	t.inside.Add(-1)
}
