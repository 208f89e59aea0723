package backendtest

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/limit"
)

// checkCaps: the promises make sense in themselves.
func checkCaps(e *env) {
	c := &e.s.Caps
	if c.Name == "" {
		e.Error("no name")
	}
	if c.MaxOps < 2 {
		e.Errorf("MaxOps is %d, want 2 at least", c.MaxOps)
	}
	if c.Precision < time.Microsecond || c.Precision%time.Microsecond != 0 {
		e.Errorf("precision %v is not in whole microseconds", c.Precision)
	}
	for a, ac := range c.Algorithms {
		if ac.MaxUnits < 1 || c.Local != (ac.Trips == 0) {
			e.Errorf("%v: %+v, with Local %v", a, ac, c.Local)
		}
	}
	if n := c.Algorithms[limit.Concurrency].MaxUnits; n > limit.MaxInFlight {
		e.Errorf("%d requests in flight, more than any limit has", n)
	}
}

// A badRequest is what a backend has to turn down, and how.
type badRequest struct {
	name string
	req  limit.Request
	want error
}

func (e *env) badRequests(now limit.Instant) []badRequest {
	a := e.algorithms()[0]
	l, k := e.limit(a, 5, time.Hour), e.key("", "bad", a)
	ok := limit.Op{Key: k, Limit: l, Cost: 1}
	var many []limit.Op
	for i := range e.s.Caps.MaxOps + 1 {
		op := ok
		op.Key.Limit += strconv.Itoa(i)
		many = append(many, op)
	}
	long, longGroup := strings.Repeat("x", backends.MaxKeyLen+1), strings.Repeat("x", e.s.Caps.MaxGroupLen()+1)
	bad := []badRequest{
		{"no ops", limit.Request{At: now}, backends.ErrInvalid},
		{"too many ops", limit.Request{At: now, Ops: many}, backends.ErrInvalid},
		{"no limit", limit.Request{At: now, Ops: []limit.Op{ok, {Key: k}}}, backends.ErrInvalid},
		{"long group", limit.Request{At: now, Ops: []limit.Op{ok, {Key: limit.Key{Group: longGroup}, Limit: l}}},
			backends.ErrInvalid},
		{"long limit", limit.Request{At: now, Ops: []limit.Op{{Key: limit.Key{Group: e.prefix, Limit: long}, Limit: l}}},
			backends.ErrInvalid},
	}
	if !e.s.Caps.ServerClock {
		bad = append(bad, badRequest{"no instant", limit.Request{Ops: []limit.Op{ok}}, backends.ErrInvalid})
	}
	if _, ok := e.s.Caps.Algorithms[limit.Concurrency]; ok {
		l, k := e.inFlight(5, time.Hour), e.key("", "bad", limit.Concurrency)
		bad = append(bad,
			badRequest{"lease without a holder", acquire("").request(now, k, l), backends.ErrInvalid},
			badRequest{"long holder", acquire(long[:limit.MaxHolderLen+1]).request(now, k, l), backends.ErrInvalid},
			badRequest{"long owner", leaseOp{-1, long[:limit.MaxHolderLen+1], limit.EndOwner}.request(now, k, l),
				backends.ErrInvalid})
	}
	if e.s.Caps.PlainWindows {
		choice := ok
		choice.Choice.Set = 1
		req := limit.Request{At: now, Ops: []limit.Op{choice}}
		bad = append(bad, badRequest{"alternatives", req, backends.ErrUnsupported})
	} else {
		back := limit.Op{Key: k, Limit: l, Cost: -1, AsOf: now, Choice: limit.Choice{Set: 1}}
		req := limit.Request{At: now, Ops: []limit.Op{back}}
		bad = append(bad, badRequest{"correction as an alternative", req, backends.ErrInvalid})
	}
	for _, a := range limit.AllAlgorithms() {
		ac, supported := e.s.Caps.Algorithms[a]
		spec := limit.Spec{Algorithm: a, Max: ac.MaxUnits + 1, Window: limit.MaxWindow}
		if !supported {
			spec.Max = 1
		}
		if l, err := limit.New(spec); err == nil {
			ops := []limit.Op{ok, {Key: e.key("", "bad", a), Limit: l, Cost: 1, Holder: "h"}}
			bad = append(bad, badRequest{"unsupported " + l.String(), limit.Request{At: now, Ops: ops}, backends.ErrUnsupported})
		}
	}
	return bad
}

// checkOverCaps: what Caps denies is an error, records nothing, and does not
// trouble the request's neighbours.
func checkOverCaps(e *env) {
	e.open()
	now := e.start()
	a := e.algorithms()[0]
	l := e.limit(a, 1000, time.Hour)
	bad := e.badRequests(now)
	m, k := newModel(), e.key("", "good", a)
	var reqs []limit.Request
	for _, b := range bad {
		reqs = append(reqs, request(now, k, l, 1), b.req)
	}
	reqs = append(reqs, request(now, k, l, 1))
	ctx, cancel := calm()
	defer cancel()
	out := make([]limit.Verdict, len(reqs))
	e.b.Take(ctx, reqs, out)
	for i := range reqs {
		if i%2 == 1 {
			e.wantError(bad[i/2].name, out[i].Err, bad[i/2].want, backends.ErrNotApplied)
			continue
		}
		want := m.take(&reqs[i], now)
		if d := differ(&out[i], &want); d != "" {
			e.Errorf("request %d, beside bad ones: %s", i, d)
		}
	}
	for _, b := range bad { // alone in their slice
		out := make([]limit.Verdict, 1)
		e.b.Take(ctx, []limit.Request{b.req}, out)
		e.wantError(b.name+", alone", out[0].Err, b.want, backends.ErrNotApplied)
	}
	left := e.takeOne(now, e.key("", "bad", a), e.limit(a, 5, time.Hour), 0)
	if left.Remaining != min(5, e.s.Caps.Algorithms[a].MaxUnits) {
		e.Errorf("a bad request left a trace: %+v", left)
	}
	e.largest(now, a, l)
}

// largest sends a request of exactly MaxOps.
func (e *env) largest(now limit.Instant, a limit.Algorithm, l *limit.Limit) {
	req := limit.Request{At: now}
	for i := range e.s.Caps.MaxOps {
		req.Ops = append(req.Ops, limit.Op{Key: e.key("", "largest"+strconv.Itoa(i), a), Limit: l, Cost: 1})
	}
	want, got := newModel().take(&req, now), e.take(req)
	if d := differ(&got, &want); d != "" {
		e.Errorf("%d ops: %s", len(req.Ops), d)
	}
}

// wantError checks that err is each of want.
func (e *env) wantError(what string, err error, want ...error) {
	e.Helper()
	for _, w := range want {
		if !errors.Is(err, w) {
			e.Errorf("%s: error %v, want it to be %q", what, err, w)
		}
	}
}

// checkCancelled: a context that is already over is answered at once, and
// without effect. A Local backend may as well decide.
func checkCancelled(e *env) {
	e.open()
	now := e.start()
	a := e.algorithms()[0]
	l := e.limit(a, 10, time.Hour)
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	expired, cancel := context.WithTimeout(context.Background(), -time.Second)
	defer cancel()
	for name, ctx := range map[string]context.Context{"cancelled": cancelled, "expired": expired} {
		k := e.key("", name, a)
		reqs := []limit.Request{request(now, k, l, 1), request(now, k, l, 1)}
		out := make([]limit.Verdict, len(reqs))
		began := time.Now()
		e.b.Take(ctx, reqs, out)
		if d := time.Since(began); d > time.Second {
			e.Errorf("%s: Take returned after %v", name, d)
		}
		used := int64(0)
		for i := range out {
			if out[i].Err == nil && e.s.Caps.Local {
				used++
				continue
			}
			e.wantError(name, out[i].Err, backends.ErrUnavailable, backends.ErrNotApplied)
		}
		if left := e.takeOne(now, k, l, 0); left.Remaining != l.Capacity()-used {
			e.Errorf("%s: not applied, yet %d of %d are left", name, left.Remaining, l.Capacity())
		}
		if err := e.b.Forget(ctx, []limit.Key{k}); err != nil {
			e.wantError("Forget, "+name, err, backends.ErrUnavailable)
		} else if !e.s.Caps.Local {
			e.Errorf("Forget, %s: no error", name)
		}
	}
}

// checkPing: a store that works says so.
func checkPing(e *env) {
	e.open()
	ctx, cancel := calm()
	defer cancel()
	if err := e.b.Ping(ctx); err != nil {
		e.Errorf("Ping: %v", err)
	}
	cancel()
	if err := e.b.Ping(ctx); err != nil {
		e.wantError("Ping, cancelled", err, backends.ErrUnavailable)
	} else if !e.s.Caps.Local {
		e.Error("Ping, cancelled: no error")
	}
}

// checkTrips counts the round trips of an uncontended Take. To acquire a lease
// is one Take, and so is to release it.
func checkTrips(e *env) {
	if e.s.Trips == nil {
		e.Skip("Suite.Trips is not given")
	}
	e.open()
	now := e.start()
	most := 0
	var mixed []limit.Request
	for _, a := range e.algorithms() {
		most = max(most, e.s.Caps.Algorithms[a].Trips)
		l := e.limit(a, 100, time.Hour)
		e.takeOne(now, e.key("", "warm", a), l, 1)
		for i := range 5 {
			e.wantTrips(request(now, e.key(strconv.Itoa(i%2), "trips", a), l, 1))
		}
		for range 12 { // four algorithms, and as many for leases, are one call
			mixed = append(mixed, request(now, e.key("", "trips", a), l, 1))
		}
	}
	if ac, ok := e.s.Caps.Algorithms[limit.Concurrency]; ok {
		most = max(most, ac.Trips)
		mixed = append(mixed, e.leaseTrips(now)...)
	}
	before := e.s.Trips()
	e.takeAll(mixed)
	if n := e.s.Trips() - before; n > int64(most) {
		e.Errorf("a slice of %d requests of one group: %d round trips, want at most %d", len(mixed), n, most)
	}
	e.tripsOfOps(now, most)
}

// wantTrips sends a request of one op and counts.
func (e *env) wantTrips(req limit.Request) {
	e.Helper()
	a := req.Ops[0].Limit.Algorithm()
	before := e.s.Trips()
	e.take(req)
	if n, want := e.s.Trips()-before, e.s.Caps.Algorithms[a].Trips; n != int64(want) {
		e.Errorf("%v, cost %d: %d round trips, want %d", a, req.Ops[0].Cost, n, want)
	}
}

// leaseTrips counts those of each kind of op on leases, and returns some to go
// into a slice with others.
func (e *env) leaseTrips(now limit.Instant) (some []limit.Request) {
	e.Helper()
	l := e.inFlight(100, time.Hour)
	e.lease(now, e.key("", "warm", limit.Concurrency), l, acquire("warm"))
	for i := range 5 {
		k, holder := e.key(strconv.Itoa(i%2), "trips", limit.Concurrency), strconv.Itoa(i)
		for _, o := range []leaseOp{
			acquire(holder), acquire(holder), renew(holder), {}, {-1, holder, limit.EndAttempt}, release(holder),
			release(holder),
			acquire(holder), {-1, holder, limit.EndOwner}, {cost: -1},
		} {
			e.wantTrips(o.request(now, k, l))
		}
	}
	k := e.key("", "trips", limit.Concurrency)
	for i := range 8 {
		holder := "slice" + strconv.Itoa(i)
		some = append(some, acquire(holder).request(now, k, l), release(holder).request(now, k, l))
	}
	return some
}

// tripsOfOps: a request over one group costs no more for having several ops,
// of whatever algorithms.
func (e *env) tripsOfOps(now limit.Instant, most int) {
	e.Helper()
	for _, cost := range []int64{1, -1} {
		req := limit.Request{At: now}
		for _, a := range e.algorithms() {
			req.Ops = append(req.Ops, limit.Op{Key: e.key("ops", "1", a), Limit: e.limit(a, 100, time.Hour), Cost: cost})
		}
		if _, ok := e.s.Caps.Algorithms[limit.Concurrency]; ok {
			for i := range 3 {
				k := e.key("ops", strconv.Itoa(i), limit.Concurrency)
				req.Ops = append(req.Ops, limit.Op{Key: k, Limit: e.inFlight(100, time.Hour), Cost: cost, Holder: "ops"})
			}
		}
		req.Ops = req.Ops[:min(len(req.Ops), e.s.Caps.MaxOps)]
		before := e.s.Trips()
		e.take(req)
		if n := e.s.Trips() - before; n > int64(most) {
			e.Errorf("a request of %d ops of one group, cost %d: %d round trips, want at most %d", len(req.Ops), cost, n, most)
		}
	}
}
