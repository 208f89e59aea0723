package backendtest

import (
	"math"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-rls/headgate/limit"
)

// overflows lists those that the backend keeps for a.
func (e *env) overflows(a limit.Algorithm) []limit.Overflow {
	var list []limit.Overflow
	for o := limit.Refuse; o <= e.s.Caps.Algorithms[a].Overflow; o++ {
		list = append(list, o)
	}
	return list
}

// debtOf is the max_debt of checks, for limits of ten.
const debtOf = 25

func (e *env) overflowing(l *limit.Limit, o limit.Overflow) *limit.Limit {
	e.Helper()
	most := int64(0)
	if o == limit.Debt {
		most = debtOf
	}
	l, err := l.WithOverflow(o, most)
	if err != nil {
		e.Fatal(err)
	}
	return l
}

// checkOverflow: a cost without room takes what its limit's overflow says, and what
// is owed is paid back in exactly its time.
func checkOverflow(e *env) {
	e.open()
	for _, a := range e.algorithms() {
		for _, o := range e.overflows(a) {
			l := e.overflowing(e.limit(a, 10, ahead), o)
			e.overflow(l, e.key("", "overflow"+o.String(), a))
		}
	}
}

func (e *env) overflow(l *limit.Limit, k limit.Key) {
	e.Helper()
	now, m := e.start(), newModel()
	take := func(at limit.Instant, cost, taken int64) limit.Outcome {
		e.Helper()
		req := request(at, k, l, cost)
		want, got := m.take(&req, at), e.take(req)
		if d := differ(&got, &want); d != "" {
			e.Fatalf("%v, cost %d: %s%s", l, cost, d, m.past(&req))
		}
		if got.Outcomes[0].Taken != taken {
			e.Fatalf("%v, cost %d: %+v, want %d taken", l, cost, got.Outcomes[0], taken)
		}
		return got.Outcomes[0]
	}
	first := map[limit.Overflow]int64{limit.Saturate: 3, limit.Debt: 5}[l.Overflow()]
	rest := map[limit.Overflow]int64{limit.Debt: debtOf - 2}[l.Overflow()]
	take(now, 7, 0)
	take(now, 5, first)
	take(now, 0, 0)
	take(now, math.MaxUint32, rest)
	take(now, math.MaxInt64, 0) // all that may be owed is
	out := take(now, 0, 0)
	back := e.up(now.Add(out.Reset))
	if owes := take(back-limit.Instant(e.step), 0, 0); owes.Remaining >= 10 && !l.Is(limit.Isolated) {
		e.Fatalf("%v: %v before its Reset: %+v", l, e.precision(), owes)
	}
	if paid := take(back, 0, 0); paid.Remaining != 10 {
		e.Fatalf("%v: at its Reset: %+v", l, paid)
	}
	take(back, 10, 0)
}

// checkOverflowElsewhere: a report with a descriptor that has no room is not
// undone by another one, nor undoes it, in one group or two.
func checkOverflowElsewhere(e *env) {
	e.open()
	now := e.start()
	for _, a := range e.algorithms() {
		for _, o := range e.overflows(a)[1:] {
			for _, group := range []string{"", "elsewhere"} {
				narrow, wide := e.overflowing(e.limit(a, 10, 24*ahead), o), e.overflowing(e.limit(a, 50, 24*ahead), o)
				k1, k2 := e.key(o.String(), "narrow"+group, a), e.key(o.String()+group, "wide"+group, a)
				for _, each := range []bool{false, true} {
					v := e.take(limit.Request{At: now, Ops: []limit.Op{
						{Key: k2, Limit: wide, Cost: 12, Each: each},
						{Key: k1, Limit: narrow, Cost: 12, Each: each},
					}})
					if v.Admitted || v.Outcomes[1].Admitted {
						e.Fatalf("%v: %+v", narrow, v)
					}
					e.settle()
					left := int64(50)
					if each {
						left -= 12
					}
					if out := e.takeOne(now, k2, wide, 0); out.Remaining != left {
						e.Fatalf("%v beside %v, each %v: %+v, want %d left", wide, narrow, each, out, left)
					}
					if out := e.takeOne(now, k1, narrow, 0); out.Remaining != 0 {
						e.Fatalf("%v: %+v after a report of more than is left", narrow, out)
					}
				}
			}
		}
	}
}

// checkParallelReports: of many reports at once exactly what is left and what may be
// owed is taken.
func checkParallelReports(e *env) {
	e.open()
	other := e.openAnother()
	if !e.s.Shared {
		other = e.b
	}
	for _, a := range e.algorithms() {
		for _, o := range e.overflows(a) {
			for i, at := range e.instants() {
				l := e.overflowing(e.limit(a, 10, (limit.MaxWindow/8).Truncate(e.precision())), o)
				req := request(at, e.key("", "reports"+o.String()+strconv.Itoa(i), a), l, 3)
				var taken atomic.Int64
				var all sync.WaitGroup
				for caller := range 8 {
					all.Go(func() {
						ctx, cancel := calm()
						defer cancel()
						reqs, out := make([]limit.Request, 5), make([]limit.Verdict, 5)
						for j := range reqs {
							reqs[j] = req
						}
						for range 5 {
							if caller%2 == 0 {
								e.b.Take(ctx, reqs, out)
							} else {
								other.Take(ctx, reqs, out)
							}
							for j := range out {
								switch {
								case out[j].Err != nil:
									e.Errorf("%v", out[j].Err)
								case out[j].Admitted:
									taken.Add(3)
								default:
									taken.Add(out[j].Outcomes[0].Taken)
								}
							}
						}
					})
				}
				all.Wait()
				want := map[limit.Overflow]int64{limit.Refuse: 9, limit.Saturate: 10, limit.Debt: 10 + debtOf}[o]
				if n := taken.Load(); n != want {
					e.Errorf("%v: %d taken by 200 reports, want %d", l, n, want)
				}
			}
		}
	}
}

// overflowOf draws an overflow for l that the backend keeps.
func (g *generator) overflowOf(l *limit.Limit) *limit.Limit {
	o := limit.Overflow(g.r.IntN(3))
	if o > g.caps.Algorithms[l.Algorithm()].Overflow {
		return l
	}
	most := int64(0)
	if o == limit.Debt {
		most = pick(g.r, 0, 1, l.Capacity()/2, 3*l.Capacity()+1)
	}
	if other, err := l.WithOverflow(o, most); err == nil && other.MaxDebt() < math.MaxInt32 &&
		time.Duration(other.MaxDebt()/max(l.Max(), 1)+1)*l.Window() < limit.MaxWindow {
		return other
	}
	return l
}
