package backendtest

import (
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"
	_ "time/tzdata" // zones are the same everywhere

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/limit"
)

// A generator makes random requests that live on the edges, and knows from
// the model what the right answers are.
type generator struct {
	r     *rand.Rand
	m     *model
	caps  *backends.Caps
	step  limit.Instant
	start limit.Instant
	now   limit.Instant
	wait  time.Duration // the last Retry that was not Never
	keys  []randomKey

	distinct     bool // no two ops of a request share a key
	alternatives bool // requests have some
}

// A randomKey is a key and the limits that requests may name for it: the
// figures of a limit change in operation, its algorithm does not.
type randomKey struct {
	key    limit.Key
	limits []*limit.Limit
}

// span bounds the time that one generator covers, so that windows of years
// do not run beyond the last instant there is.
const span = limit.Instant(60 * 365 * 24 * int64(time.Hour/time.Microsecond))

func (e *env) generator() *generator {
	g := &generator{r: e.r, m: newModel(), caps: &e.s.Caps, step: limit.Instant(e.step)}
	g.start = e.start()
	g.now = g.start
	algorithms := e.algorithms()
	window := pick(g.r, time.Millisecond, 7*time.Millisecond, 100*time.Millisecond, time.Second,
		time.Minute, time.Hour, 24*time.Hour, 30*24*time.Hour, 1234567*time.Microsecond, limit.MaxWindow)
	window = e.window(window)
	round := strconv.FormatUint(g.r.Uint64(), 36)
	raw, logs := g.r.IntN(4) == 0, map[string]bool{}
	for i := range 1 + g.r.IntN(8) {
		a := algorithms[g.r.IntN(len(algorithms))]
		k := randomKey{key: e.key(round+"-"+strconv.Itoa(g.r.IntN(3)), strconv.Itoa(i), a)}
		if raw {
			k.key.Group = limit.RawGroup(k.key.Group)
		}
		if raw && a.Is(limit.Logged) && e.s.Caps.SharedLogs {
			if logs[k.key.Group] {
				continue // all of them would be one
			}
			logs[k.key.Group] = true
		}
		limits := 1 + g.r.IntN(3)
		if g.caps.PlainWindows { // see doc.go
			limits = 1
		}
		for range limits {
			k.limits = append(k.limits, g.limit(a, window))
		}
		g.keys = append(g.keys, k)
	}
	return g
}

// simple keeps keys of windows and buckets, and limits that owe nothing and know no calendar: stores decide those in
// ways of their own. It returns false if there are none.
func (g *generator) simple() bool {
	g.keys = slices.DeleteFunc(g.keys, func(k randomKey) bool { return k.limits[0].Is(limit.Logged) })
	for i := range g.keys {
		k := &g.keys[i]
		k.limits = slices.DeleteFunc(k.limits, func(l *limit.Limit) bool {
			return l.Overflow() == limit.Debt || l.Spec().Calendar
		})
	}
	g.keys = slices.DeleteFunc(g.keys, func(k randomKey) bool { return len(k.limits) == 0 })
	return len(g.keys) > 0
}

func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

// Windows of calendars, and zones, of which one has its day of 23 hours in spring and
// one in autumn, and one is half an hour off.
var (
	calendars = []time.Duration{24 * time.Hour, 7 * 24 * time.Hour, 30 * 24 * time.Hour, 365 * 24 * time.Hour}
	zones     = []*time.Location{nil, load("Europe/Berlin"), load("America/Santiago"), load("Australia/Lord_Howe")}
)

func load(zone string) *time.Location {
	loc, err := time.LoadLocation(zone)
	if err != nil {
		panic(err)
	}
	return loc
}

// limit draws until it has a limit that the backend can keep.
func (g *generator) limit(a limit.Algorithm, window time.Duration) *limit.Limit {
	most := g.caps.Algorithms[a].MaxUnits
	for {
		spec := limit.Spec{Algorithm: a, Window: window, Max: pick(g.r, 0, 1, 1, 2, 3, 5, 10, 100, 4711, most)}
		switch g.r.IntN(4) {
		case 0:
			spec.Window *= 2
		case 1:
			spec.Window = spec.Window/3 + time.Millisecond
		}
		spec.Window = spec.Window.Truncate(time.Duration(g.step) * time.Microsecond)
		if a.Is(limit.Refilled) && g.r.IntN(2) == 0 {
			spec.Burst = pick(g.r, 1, 2, 5, 10*spec.Max, most)
		}
		if a == limit.FixedWindow && window >= 24*time.Hour && !g.caps.PlainWindows && g.r.IntN(2) == 0 {
			spec.Window, spec.Calendar, spec.Zone = pick(g.r, calendars...), true, pick(g.r, zones...)
		}
		if l, err := limit.New(spec); err == nil && g.caps.Check(l) == nil {
			return g.overflowOf(l)
		}
	}
}

// slice makes n requests and the verdicts they must get.
func (g *generator) slice(n int) ([]limit.Request, []limit.Verdict) {
	reqs, want := make([]limit.Request, n), make([]limit.Verdict, n)
	for i := range reqs {
		g.move()
		reqs[i] = g.request(n == 1)
		want[i] = g.want(&reqs[i])
		if !want[i].Admitted && g.parted(&reqs[i]) {
			g.leftBehind(&reqs[i])
		}
		for _, out := range want[i].Outcomes {
			if out.Retry > 0 {
				g.wait = out.Retry
			}
		}
	}
	return reqs, want
}

// parted reports whether req is decided by several partitions.
func (g *generator) parted(req *limit.Request) bool {
	return g.caps.Atomicity == backends.PerPartition && severalGroups(req)
}

// want returns the verdict that req must get.
func (g *generator) want(req *limit.Request) limit.Verdict {
	if !g.parted(req) {
		return g.m.take(req, g.now)
	}
	order := partedOrder(req)
	sorted := limit.Request{At: req.At}
	for _, i := range order {
		sorted.Ops = append(sorted.Ops, req.Ops[i])
	}
	v := g.m.take(&sorted, g.now)
	outcomes := slices.Clone(v.Outcomes)
	for at, i := range order {
		v.Outcomes[i] = outcomes[at]
	}
	return v
}

// partedOrder returns the order in which several partitions decide the ops of
// req: if it may be refused, those that give back come last, unless they are
// charged each.
func partedOrder(req *limit.Request) (order []int) {
	mayRefuse := slices.ContainsFunc(req.Ops, func(op limit.Op) bool { return op.Cost >= 0 && !op.Shadow })
	waits := func(op *limit.Op) bool { return mayRefuse && op.Cost < 0 && !op.ChargesEach() }
	for _, last := range []bool{false, true} {
		for i := range req.Ops {
			if waits(&req.Ops[i]) == last {
				order = append(order, i)
			}
		}
	}
	return order
}

// differ is differ without what partitions do not promise.
func (g *generator) differ(req *limit.Request, got, want *limit.Verdict) string {
	if !want.Admitted {
		g.blur(req, got)
		g.blur(req, want)
	}
	return differ(got, want)
}

// blur clears what a partition does not know of a request that others refused:
// how long until a limit is as good as unused, once all is given back, and what to
// wait for after giving back what overflows.
func (g *generator) blur(req *limit.Request, v *limit.Verdict) {
	if v.Admitted || !g.parted(req) {
		return
	}
	for i := range v.Outcomes {
		v.Outcomes[i].Reset = 0
		if op := &req.Ops[i]; op.Cost < 0 && slices.ContainsFunc(req.Ops,
			func(o limit.Op) bool { return o.Key == op.Key && o.Overflows() }) {
			v.Outcomes[i].Retry = 0
		}
	}
}

// leftBehind is called for what was taken and given back: it may leave its
// instant, and a state that is as good as none only under the same limit.
func (g *generator) leftBehind(req *limit.Request) {
	g.start = g.now
	for i := range req.Ops {
		for j := range g.keys {
			if g.keys[j].key == req.Ops[i].Key {
				g.keys[j].limits = []*limit.Limit{req.Ops[i].Limit}
			}
		}
	}
}

func severalGroups(req *limit.Request) bool {
	return slices.ContainsFunc(req.Ops, func(op limit.Op) bool { return op.Key.Group != req.Ops[0].Key.Group })
}

// move sets the instant of the next request, preferably onto an edge.
func (g *generator) move() {
	k := &g.keys[g.r.IntN(len(g.keys))]
	l := pick(g.r, k.limits...)
	w := limit.Instant(l.Window().Microseconds())
	next := g.now
	switch g.r.IntN(16) {
	case 0:
		next += g.step
	case 1:
		next += w - g.step
	case 2:
		next += w
	case 3:
		next += w + g.step
	case 4, 5:
		next = next.Add(g.wait)
	case 6, 7:
		next = next.Add(g.wait) - 1
	case 8:
		next += w - next%w
	case 9:
		next += w - next%w - g.step
	case 12, 13:
		if l.Calendar() {
			next = l.WindowEnd(next) - g.step*limit.Instant(g.r.IntN(2))
		}
	case 10:
		next += limit.Instant(g.r.Int64N(2 * int64(w)))
	case 11:
		next -= limit.Instant(g.r.Int64N(int64(w) * pick[int64](g.r, 1, 1, 1, 20)))
	}
	if g.r.IntN(2) == 0 {
		next += g.step - 1 // else round down
	}
	next -= next % g.step
	if next > g.start+span || next < g.now && g.caps.PlainWindows { // see checkPlainWindows
		next = g.now
	}
	g.now = max(next, g.m.earliest(), g.start)
	g.now += (g.step - g.now%g.step) % g.step
}

// request draws a request at g.now. Unless alone, it stays within what can
// be compared inside a slice.
func (g *generator) request(alone bool) limit.Request {
	n := 1
	if g.r.IntN(3) > 0 {
		n += g.r.IntN(min(6, g.caps.MaxOps))
	}
	req := limit.Request{At: g.now}
	limits := map[limit.Key]*limit.Limit{}
	for tries := 0; len(req.Ops) < n && tries < 100; tries++ {
		k := &g.keys[g.r.IntN(len(g.keys))]
		if len(req.Ops) > 0 && k.key.Group != req.Ops[0].Key.Group &&
			g.caps.Atomicity != backends.Whole && !alone {
			continue
		}
		l := limits[k.key]
		if l != nil && g.distinct {
			continue
		}
		if l == nil {
			l = g.limitOf(k, alone)
			limits[k.key] = l
		}
		req.Ops = append(req.Ops, limit.Op{
			Key: k.key, Limit: l, Cost: g.cost(k.key, l),
			Shadow: g.r.IntN(6) == 0, Each: g.r.IntN(5) == 0,
		})
	}
	g.alike(&req)
	if g.alternatives {
		g.choices(&req)
		return req
	}
	if len(req.Ops) == 1 && g.r.IntN(6) == 0 && !g.countsRefused(req.Ops[0].Limit) {
		g.giveBack(&req.Ops[0])
	}
	return req
}

// choices makes ops of most requests alternatives, where the backend can decide them in one step.
func (g *generator) choices(req *limit.Request) {
	if g.parted(req) || g.r.IntN(4) == 0 {
		return
	}
	together := g.r.IntN(3) == 0 // in one alternative
	choice := limit.Choice{Set: 1, Group: 7}
	for i := range req.Ops {
		if g.r.IntN(5) == 0 {
			continue
		}
		if !together {
			choice = limit.Choice{Set: pick[uint8](g.r, 1, 1, 1, 2, 255), Group: pick[uint8](g.r, 0, 1, 2, 255)}
		}
		req.Ops[i].Choice = choice
	}
}

// giveBack makes op give back what was charged at an instant, perhaps of a window that is over.
func (g *generator) giveBack(op *limit.Op) {
	before := limit.Instant(g.r.Int64N(2 * op.Limit.Window().Microseconds()))
	asOf := max(pick(g.r, g.now, g.now, g.now-before), g.step)
	cost := -pick[int64](g.r, 1, 1, 2, 5, limit.MaxUnits)
	*op = limit.Op{Key: op.Key, Limit: op.Limit, Cost: cost, AsOf: asOf - asOf%g.step}
}

// alike makes ops that share a key charged alike, where several partitions
// decide: one with Each finds there what others took, given back or not.
func (g *generator) alike(req *limit.Request) {
	if !g.parted(req) {
		return
	}
	each := map[limit.Key]bool{}
	for i := range req.Ops {
		op := &req.Ops[i]
		if first, ok := each[op.Key]; ok {
			op.Each = first
		}
		each[op.Key] = op.Each
	}
}

// limitOf draws a limit for k that can be asked about: see doc.go on changed
// limits.
func (g *generator) limitOf(k *randomKey, alone bool) *limit.Limit {
	s := g.m.get(k.key)
	if s.over(g.now) || s.writer != nil && alone && g.caps.Atomicity == backends.PerPartition {
		return s.writer
	}
	return pick(g.r, k.limits...)
}

// cost draws a cost that can be compared: see doc.go.
func (g *generator) cost(k limit.Key, l *limit.Limit) int64 {
	cost := g.anyCost(k, l)
	if cost < 0 && g.countsRefused(l) {
		return 1
	}
	return cost
}

// countsRefused reports whether the store counts what l refuses, so that what is given back may make no room.
func (g *generator) countsRefused(l *limit.Limit) bool {
	return g.caps.PlainWindows && l.Overflow() != limit.Refuse
}

// anyCost draws a cost, preferably one that just fits or just does not.
func (g *generator) anyCost(k limit.Key, l *limit.Limit) int64 {
	switch g.r.IntN(16) {
	case 0, 1, 2, 3, 4, 5:
		return 1
	case 6, 7:
		return 0
	case 8:
		return 2
	case 9:
		return -1
	case 10:
		return -g.r.Int64N(l.Capacity() + 2)
	case 11:
		return l.Capacity() + int64(g.r.IntN(3)) - 1
	case 12, 13:
		_, out := limit.Step(g.m.get(k).State, &limit.Op{Limit: l}, g.now)
		return out.Remaining + int64(g.r.IntN(2))
	case 14:
		return 1 + g.r.Int64N(l.Capacity()+1)
	}
	return pick[int64](g.r, math.MaxInt64, math.MinInt64, 1<<53+1, -1<<53-1, limit.MaxUnits+1, -limit.MaxUnits-1)
}
