package backendtest

import (
	"math"
	"strings"
	"time"

	"github.com/headgate-rls/headgate/limit"
)

// leaseOps has f change each op on leases before it is decided.
func leaseOps(b *reference, f func(op *limit.Op, now limit.Instant)) {
	b.in = func(req *limit.Request) {
		for i := range req.Ops {
			if op := &req.Ops[i]; op.Limit.Algorithm() == limit.Concurrency {
				f(op, req.At)
			}
		}
	}
}

// respec makes a limit like l with something changed, or returns l where there
// is none.
func respec(l *limit.Limit, change func(s *limit.Spec)) *limit.Limit {
	s := l.Spec()
	change(&s)
	if other, err := limit.New(s); err == nil {
		return other
	}
	return l
}

// probe asks about the leases under key, of which it knows no limit.
func probe(b *reference, k limit.Key, holder string, now limit.Instant) limit.Outcome {
	l := limit.MustNew(limit.Spec{Algorithm: limit.Concurrency, Max: limit.MaxInFlight, Window: limit.MinWindow})
	_, out := limit.Step(b.states[b.key(k)], &limit.Op{Key: k, Limit: l, Holder: holder}, now)
	return out
}

func (b *reference) held(op *limit.Op, now limit.Instant) bool {
	return op.Holder != "" && probe(b, op.Key, op.Holder, now).Held
}

// live returns how many leases there are under key.
func (b *reference) live(k limit.Key, now limit.Instant) int64 {
	return limit.MaxInFlight - probe(b, k, "", now).Remaining
}

// leaseMutants are bugs of stores that keep leases.
var leaseMutants = []mutant{
	{
		name: "leases do not expire", checks: []string{"LeaseModel", "LeaseInterleavings", "LeasesExpireTogether",
			"LeasesGoAway", "LeaseServerClock"},
		spoil: func(b *reference) {
			leaseOps(b, func(op *limit.Op, _ limit.Instant) {
				op.Limit = respec(op.Limit, func(s *limit.Spec) { s.Window = limit.MaxWindow })
			})
		},
	},
	{name: "costs beyond a reservation are costs", checks: []string{"Settlements"}, spoil: func(b *reference) {
		b.in = func(req *limit.Request) {
			for i := range req.Ops {
				if op := &req.Ops[i]; op.AsOf == limit.AsLeasedBeyond {
					op.AsOf = limit.AsLeased
				}
			}
		}
	}},
	{name: "the expiry is rounded down", checks: []string{"LeaseModel", "LeaseInterleavings"}, spoil: func(b *reference) {
		leaseOps(b, func(op *limit.Op, now limit.Instant) {
			op.Limit = respec(op.Limit, func(s *limit.Spec) {
				s.Window -= time.Duration(now.Add(s.Window)%1000) * time.Microsecond
			})
		})
	}},
	{name: "leases expire a microsecond late", checks: []string{"LeaseModel", "LeaseInterleavings", "LeasesGoAway"},
		spoil: func(b *reference) {
			b.decide = func(states []limit.State, req *limit.Request, v *limit.Verdict) {
				limit.Decide(states, req, req.At-1, v, nil)
				v.At = req.At
			}
		}},
	{name: "the key ends with its first lease", checks: []string{"LeaseModel", "LeaseInterleavings", "LeaseServerClock"},
		spoil: func(b *reference) {
			ends := map[limit.Key]limit.Instant{}
			leaseOps(b, func(op *limit.Op, now limit.Instant) {
				if end, ok := ends[op.Key]; ok && end <= now {
					delete(b.states, op.Key)
					delete(ends, op.Key)
				}
				if _, ok := ends[op.Key]; !ok && op.Cost > 0 {
					ends[op.Key] = expiry(now, op.Limit)
				}
			})
		}},
	{name: "one end for all of a key's leases", checks: []string{"LeaseModel", "LeaseInterleavings"},
		spoil: func(b *reference) {
			others := map[limit.Key]map[string]bool{}
			b.out = eachOp(func(op *limit.Op, out *limit.Outcome) {
				if op.Limit.Algorithm() != limit.Concurrency || op.Cost <= 0 || !out.Admitted {
					return
				}
				if others[op.Key] == nil {
					others[op.Key] = map[string]bool{}
				}
				others[op.Key][op.Holder] = true
				for holder := range others[op.Key] { // who comes moves the others' ends as well
					touch := limit.Op{Key: op.Key, Limit: op.Limit, Holder: holder}
					b.states[op.Key], _ = limit.Step(b.states[op.Key], &touch, b.at)
				}
			})
		}},
	{name: "leases that expired are kept", checks: []string{"LeasesExpireTogether"}, spoil: func(b *reference) {
		kept, latest := map[limit.Key]int64{}, map[limit.Key]limit.Instant{}
		b.out = func(req *limit.Request, v *limit.Verdict) {
			for i := range req.Ops {
				op, out := &req.Ops[i], &v.Outcomes[i]
				if op.Limit.Algorithm() != limit.Concurrency {
					continue
				}
				n := kept[op.Key]
				if op.Cost == 0 && req.At < latest[op.Key] {
					out.InFlight += n
				} else {
					kept[op.Key] = max(n, out.InFlight)
				}
				latest[op.Key] = max(latest[op.Key], req.At)
			}
		}
	}},
	{name: "a repeated acquire is charged", checks: []string{"LeaseModel", "LeaseInterleavings"},
		spoil: func(b *reference) {
			leaseOps(b, func(op *limit.Op, now limit.Instant) {
				if op.Cost > 0 && b.held(op, now) {
					op.Holder += "'"
				}
			})
		}},
	{name: "of a request that was granted before, the rest is charged", checks: []string{"LeaseModel"},
		spoil: func(b *reference) {
			b.decide = func(states []limit.State, req *limit.Request, v *limit.Verdict) {
				again := false
				for i := range req.Ops {
					op := &req.Ops[i]
					again = again || op.Limit.Algorithm() == limit.Concurrency && op.Cost > 0 && b.held(op, req.At)
				}
				limit.Decide(states, req, req.At, v, nil)
				for i := range req.Ops {
					if op := &req.Ops[i]; again && op.Limit.Algorithm() != limit.Concurrency {
						states[i], v.Outcomes[i] = limit.Step(states[i], op, req.At)
						v.Outcomes[i].Admitted = true
					}
				}
			}
		}},
	{name: "a renewal is charged for", checks: []string{"LeaseModel", "LeaseInterleavings"}, spoil: func(b *reference) {
		n := 0
		leaseOps(b, func(op *limit.Op, now limit.Instant) {
			if op.Cost == 0 && b.held(op, now) {
				n++
				extra := limit.Op{Key: op.Key, Limit: op.Limit, Cost: 1, Holder: strings.Repeat("r", n%60+1)}
				b.states[op.Key], _ = limit.Step(b.states[op.Key], &extra, now)
			}
		})
	}},
	{name: "a renewal revives what has expired", checks: []string{"LeaseModel", "LeaseInterleavings"},
		spoil: func(b *reference) {
			had := map[string]bool{}
			leaseOps(b, func(op *limit.Op, now limit.Instant) {
				name := op.Key.Group + op.Key.Limit + op.Holder
				if op.Cost == 0 && op.Holder != "" && had[name] && !b.held(op, now) {
					op.Cost = 1
				}
				had[name] = had[name] || op.Cost > 0
			})
		}},
	{name: "a renewal does nothing", checks: []string{"LeaseModel", "LeaseInterleavings"}, spoil: func(b *reference) {
		b.decide = func(states []limit.State, req *limit.Request, v *limit.Verdict) {
			if len(req.Ops) == 1 && req.Ops[0].Cost == 0 && req.Ops[0].Limit.Algorithm() == limit.Concurrency {
				one := *req
				one.Ops = []limit.Op{req.Ops[0]}
				one.Ops[0].Limit = respec(req.Ops[0].Limit, func(s *limit.Spec) { s.Window, s.Hold = limit.MinWindow, 0 })
				req = &one
			}
			limit.Decide(states, req, req.At, v, nil)
		}
	}},
	{name: "the count goes below zero", checks: []string{"LeaseModel", "LeaseInterleavings"}, spoil: func(b *reference) {
		missing := map[limit.Key]int64{}
		b.out = eachOp(func(op *limit.Op, out *limit.Outcome) {
			if op.Limit.Algorithm() != limit.Concurrency {
				return
			}
			if op.Cost < 0 && !out.Held {
				missing[op.Key]++
			}
			out.InFlight -= missing[op.Key]
			out.Remaining += missing[op.Key]
		})
	}},
	{name: "a release ends another's lease", checks: []string{"LeaseModel", "LeaseInterleavings"},
		spoil: func(b *reference) {
			leaseOps(b, func(op *limit.Op, _ limit.Instant) {
				if op.Cost < 0 && op.Ending == limit.EndLease {
					op.Cost, op.Holder = -1, ""
				}
			})
		}},
	{name: "a release does nothing", checks: []string{"LeaseModel", "LeaseInterleavings"}, spoil: func(b *reference) {
		leaseOps(b, func(op *limit.Op, _ limit.Instant) {
			if op.Cost < 0 && op.Ending == limit.EndLease && op.Holder != "" {
				op.Holder += "'"
			}
		})
	}},
	{name: "an end that overtook its acquire is not remembered", checks: []string{"LeaseModel", "LeaseInterleavings"},
		spoil: func(b *reference) {
			leaseOps(b, func(op *limit.Op, now limit.Instant) {
				if op.Cost < 0 && op.Ending != limit.EndOwner && op.Holder != "" && !b.held(op, now) {
					op.Ending, op.Holder = limit.EndOwner, op.Holder+"\x00nobody"
				}
			})
		}},
	{name: "an end is remembered for good", checks: []string{"LeaseModel"}, spoil: func(b *reference) {
		gone := map[string]bool{}
		leaseOps(b, func(op *limit.Op, now limit.Instant) {
			name := op.Key.Group + op.Key.Limit + op.Holder
			held := b.held(op, now)
			if op.Cost < 0 && op.Ending != limit.EndOwner && op.Holder != "" && !held {
				gone[name] = true
			}
			if op.Cost > 0 && gone[name] && !held {
				end := limit.Op{Key: op.Key, Limit: op.Limit, Cost: -1, Holder: op.Holder}
				b.states[op.Key], _ = limit.Step(b.states[op.Key], &end, now)
			}
		})
	}},
	{name: "an attempt's end ends a shared lease", checks: []string{"LeaseModel"}, spoil: func(b *reference) {
		leaseOps(b, func(op *limit.Op, _ limit.Instant) {
			if op.Ending == limit.EndAttempt {
				op.Ending = limit.EndLease
			}
		})
	}},
	{name: "a release ends only one's own attempt", checks: []string{"LeaseModel", "LeaseInterleavings"},
		spoil: func(b *reference) {
			leaseOps(b, func(op *limit.Op, _ limit.Instant) {
				if op.Ending == limit.EndLease {
					op.Ending = limit.EndAttempt
				}
			})
		}},
	{name: "an owner's end ends all", checks: []string{"LeaseModel", "LeaseInterleavings"}, spoil: func(b *reference) {
		leaseOps(b, func(op *limit.Op, now limit.Instant) {
			if op.Cost < 0 && op.Ending == limit.EndOwner {
				op.Cost, op.Holder = -b.live(op.Key, now), ""
			}
		})
	}},
	{name: "an owner's end is a pattern", checks: []string{"LeaseModel"}, spoil: func(b *reference) {
		leaseOps(b, func(op *limit.Op, _ limit.Instant) {
			if op.Cost < 0 && op.Ending == limit.EndOwner {
				op.Holder, _, _ = strings.Cut(op.Holder, "*")
			}
		})
	}},
	{name: "an owner's end is not bounded", checks: []string{"LeasesOfAnOwner"}, spoil: func(b *reference) {
		b.decide = func(states []limit.State, req *limit.Request, v *limit.Verdict) {
			limit.Decide(states, req, req.At, v, nil)
			for len(req.Ops) == 1 {
				rest, more := req.Ops[0].Rest(v)
				if !more {
					return
				}
				limit.Decide(states, &limit.Request{Ops: []limit.Op{rest}}, req.At, v, nil)
			}
		}
	}},
	{name: "an owner's end says nothing of a rest", checks: []string{"LeasesOfAnOwner"}, spoil: func(b *reference) {
		b.out = eachOp(func(op *limit.Op, out *limit.Outcome) {
			if op.Ending == limit.EndOwner && op.Cost < 0 {
				out.Retry = 0
			}
		})
	}},
	{name: "an owner's end begins anew each time", checks: []string{"LeasesOfAnOwner"}, spoil: func(b *reference) {
		leaseOps(b, func(op *limit.Op, _ limit.Instant) {
			if op.Ending == limit.EndOwner {
				op.Cost = max(op.Cost, -1)
			}
		})
	}},
	{name: "ends without a name take one at most", checks: []string{"LeaseModel"}, spoil: func(b *reference) {
		leaseOps(b, func(op *limit.Op, _ limit.Instant) {
			if op.Holder == "" {
				op.Cost = max(op.Cost, -1)
			}
		})
	}},
	{name: "a refusal that is remembered refuses", checks: []string{"LeaseModel"}, spoil: func(b *reference) {
		leaseOps(b, func(op *limit.Op, now limit.Instant) {
			if op.Cost > 0 && probe(b, op.Key, "", now).InFlight >= op.Limit.Max() {
				op.Limit = respec(op.Limit, func(s *limit.Spec) { s.Max = min(s.Max, b.live(op.Key, now)) })
			}
		})
	}},
	{name: "refusals are not remembered", checks: []string{"LeaseModel", "LeasesForgotten"}, spoil: func(b *reference) {
		leaseOps(b, func(op *limit.Op, _ limit.Instant) {
			op.Limit = respec(op.Limit, func(s *limit.Spec) { s.Hold = 0 })
		})
	}},
	{name: "a refused request keeps its lease", checks: []string{"LeaseModel"}, spoil: func(b *reference) {
		b.decide = func(states []limit.State, req *limit.Request, v *limit.Verdict) {
			limit.Decide(states, req, req.At, v, nil)
			for i := range req.Ops {
				if op := &req.Ops[i]; !v.Admitted && op.Limit.Algorithm() == limit.Concurrency && op.Cost > 0 &&
					v.Outcomes[i].Admitted {
					states[i], _ = limit.Step(states[i], op, req.At)
				}
			}
		}
	}},
	{name: "a refused request ends leases", checks: []string{"LeaseModel"}, spoil: func(b *reference) {
		b.decide = func(states []limit.State, req *limit.Request, v *limit.Verdict) {
			limit.Decide(states, req, req.At, v, nil)
			for i := range req.Ops {
				if op := &req.Ops[i]; !v.Admitted && op.Limit.Algorithm() == limit.Concurrency && op.Cost < 0 {
					states[i], _ = limit.Step(states[i], op, req.At)
				}
			}
		}
	}},
	{name: "a cost of n takes n leases", checks: []string{"LeaseModel"}, spoil: func(b *reference) {
		b.out = eachOp(func(op *limit.Op, out *limit.Outcome) {
			if op.Limit.Algorithm() == limit.Concurrency && op.Cost > 1 && out.Admitted {
				out.Remaining = max(0, out.Remaining-op.Cost+1)
				out.InFlight += op.Cost - 1
			}
		})
	}},
	{name: "holders are compared without case", checks: []string{"LeaseModel"}, spoil: func(b *reference) {
		leaseOps(b, func(op *limit.Op, _ limit.Instant) { op.Holder = strings.ToLower(op.Holder) })
	}},
	{name: "holders are cut off", checks: []string{"LeaseModel"}, spoil: func(b *reference) {
		leaseOps(b, func(op *limit.Op, _ limit.Instant) { op.Holder = op.Holder[:min(len(op.Holder), limit.MaxHolderLen-1)] })
	}},
	{name: "holders end at a zero byte", checks: []string{"LeaseModel"}, spoil: func(b *reference) {
		leaseOps(b, func(op *limit.Op, _ limit.Instant) {
			if i := strings.IndexByte(op.Holder, 0); i > 0 {
				op.Holder = op.Holder[:i]
			}
		})
	}},
	{name: "a limit that is lowered ends leases", checks: []string{"LeaseModel"}, spoil: func(b *reference) {
		leaseOps(b, func(op *limit.Op, now limit.Instant) {
			if n := b.live(op.Key, now) - op.Limit.Max(); n > 0 {
				l := respec(op.Limit, func(s *limit.Spec) { s.Hold = 0 })
				b.states[op.Key], _ = limit.Step(b.states[op.Key], &limit.Op{Key: op.Key, Limit: l, Cost: -n}, now)
			}
		})
	}},
	{name: "costs of leases are truncated to 32 bits", checks: []string{"LeaseModel"}, spoil: func(b *reference) {
		leaseOps(b, func(op *limit.Op, _ limit.Instant) { op.Cost = int64(int32(op.Cost & math.MaxUint32)) })
	}},
	{name: "ask first, then acquire", checks: []string{"LeasesParallel"}, spoil: func(b *reference) {
		leaseOps(b, func(op *limit.Op, now limit.Instant) {
			if op.Cost <= 0 || b.live(op.Key, now) >= op.Limit.Max() {
				return
			}
			b.mu.Unlock()
			time.Sleep(100 * time.Microsecond)
			b.mu.Lock()
			op.Limit = respec(op.Limit, func(s *limit.Spec) { s.Max = limit.MaxInFlight })
		})
	}},
	{name: "Forget leaves leases", checks: []string{"LeasesForgotten"}, spoil: func(b *reference) {
		b.forget = func(k limit.Key) {
			if b.states[k].Leases == nil {
				delete(b.states, k)
			}
		}
	}},
	{name: "leases without a holder are granted", checks: []string{"OverCaps"}, spoil: func(b *reference) {
		check := b.check
		b.check = func(req *limit.Request) error {
			for i := range req.Ops {
				if op := &req.Ops[i]; op.Limit != nil && op.Limit.Algorithm() == limit.Concurrency {
					return nil
				}
			}
			return check(req)
		}
	}},
}
