package backendtest

import (
	"strconv"
	"sync"

	"github.com/headgate-rls/headgate/limit"
)

// hasAlternatives skips the check for a backend without them.
func (e *env) hasAlternatives() {
	e.Helper()
	if e.s.Caps.PlainWindows {
		e.Skip("the backend has no alternatives")
	}
}

// checkAlternatives compares every verdict on random slices of requests with alternatives with limit.Decide's.
func checkAlternatives(e *env) {
	e.hasAlternatives()
	e.open()
	_, leases := e.s.Caps.Algorithms[limit.Concurrency]
	for range e.s.Rounds {
		g := e.generator()
		g.alternatives = true
		e.compare(g, 6)
		if g := e.generator(); g.simple() {
			g.alternatives, g.distinct = true, true
			e.compare(g, 6)
		}
		if leases {
			g := e.leaseGenerator()
			g.alternatives = true
			e.compare(g, 8)
		}
	}
}

// choice is a request of alternatives of one op each, whose limits have so many units, under keys of one partition.
func (e *env) choice(at limit.Instant, group string, a limit.Algorithm, units []int64) limit.Request {
	req := limit.Request{At: at}
	for i, most := range units {
		number := strconv.Itoa(i)
		key := e.key(group+strconv.FormatInt(int64(at), 10), number, a)
		key.Group = limit.GroupIn(limit.AppendPart(nil, key.Group), limit.AppendPart(nil, number+"}%"))
		req.Ops = append(req.Ops, limit.Op{
			Key: key, Limit: e.longLimit(a, most), Cost: 1, Choice: limit.Choice{Set: 1, Group: uint8(i)},
		})
	}
	return req
}

// checkAlternativesInOrder: requests fill the first alternative, then the next one. Others are untouched.
func checkAlternativesInOrder(e *env) {
	e.hasAlternatives()
	e.open()
	for _, at := range e.instants() {
		for _, a := range e.algorithms() {
			req := e.choice(at, "order", a, []int64{2, 3})
			for n, want := range []int{0, 0, 1, 1, 1, -1, -1} {
				v := e.take(req)
				got := -1
				for i := range v.Outcomes {
					if v.Outcomes[i].Chosen {
						got = i
					}
				}
				if got != want || v.Admitted != (want >= 0) {
					e.Fatalf("%v at %d, request %d: admitted %v by %d, want %d: %+v", a, at, n, v.Admitted, got, want, v.Outcomes)
				}
			}
		}
	}
}

// checkAlternativesParallel: of many parallel takes exactly as many are admitted as all alternatives have room for.
func checkAlternativesParallel(e *env) {
	e.hasAlternatives()
	e.open()
	for _, at := range e.instants() {
		for _, a := range e.algorithms() {
			units := []int64{17, 22}
			chosen := e.crowdOf(e.choice(at, "choice", a, units), 8, 8)
			for i, want := range units {
				if chosen[i] != want {
					e.Errorf("%v at %d: alternative %d was chosen %d times, want %d", a, at, i, chosen[i], want)
				}
			}
		}
	}
}

// crowdOf has so many callers send so many requests each, and returns how often each op was chosen.
func (e *env) crowdOf(req limit.Request, callers, each int) (chosen map[int]int64) {
	var mu sync.Mutex
	var all sync.WaitGroup
	chosen = map[int]int64{}
	for range callers {
		all.Go(func() {
			ctx, cancel := calm()
			defer cancel()
			for range each {
				out := make([]limit.Verdict, 1)
				e.b.Take(ctx, []limit.Request{req}, out)
				if out[0].Err != nil {
					e.Errorf("error %v", out[0].Err)
					return
				}
				mu.Lock()
				for i := range out[0].Outcomes {
					if out[0].Outcomes[i].Chosen {
						chosen[i]++
					}
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return chosen
}
