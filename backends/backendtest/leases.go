package backendtest

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/limit"
)

// keepsLeases skips the check for a backend without limit.Concurrency.
func (e *env) keepsLeases() {
	e.Helper()
	if _, ok := e.s.Caps.Algorithms[limit.Concurrency]; !ok {
		e.Skip("the backend keeps no leases: limit.Concurrency is not among its algorithms")
	}
}

// inFlight makes a limit on requests in flight, or the nearest one that the
// backend can keep.
func (e *env) inFlight(most int64, window time.Duration) *limit.Limit {
	e.Helper()
	return e.limit(limit.Concurrency, most, window.Truncate(e.precision()))
}

// A leaseOp is what is asked of a key's leases.
type leaseOp struct {
	cost   int64
	holder string
	ending limit.Ending
}

func acquire(holder string) leaseOp { return leaseOp{cost: 1, holder: holder} }
func renew(holder string) leaseOp   { return leaseOp{holder: holder} }
func release(holder string) leaseOp { return leaseOp{cost: -1, holder: holder} }

func (o leaseOp) request(at limit.Instant, k limit.Key, l *limit.Limit) limit.Request {
	req := request(at, k, l, o.cost)
	req.Ops[0].Holder, req.Ops[0].Ending = o.holder, o.ending
	return req
}

// lease sends one op of its own and returns its outcome.
func (e *env) lease(at limit.Instant, k limit.Key, l *limit.Limit, o leaseOp) limit.Outcome {
	e.Helper()
	return e.take(o.request(at, k, l)).Outcomes[0]
}

// expiry returns when a lease taken at an instant expires.
func expiry(at limit.Instant, l *limit.Limit) limit.Instant {
	return ceilTo(at.Add(l.Window()), time.Millisecond)
}

// checkLeaseModel compares every verdict on random slices with limit.Decide's.
func checkLeaseModel(e *env) {
	e.keepsLeases()
	e.open()
	for range e.s.Rounds {
		e.compare(e.leaseGenerator(), 8)
	}
}

// differ is differ without what partitions do not promise; see doc.go.
func (g *leaseGenerator) differ(_ *limit.Request, got, want *limit.Verdict) string {
	if len(g.unsure) > 0 && got.Err == nil && (want.Admitted || !got.Admitted) {
		return ""
	}
	return differ(got, want)
}

// end drops the keys of which it is not known what was left behind.
func (g *leaseGenerator) end(e *env) {
	if len(g.unsure) > 0 {
		e.forget(g.unsure...)
	}
	for _, k := range g.unsure {
		delete(g.m.states, k)
	}
	g.unsure = nil
}

// checkLeaseServerClock compares verdicts on real time with the model's at the
// instants they name: it sees keys that the store's own clock ends before
// their last lease, or leases that it does not end.
func checkLeaseServerClock(e *env) {
	e.keepsLeases()
	if !e.s.Caps.ServerClock {
		e.Skip("the store has no clock")
	}
	e.open()
	m := newModel()
	limits := map[limit.Key][]*limit.Limit{}
	for i := range 4 {
		k := e.key("", strconv.Itoa(i), limit.Concurrency)
		limits[k] = []*limit.Limit{e.randomLeases(100 * time.Millisecond), e.inFlight(3, 170*time.Millisecond)}
	}
	for range 40 {
		var reqs []limit.Request
		for _, k := range slices.SortedFunc(maps.Keys(limits),
			func(a, b limit.Key) int { return strings.Compare(a.Limit, b.Limit) }) {
			o := pick(e.r, acquire, acquire, acquire, renew, release)(pick(e.r, "a", "b", "c", "d", "e", "f"))
			reqs = append(reqs, o.request(0, k, pick(e.r, limits[k]...)))
		}
		for i, got := range e.takeAll(reqs) {
			want := m.take(&reqs[i], got.At)
			if d := differ(&got, &want); d != "" {
				e.Fatalf("%s\n%s%s", d, describe(&reqs[i]), m.past(&reqs[i]))
			}
		}
		time.Sleep(time.Duration(e.r.Int64N(int64(60 * time.Millisecond))))
	}
}

// A leaseWorld is clients that hold leases of one limit, and what must be true
// of it, in plain maps. It does not know package limit's algorithm.
type leaseWorld struct {
	*env
	handles []backends.Backend
	key     limit.Key
	limit   *limit.Limit
	now     limit.Instant

	live    map[string]limit.Instant // by holder, when its lease expires
	ended   map[string]limit.Instant // ends without a lease, and until when they hold
	clients []leaseClient
	names   int

	acquired, released, expired int64
	past                        []string
}

// A leaseClient knows the leases that it got and did not give back, live or not.
type leaseClient struct {
	owner string
	has   []string
	had   []string // given back
}

// checkLeaseInterleavings lets clients acquire, renew and release leases, twice
// and too early, forget them and run out of time, in random order over several
// handles. After each step as many leases are active as were acquired and
// neither released nor expired, never more than Max and never fewer than none.
func checkLeaseInterleavings(e *env) {
	e.keepsLeases()
	e.open()
	handles := []backends.Backend{e.b}
	if e.s.Shared {
		handles = append(handles, e.openAnother(), e.openAnother())
	}
	for round := range e.s.Rounds {
		w := &leaseWorld{
			env: e, handles: handles, key: e.key("interleaved", strconv.Itoa(round), limit.Concurrency), now: e.start(),
			limit: e.inFlight(1+e.r.Int64N(5), pick(e.r, 5*time.Millisecond, time.Second, 1234567*time.Microsecond, time.Hour)),
			live:  map[string]limit.Instant{}, ended: map[string]limit.Instant{},
		}
		for i := range 1 + e.r.IntN(4) {
			w.clients = append(w.clients, leaseClient{owner: string(rune('A'+i)) + "/"})
		}
		for range 50 {
			w.next()
			w.count()
		}
	}
}

// do sends an op on some handle and returns its outcome.
func (w *leaseWorld) do(o leaseOp) limit.Outcome {
	w.Helper()
	w.b = w.handles[w.r.IntN(len(w.handles))]
	out := w.lease(w.now, w.key, w.limit, o)
	w.past = append(w.past, fmt.Sprintf("at %d %+v -> %+v", w.now, o, out))
	return out
}

func (w *leaseWorld) failf(format string, args ...any) {
	w.Helper()
	w.Fatalf("%v for %v: %s\nlast ops:\n  %s", w.limit, w.limit.Window(), fmt.Sprintf(format, args...),
		strings.Join(w.past[max(0, len(w.past)-12):], "\n  "))
}

func (w *leaseWorld) next() {
	c := &w.clients[w.r.IntN(len(w.clients))]
	switch w.r.IntN(16) {
	case 0, 1, 2, 3, 4:
		w.names++
		w.acquire(c, c.owner+strconv.Itoa(w.names))
	case 5: // whose answer was lost, or who is not sure
		if len(c.has) > 0 {
			w.acquire(c, pick(w.r, c.has...))
		}
	case 6, 7, 8:
		if len(c.has) > 0 {
			w.release(c, pick(w.r, c.has...))
		}
	case 9: // twice
		if len(c.had) > 0 {
			w.release(c, pick(w.r, c.had...))
		}
	case 10:
		if len(c.has) > 0 {
			w.renew(pick(w.r, c.has...))
		}
	case 11: // the end arrives before the beginning
		w.names++
		holder := c.owner + strconv.Itoa(w.names)
		w.release(c, holder)
		w.acquire(c, holder)
	case 12: // a crash
		c.has, c.had = nil, nil
	case 13: // which somebody noticed
		w.endOwner(c)
	default:
		w.pass()
	}
}

func (w *leaseWorld) acquire(c *leaseClient, holder string) {
	w.Helper()
	_, held := w.live[holder]
	until, ended := w.ended[holder]
	ended = ended && w.now < until
	want := held || !ended && int64(len(w.live)) < w.limit.Max()
	out := w.do(acquire(holder))
	if out.Admitted != want || out.Held != held {
		w.failf("acquire of %q: admitted %v and held %v, want %v and %v: there are %d", holder, out.Admitted, out.Held, want,
			held, len(w.live))
	}
	if want && !held {
		w.acquired++
		c.has = append(c.has, holder)
	}
	if want {
		w.live[holder] = max(w.live[holder], expiry(w.now, w.limit))
	}
}

func (w *leaseWorld) renew(holder string) {
	w.Helper()
	_, held := w.live[holder]
	if out := w.do(renew(holder)); out.Admitted != held || out.Held != held {
		w.failf("renewal of %q: admitted %v and held %v, want both %v", holder, out.Admitted, out.Held, held)
	}
	if held {
		w.live[holder] = max(w.live[holder], expiry(w.now, w.limit))
	}
}

// release ends a lease for all who have it.
func (w *leaseWorld) release(c *leaseClient, holder string) {
	w.Helper()
	_, held := w.live[holder]
	if out := w.do(release(holder)); !out.Admitted || out.Held != held {
		w.failf("release of %q: admitted %v and held %v, want true and %v", holder, out.Admitted, out.Held, held)
	}
	if held {
		w.released++
		delete(w.live, holder)
	} else {
		w.ended[holder] = ceilTo(w.now.Add(limit.EndedLife), time.Millisecond)
	}
	c.has = slices.DeleteFunc(c.has, func(h string) bool { return h == holder })
	c.had = append(c.had, holder)
}

func (w *leaseWorld) endOwner(c *leaseClient) {
	w.Helper()
	n := w.released
	for holder := range w.live {
		if strings.HasPrefix(holder, c.owner) {
			w.released++
			delete(w.live, holder)
		}
	}
	if out := w.do(leaseOp{cost: -1, holder: c.owner, ending: limit.EndOwner}); !out.Admitted ||
		out.Held != (w.released > n) {
		w.failf("end of owner %q with %d leases: %+v", c.owner, w.released-n, out)
	}
	c.has, c.had = nil, nil
}

// pass lets time pass, mostly to when a lease expires or a step before that.
func (w *leaseWorld) pass() {
	next := w.now + limit.Instant(w.r.Int64N(w.limit.Window().Microseconds()/2+1))
	if ends := slices.Sorted(maps.Values(w.live)); len(ends) > 0 && w.r.IntN(3) > 0 {
		next = pick(w.r, ends...) - limit.Instant(w.r.IntN(2))*limit.Instant(w.step)
	}
	w.now = max(w.now, w.up(next))
	for holder, at := range w.live {
		if at <= w.now {
			w.expired++
			delete(w.live, holder)
		}
	}
}

// count compares what there is with what there must be.
func (w *leaseWorld) count() {
	w.Helper()
	active := w.acquired - w.released - w.expired
	if active != int64(len(w.live)) || active > w.limit.Max() {
		w.Fatalf("the test has lost count: %d active, %d live", active, len(w.live))
	}
	out := w.do(leaseOp{})
	if out.InFlight != active || out.Remaining != w.limit.Max()-active || out.Admitted != (active < w.limit.Max()) {
		w.failf("%d acquired, %d released and %d expired make %d active, yet %+v", w.acquired, w.released,
			w.expired, active, out)
	}
}

// checkLeasesExpireTogether: many leases expire at once, all of them, and
// nothing of them is kept.
func checkLeasesExpireTogether(e *env) {
	e.keepsLeases()
	e.open()
	const slice = 500
	l := e.inFlight(10_000, time.Second)
	k, now := e.key("", "together", limit.Concurrency), e.start()
	for from := 0; from < int(l.Max()); from += slice {
		var reqs []limit.Request
		for i := from; i < min(from+slice, int(l.Max())); i++ {
			reqs = append(reqs, acquire(strconv.Itoa(i)).request(now, k, l))
		}
		for i, v := range e.takeAll(reqs) {
			if !v.Admitted || v.Outcomes[0].InFlight != int64(from+i+1) {
				e.Fatalf("lease %d of %d: %+v", from+i, l.Max(), v)
			}
		}
	}
	end := expiry(now, l)
	early := end - limit.Instant(e.step)
	if out := e.lease(early, k, l, acquire("early")); out.Admitted || out.InFlight != l.Max()+1 {
		e.Fatalf("all %d leases are live for one step more, yet %+v", l.Max(), out)
	}
	if out := e.lease(end, k, l, acquire("next")); !out.Admitted || out.InFlight != 1 || out.Remaining != l.Max()-1 {
		e.Fatalf("all %d leases have expired, yet %+v", l.Max(), out)
	}
	for range 50 { // a store may drop what has expired bit by bit
		e.lease(end, k, l, acquire("more"))
		e.lease(end, k, l, release("more"))
	}
	// Leases are compared with the instant of the call: what was kept of them
	// would count again at an earlier one.
	if out := e.lease(early, k, l, leaseOp{}); out.InFlight != min(1, l.Max()) {
		e.Fatalf("leases that have expired are kept: %+v", out)
	}
	e.forget(k)
}

// checkLeasesGoAway: a key whose leases have ended is unused, when they have
// and not before.
func checkLeasesGoAway(e *env) {
	e.keepsLeases()
	e.open()
	for i := range (e.s.Rounds + 4) / 5 {
		l := e.randomLeases(time.Hour)
		if l.Max() < 1 || l.Window() < 2*time.Millisecond {
			continue
		}
		k, now := e.key("away", strconv.Itoa(i), limit.Concurrency), e.start()+limit.Instant(e.r.Int64N(1e6)*e.step)
		e.lease(now, k, l, acquire("first"))
		now += limit.Instant(e.r.Int64N(l.Window().Microseconds()/2/e.step+1) * e.step)
		if l.Max() > 1 {
			e.lease(now, k, l, acquire("last"))
		} else {
			e.lease(now, k, l, renew("first"))
		}
		end := expiry(now, l)
		if early := end - limit.Instant(e.step); early > now {
			if out := e.lease(early, k, l, leaseOp{}); out.InFlight < 1 || out.Reset != end.Time().Sub(early.Time()) {
				e.Fatalf("%v for %v: a lease of %d has gone a step before its end: %+v", l, l.Window(), now, out)
			}
		}
		want := limit.Outcome{Admitted: true, Remaining: l.Max()}
		if out := e.lease(end, k, l, leaseOp{}); out != want {
			e.Fatalf("%v for %v: a lease of %d has not gone at its end, %d: %+v", l, l.Window(), now, end, out)
		}
	}
	e.leasesLeaveTheStore()
}

// leasesLeaveTheStore: neither leases that expire, nor those given back, nor what
// was refused stays for ever.
func (e *env) leasesLeaveTheStore() {
	if e.s.Stored == nil || !e.s.Caps.ServerClock {
		return
	}
	before := e.s.Stored(e.TB)
	l, err := limit.New(limit.Spec{Algorithm: limit.Concurrency, Max: 1, Window: 100 * time.Millisecond,
		Hold: 100 * time.Millisecond})
	if err != nil {
		e.Fatal(err)
	}
	var reqs []limit.Request
	for i := range 50 {
		expiring, back := e.key(strconv.Itoa(i), "expiring", limit.Concurrency),
			e.key(strconv.Itoa(i), "back", limit.Concurrency)
		reqs = append(reqs, acquire("a").request(0, expiring, l), acquire("b").request(0, expiring, l),
			acquire("a").request(0, back, l), leaseOp{cost: -1, holder: "a", ending: limit.EndOwner}.request(0, back, l))
	}
	e.takeAll(reqs)
	e.wantStored(before)
}

// checkLeasesForgotten: of a forgotten key neither leases, nor refusals, nor
// ends that came too early are left, and its neighbours are as they were.
func checkLeasesForgotten(e *env) {
	e.keepsLeases()
	e.open()
	l, err := limit.New(limit.Spec{Algorithm: limit.Concurrency, Max: 1, Window: time.Hour, Hold: time.Hour})
	if err != nil {
		e.Fatal(err)
	}
	now := e.start()
	k, beside := e.key("", "forgotten", limit.Concurrency), e.key("", "kept", limit.Concurrency)
	for _, k := range []limit.Key{k, beside} {
		e.lease(now, k, l, release("ended"))
		e.lease(now, k, l, acquire("a"))
		e.lease(now, k, l, acquire("refused"))
	}
	e.forget(k)
	if out, want := e.lease(now, k, l, leaseOp{}), (limit.Outcome{Admitted: true, Remaining: 1}); out != want {
		e.Errorf("a forgotten key has %+v", out)
	}
	if out := e.lease(now, k, l, acquire("ended")); !out.Admitted || out.InFlight != 1 {
		e.Errorf("an end that came before its acquire is not forgotten: %+v", out)
	}
	if out := e.lease(now, beside, l, leaseOp{}); out.Admitted || out.InFlight != 2 {
		e.Errorf("beside a forgotten key: %+v", out)
	}
}

// checkLeasesEnd: who renews, counts and ends leases need not know how many there may be, and says so by a limit
// with the most that there can be, whatever the backend's bound is.
func checkLeasesEnd(e *env) {
	e.keepsLeases()
	e.open()
	l, err := limit.New(limit.Spec{Algorithm: limit.Concurrency, Max: limit.MaxInFlight, Window: time.Hour})
	if err != nil {
		e.Fatal(err)
	}
	k, now := e.key("ends", "", limit.Concurrency), e.start()
	e.lease(now, k, e.inFlight(2, time.Hour), acquire("a"))
	e.lease(now, k, e.inFlight(2, time.Hour), acquire("b"))
	for i, o := range []leaseOp{renew("a"), {}, release("a"), release("b")} {
		if out := e.lease(now, k, l, o); out.Remaining != limit.MaxInFlight-[]int64{2, 2, 1, 0}[i] {
			e.Errorf("op %d, %+v: %+v", i, o, out)
		}
	}
}
