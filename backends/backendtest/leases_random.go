package backendtest

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/limit"
)

// holders are names of leases, of several owners, made of what a store might
// take for something else.
var holders = []string{
	"a", "a1", "a12", "b1", "b2", "B1", "7", "-7", " ", "a ",
	"\x00", "\x00\xff", "\xff", "\xff\xfe1", "a\x00b", "\r\n", "#1", "~1", "~", "+1", "+", "*", "a*", "[a-z]1", "%d", "(1",
	strings.Repeat("x", limit.MaxHolderLen), strings.Repeat("x", limit.MaxHolderLen-1) + "y",
	strings.Repeat("x", limit.MaxHolderLen-1),
}

// A leaseGenerator makes random requests on leases, mixed with ops of other
// algorithms. Its time only moves forward: leases have no instant of their key
// to keep them from being asked about the past.
type leaseGenerator struct {
	*generator
	leases  []randomKey
	holders []string
	edges   []limit.Instant // at which something expires, or was said to change
	unsure  []limit.Key     // that a refused request over several groups has touched
}

// maxEdges is how many edges are remembered.
const maxEdges = 24

func (e *env) leaseGenerator() *leaseGenerator {
	g := &leaseGenerator{generator: e.generator()}
	g.keys = g.keys[:min(len(g.keys), 1+g.r.IntN(3))]
	round := strconv.FormatUint(g.r.Uint64(), 36)
	for i := range 1 + g.r.IntN(3) {
		k := randomKey{key: e.key(round, strconv.Itoa(i), limit.Concurrency)}
		other := g.keys[g.r.IntN(len(g.keys))]
		if g.r.IntN(3) > 0 {
			k.key.Group = other.key.Group
		}
		for range 1 + g.r.IntN(3) {
			k.limits = append(k.limits, e.randomLeases(math.MaxInt64))
		}
		g.leases = append(g.leases, k)
	}
	for range 4 + g.r.IntN(7) {
		holder := pick(g.r, holders...)
		if g.r.IntN(2) == 0 && len(holder)+limit.MaxAmountLen <= limit.MaxHolderLen {
			holder = limit.WithAmount(holder, pick[int64](g.r, 0, 1, 1, 2, 3, 7, 100, 4711, limit.MaxUnits))
		}
		g.holders = append(g.holders, holder)
		if twin := strings.ToUpper(holder); twin != holder && g.r.IntN(3) == 0 {
			g.holders = append(g.holders, twin)
		}
	}
	return g
}

// randomLeases draws a limit on requests in flight with a window up to longest.
func (e *env) randomLeases(longest time.Duration) *limit.Limit {
	e.Helper()
	most := e.s.Caps.Algorithms[limit.Concurrency].MaxUnits
	for range 1000 {
		window := pick(e.r, time.Millisecond, 7*time.Millisecond, 100*time.Millisecond, time.Second,
			1234567*time.Microsecond, time.Minute, 5*time.Minute, time.Hour, 24*time.Hour)
		if window > longest {
			continue
		}
		hold := pick(e.r, 0, 0, window, window/2, window/1000*7, time.Microsecond)
		l, err := limit.New(limit.Spec{
			Algorithm: limit.Concurrency, Max: min(pick(e.r, 0, 1, 1, 2, 2, 3, 4, 5, 6, most), most),
			Window: window.Truncate(e.precision()), Hold: hold.Truncate(e.precision()),
		})
		if err == nil && e.s.Caps.Check(l) == nil {
			return l
		}
	}
	e.Fatal("the backend keeps none of the limits")
	return nil
}

// slice makes n requests and the verdicts they must get.
func (g *leaseGenerator) slice(n int) ([]limit.Request, []limit.Verdict) {
	reqs, want := make([]limit.Request, n), make([]limit.Verdict, n)
	for i := range reqs {
		g.move()
		reqs[i] = g.request(n == 1)
		want[i] = g.want(&reqs[i])
		if (!want[i].Admitted || repeats(&reqs[i], &want[i])) && g.parted(&reqs[i]) {
			for j := range reqs[i].Ops {
				g.unsure = append(g.unsure, reqs[i].Ops[j].Key)
			}
		}
		for j, out := range want[i].Outcomes {
			g.note(&reqs[i].Ops[j], &out)
		}
	}
	return reqs, want
}

// repeats reports whether req was granted before, which each partition of a store
// knows only of itself.
func repeats(req *limit.Request, v *limit.Verdict) bool {
	for i := range req.Ops {
		if req.Ops[i].Cost > 0 && v.Outcomes[i].Held {
			return true
		}
	}
	return false
}

// note remembers the instants that op and its outcome imply.
func (g *leaseGenerator) note(op *limit.Op, out *limit.Outcome) {
	edges := []limit.Instant{g.now.Add(out.Reset)}
	if out.Retry > 0 {
		edges = append(edges, g.now.Add(out.Retry))
	}
	if op.Limit.Is(limit.Leased) {
		if hold, step := op.Limit.Hold(); hold > 0 && !out.Admitted {
			edges = append(edges, ceilTo(g.now.Add(hold), step))
		}
		if op.Cost < 0 && op.Holder != "" && !out.Held {
			edges = append(edges, ceilTo(g.now.Add(limit.EndedLife), time.Millisecond))
		}
	}
	g.edges = append(g.edges, edges...)
	g.edges = slices.DeleteFunc(g.edges, func(t limit.Instant) bool { return t <= g.now })
	if n := len(g.edges); n > maxEdges {
		g.edges = slices.Delete(g.edges, 0, n-maxEdges)
	}
}

func ceilTo(t limit.Instant, step time.Duration) limit.Instant {
	s := limit.Instant(step.Microseconds())
	return (t + s - 1) / s * s
}

// move lets time pass, preferably to an edge or a step beside one.
func (g *leaseGenerator) move() {
	next, edge := g.now, g.now
	if len(g.edges) > 0 {
		edge = pick(g.r, g.edges...)
	}
	w := pick(g.r, pick(g.r, g.leases...).limits...).Window().Microseconds()
	switch g.r.IntN(16) {
	case 0:
		next += g.step
	case 1, 2:
		next = edge
	case 3:
		next = edge - g.step
	case 4:
		next = edge + g.step
	case 5:
		next += limit.Instant(w)
	case 6, 7, 8:
		next += limit.Instant(g.r.Int64N(w/3 + 1))
	case 9:
		next += limit.Instant(g.r.Int64N(2000))
	}
	if next < g.now || next > g.start+span {
		next = g.now
	}
	g.now = next + (g.step-next%g.step)%g.step
}

// settlement draws a request that ends reservations and corrects what they have charged.
// It is not ok where no limit has the group of the leases.
func (g *leaseGenerator) settlement(alone bool) (req limit.Request, ok bool) {
	k := &g.leases[g.r.IntN(len(g.leases))]
	end := limit.Op{Key: k.key, Limit: pick(g.r, k.limits...), Cost: -1, Holder: pick(g.r, g.holders...)}
	switch g.r.IntN(8) {
	case 0, 1:
		end.Holder = ""
	case 2:
		end.Holder, end.Ending = end.Holder[:1+g.r.IntN(len(end.Holder))], limit.EndOwner
	case 3:
		end.Holder, end.Ending, end.Cost = "", limit.EndLate, -g.r.Int64N(1<<21)-1
	case 4:
		end.Ending = limit.EndAttempt
	default:
		end.Ending = limit.EndKnown
	}
	req = limit.Request{At: g.now, Ops: []limit.Op{end}}
	for i := range g.keys {
		of := &g.keys[i]
		if of.key.Group != k.key.Group || len(req.Ops) == g.caps.MaxOps {
			continue
		}
		op := limit.Op{Key: of.key, Limit: g.limitOf(of, alone), Cost: pick[int64](g.r, 0, 1, 2, 5, 100, limit.MaxUnits)}
		before := limit.Instant(g.r.Int64N(2 * op.Limit.Window().Microseconds()))
		op.AsOf = pick(g.r, limit.AsLeased, limit.AsLeased, g.now, 1, g.now-before)
		if op.AsOf <= 0 {
			op.AsOf = limit.AsLeased
		}
		if op.AsOf == limit.AsLeased && g.r.IntN(3) == 0 {
			op.AsOf, op.Cost = limit.AsLeasedBeyond, pick[int64](g.r, -limit.MaxUnits, -100, -2, -1, 0, 1, 5)
		}
		req.Ops = append(req.Ops, op)
	}
	return req, len(req.Ops) > 1
}

// request draws a request at g.now. Unless alone, it stays within what can be
// compared inside a slice.
func (g *leaseGenerator) request(alone bool) limit.Request {
	if g.r.IntN(6) == 0 {
		if req, ok := g.settlement(alone); ok {
			return req
		}
	}
	n := 1
	if g.r.IntN(2) > 0 {
		n += g.r.IntN(min(6, g.caps.MaxOps))
	}
	req := limit.Request{At: g.now}
	limits := map[limit.Key]*limit.Limit{}
	for tries := 0; len(req.Ops) < n && tries < 100; tries++ {
		of, leases := g.keys, g.r.IntN(4) > 0
		if leases {
			of = g.leases
		}
		k := &of[g.r.IntN(len(of))]
		if len(req.Ops) > 0 && k.key.Group != req.Ops[0].Key.Group && g.caps.Atomicity != backends.Whole && !alone {
			continue
		}
		if limits[k.key] == nil {
			limits[k.key] = pick(g.r, k.limits...)
			if !leases {
				limits[k.key] = g.limitOf(k, alone)
			}
		}
		op := limit.Op{Key: k.key, Limit: limits[k.key], Shadow: g.r.IntN(6) == 0, Each: g.r.IntN(5) == 0}
		if leases {
			g.leaseOp(&op)
		} else {
			op.Cost = g.cost(k.key, op.Limit)
		}
		req.Ops = append(req.Ops, op)
	}
	g.alike(&req)
	if g.alternatives {
		g.choices(&req)
	}
	return req
}

// leaseOp makes op one of all there are for leases.
func (g *leaseGenerator) leaseOp(op *limit.Op) {
	op.Holder, op.Cost = pick(g.r, g.holders...), 1
	switch g.r.IntN(20) {
	case 0:
		op.Cost = pick[int64](g.r, 2, 7, 1<<53+1, math.MaxInt64) // is one lease all the same
	case 1:
		op.Ending = pick(g.r, limit.EndAttempt, limit.EndOwner) // which means nothing to it
	case 2, 3, 4:
		op.Cost = -1
	case 5:
		op.Cost = pick[int64](g.r, -2, -1<<53-1, math.MinInt64)
	case 6, 7:
		op.Cost, op.Ending = -1, limit.EndAttempt
	case 8:
		op.Cost, op.Ending = pick(g.r, -1, -1, -int64(g.now)-g.r.Int64N(1e7), math.MinInt64), limit.EndOwner
		op.Holder = op.Holder[:1+g.r.IntN(len(op.Holder))]
	case 15:
		op.Cost, op.Holder, op.Ending = -1-g.r.Int64N(1<<21), "", limit.EndLate
	case 9, 10:
		op.Cost = 0
	case 11, 12:
		op.Cost, op.Holder = 0, ""
	case 13:
		op.Cost, op.Holder = -1-g.r.Int64N(4), ""
	case 14:
		if g.r.IntN(4) == 0 {
			op.Cost, op.Holder = pick[int64](g.r, math.MinInt64, -1<<53-1, -1000), ""
		}
	}
}
