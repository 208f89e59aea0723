package backendtest

import (
	"fmt"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/limit"
)

// A crowd sends takes from many goroutines at once.
type crowd struct {
	callers, each int // each caller's number of slices
	slice         int // requests in a slice
	req           limit.Request
}

// send returns how many were admitted on handles, used in turn.
func (c *crowd) send(handles ...backends.Backend) (admitted int64, err error) {
	var n atomic.Int64
	var failed atomic.Pointer[error]
	var all sync.WaitGroup
	gate := make(chan struct{})
	for i := range c.callers {
		all.Go(func() {
			<-gate
			for range c.each {
				m, err := c.sendSlice(handles[i%len(handles)])
				if err != nil {
					failed.Store(&err)
				}
				n.Add(m)
			}
		})
	}
	close(gate)
	all.Wait()
	if e := failed.Load(); e != nil {
		err = *e
	}
	return n.Load(), err
}

func (c *crowd) sendSlice(b backends.Backend) (admitted int64, err error) {
	ctx, cancel := calm()
	defer cancel()
	reqs, out := make([]limit.Request, c.slice), make([]limit.Verdict, c.slice)
	for i := range reqs {
		reqs[i] = c.req
	}
	b.Take(ctx, reqs, out)
	for i := range out {
		if out[i].Err != nil {
			err = out[i].Err
		} else if out[i].Admitted {
			admitted++
		}
	}
	return admitted, err
}

// instants are those a crowd uses: a given one and, where the store has a
// clock, that one. Windows are long enough for neither to matter.
func (e *env) instants() []limit.Instant {
	if e.s.Caps.ServerClock {
		return []limit.Instant{e.start(), 0}
	}
	return []limit.Instant{e.start()}
}

// longLimit is one whose window neither ends nor refills during a check.
func (e *env) longLimit(a limit.Algorithm, most int64) *limit.Limit {
	return e.limit(a, most, (limit.MaxWindow / 2).Truncate(e.precision()))
}

// checkParallelTakes: of many parallel takes exactly Max are admitted.
func checkParallelTakes(e *env) {
	e.open()
	for _, a := range e.algorithms() {
		for _, at := range e.instants() {
			for _, slice := range []int{1, 7} {
				l := e.longLimit(a, 100)
				c := crowd{callers: 16, each: e.times(7, 14) / slice, slice: slice}
				c.req = request(at, e.key("parallel"+strconv.Itoa(slice), strconv.FormatInt(int64(at), 10), a), l, 1)
				n, err := c.send(e.b)
				if want := min(l.Capacity(), int64(c.callers*c.each*slice)); n != want || err != nil {
					e.Errorf("%v at %d in slices of %d: %d admitted, want %d; error %v", l, at, slice, n, want, err)
				}
			}
		}
	}
}

// checkLastUnit: with all but one unit used, of many parallel takes one is admitted.
func checkLastUnit(e *env) {
	e.open()
	e.lastUnit("last", e.b)
}

func (e *env) lastUnit(group string, handles ...backends.Backend) {
	e.Helper()
	for _, a := range e.algorithms() {
		for _, at := range e.instants() {
			for round := range e.times(10, 25) / 5 {
				l, k := e.longLimit(a, 10), e.key(group+strconv.Itoa(round), strconv.FormatInt(int64(at), 10), a)
				e.take(request(at, k, l, l.Capacity()-1))
				c := crowd{callers: e.times(40, 100), each: 1, slice: 1, req: request(at, k, l, 1)}
				if n, err := c.send(handles...); n != 1 || err != nil {
					e.Errorf("%v at %d: %d admitted by %d takes for one unit, error %v", l, at, n, c.callers, err)
				}
			}
		}
	}
}

// checkCrossedKeys: requests over the same keys in opposite order neither
// deadlock nor record half of what they refuse.
func checkCrossedKeys(e *env) {
	e.open()
	now := e.start()
	for i, a := range e.algorithms() {
		for j, other := range e.algorithms() {
			groups := []string{"", "elsewhere"}
			if e.s.Rounds < fewRounds { // one of them
				groups = groups[(i+j)%2:][:1]
			}
			for _, group := range groups {
				e.cross(now, a, other, group)
			}
		}
	}
}

func (e *env) cross(now limit.Instant, a, other limit.Algorithm, group string) {
	roomy, tight := e.longLimit(a, 50), e.longLimit(other, 20)
	x := limit.Op{Key: e.key("cross"+group+other.String(), "roomy", a), Limit: roomy, Cost: 1}
	y := limit.Op{Key: limit.Key{Group: x.Key.Group + group, Limit: "tight/" + a.String() + other.String()},
		Limit: tight, Cost: 1}
	crowds := []crowd{
		{callers: 8, each: 3, slice: 2, req: limit.Request{At: now, Ops: []limit.Op{x, y}}},
		{callers: 8, each: 3, slice: 2, req: limit.Request{At: now, Ops: []limit.Op{y, x}}},
	}
	var admitted atomic.Int64
	var all sync.WaitGroup
	var errs [2]error
	for i := range crowds {
		all.Go(func() {
			n, err := crowds[i].send(e.b)
			admitted.Add(n)
			errs[i] = err
		})
	}
	all.Wait()
	n, name := admitted.Load(), fmt.Sprintf("%v with %v in group %q", a, other, group)
	if errs[0] != nil || errs[1] != nil {
		e.Errorf("%s: errors %v, %v", name, errs[0], errs[1])
	}
	exact := group == "" || e.s.Caps.Atomicity == backends.Whole
	if n > tight.Capacity() || n < tight.Capacity() && exact {
		e.Errorf("%s: %d of %d admitted", name, n, tight.Capacity())
	}
	e.settle()
	for _, op := range []limit.Op{x, y} {
		if left := e.takeOne(now, op.Key, op.Limit, 0).Remaining; left != op.Limit.Capacity()-n {
			e.Errorf("%s: %d admitted, yet %d of %d are left", name, n, left, op.Limit.Capacity())
		}
	}
}

// checkTwoHandles: handles on one store see each other's takes.
func checkTwoHandles(e *env) {
	if !e.s.Shared {
		e.Skip("each handle has a store of its own")
	}
	e.open()
	other := e.openAnother()
	e.lastUnit("handles", e.b, other)
}

// checkCloseLeavesNothing: Close ends every goroutine that Open and the calls
// after it began.
func checkCloseLeavesNothing(e *env) {
	before := runtime.NumGoroutine()
	b := e.s.Open(e.TB)
	a := e.algorithms()[0]
	c := crowd{callers: 20, each: 5, slice: 2, req: request(e.start(), e.key("", "closing", a), e.longLimit(a, 10), 1)}
	if _, err := c.send(b); err != nil {
		e.Error(err)
	}
	if err := b.Close(); err != nil {
		e.Errorf("Close: %v", err)
	}
	e.wantGoroutines(before)
}

// wantGoroutines waits until no more than before are left.
func (e *env) wantGoroutines(before int) {
	e.Helper()
	for range 60 {
		if runtime.NumGoroutine() <= before {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	buf := make([]byte, 1<<16)
	buf = buf[:runtime.Stack(buf, true)]
	e.Errorf("%d goroutines are left, %d before:\n%s", runtime.NumGoroutine(), before, buf)
}
