package backendtest

import (
	"context"
	"runtime"
	"slices"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/limit"
)

// lateness is how much later than its deadline a call may return.
const lateness = 50 * time.Millisecond

// checkFrozen: a silent store costs the deadline and no more, and works again
// when it is back.
func checkFrozen(e *env) {
	if e.s.Faults == nil || e.s.Faults.Freeze == nil {
		e.Skip("Suite.Faults.Freeze is not given")
	}
	before := runtime.NumGoroutine()
	b := e.s.Open(e.TB)
	e.b = b
	a := e.algorithms()[0]
	req := request(e.start(), e.key("", "frozen", a), e.longLimit(a, 1000), 1)
	e.take(req)
	e.s.Faults.Freeze(e.TB)
	thawed := false
	defer func() {
		if !thawed {
			e.s.Faults.Thaw(e.TB)
		}
	}()
	e.meetDeadlines(req)
	thawed = true
	e.s.Faults.Thaw(e.TB)
	e.wantRecovery(req)
	if err := b.Close(); err != nil {
		e.Errorf("Close: %v", err)
	}
	e.wantGoroutines(before)
}

// meetDeadlines calls the frozen store with deadlines. One call in a few may
// be late by what a busy machine takes, not by more.
func (e *env) meetDeadlines(req limit.Request) {
	const budget = 100 * time.Millisecond
	var late []time.Duration
	for range 5 {
		reqs, out := []limit.Request{req, req}, make([]limit.Verdict, 2)
		ctx, cancel := context.WithTimeout(context.Background(), budget)
		began := time.Now()
		e.b.Take(ctx, reqs, out)
		late = append(late, time.Since(began)-budget)
		cancel()
		for i := range out {
			e.wantError("frozen store", out[i].Err, backends.ErrUnavailable)
		}
		// They are the caller's again: the race detector sees who disagrees.
		reqs[0], reqs[1], out[0], out[1] = limit.Request{}, limit.Request{}, limit.Verdict{}, limit.Verdict{}
	}
	for name, call := range map[string]func(ctx context.Context) error{
		"Ping":   e.b.Ping,
		"Forget": func(ctx context.Context) error { return e.b.Forget(ctx, []limit.Key{req.Ops[0].Key}) },
	} {
		ctx, cancel := context.WithTimeout(context.Background(), budget)
		began := time.Now()
		e.wantError(name+" of a frozen store", call(ctx), backends.ErrUnavailable)
		late = append(late, time.Since(began)-budget)
		cancel()
	}
	slices.Sort(late)
	if late[len(late)/2] > lateness || late[len(late)-1] > 10*lateness {
		e.Errorf("calls returned later than their deadline by %v", late)
	}
}

// wantRecovery wants takes to work again within five seconds, by themselves.
func (e *env) wantRecovery(req limit.Request) {
	e.Helper()
	began := time.Now()
	out := make([]limit.Verdict, 1)
	for time.Since(began) < 5*time.Second {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		e.b.Take(ctx, []limit.Request{req}, out)
		err := out[0].Err
		if err == nil {
			if err = e.b.Ping(ctx); err != nil {
				e.Errorf("Take works, yet Ping: %v", err)
			}
			cancel()
			return
		}
		cancel()
		e.wantError("while the store comes back", err, backends.ErrUnavailable)
		time.Sleep(20 * time.Millisecond)
	}
	e.Errorf("the store is back, and five seconds later Take still fails: %v", out[0].Err)
}

// checkKilled: calls of a dead store fail quickly, and a new one is found.
func checkKilled(e *env) {
	if e.s.Faults == nil || e.s.Faults.Kill == nil {
		e.Skip("Suite.Faults.Kill is not given")
	}
	before := runtime.NumGoroutine()
	b := e.s.Open(e.TB)
	e.b = b
	a := e.algorithms()[0]
	req := request(e.start(), e.key("", "killed", a), e.longLimit(a, 1000), 1)
	e.take(req)
	e.s.Faults.Kill(e.TB)
	for range 5 {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		began, out := time.Now(), make([]limit.Verdict, 1)
		b.Take(ctx, []limit.Request{req}, out)
		e.wantError("dead store", out[0].Err, backends.ErrUnavailable)
		e.wantError("Ping of a dead store", b.Ping(ctx), backends.ErrUnavailable)
		if d := time.Since(began); d > 2*time.Second+lateness {
			e.Errorf("calls of a dead store failed after %v", d)
		}
		cancel()
	}
	e.s.Faults.Restart(e.TB)
	e.wantRecovery(req)
	if err := b.Close(); err != nil {
		e.Errorf("Close: %v", err)
	}
	e.wantGoroutines(before)
}
