package backendtest

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/limit"
)

// A reference is the plainest backend there is. Its fields are ways to be
// wrong, which the suite must notice.
type reference struct {
	caps   backends.Caps
	mu     sync.Mutex
	states map[limit.Key]limit.State
	at     limit.Instant // of the request that is being decided

	racy    bool // reads and writes are not one step
	reverse bool // decides a slice backwards
	// in and out change a request before, and its verdict after the decision.
	in  func(req *limit.Request)
	out func(req *limit.Request, v *limit.Verdict)
	// key changes keys; decide replaces limit.Decide.
	key    func(k limit.Key) limit.Key
	decide func(states []limit.State, req *limit.Request, v *limit.Verdict)
	// check replaces Caps.CheckRequest; forget and release replace theirs.
	check  func(req *limit.Request) error
	forget func(k limit.Key)
	clock  func() limit.Instant // by default the real one
	fresh  bool                 // does not reuse a verdict's memory
	deaf   bool                 // decides whatever its context says, yet fails
}

func referenceCaps() backends.Caps {
	c := backends.Caps{
		Name: "reference", Algorithms: map[limit.Algorithm]backends.AlgorithmCaps{},
		Atomicity: backends.Whole, ServerClock: true, Precision: time.Microsecond, MaxOps: 16,
	}
	for _, a := range limit.Algorithms() {
		c.Algorithms[a] = backends.AlgorithmCaps{MaxUnits: 1 << 20, Overflow: limit.Debt, Trips: 1}
	}
	c.Algorithms[limit.Concurrency] = backends.AlgorithmCaps{MaxUnits: limit.MaxInFlight, Trips: 1}
	return c
}

func newReference(spoil func(b *reference)) *reference {
	b := &reference{caps: referenceCaps(), states: map[limit.Key]limit.State{}}
	b.key = func(k limit.Key) limit.Key { return k }
	b.decide = func(states []limit.State, req *limit.Request, v *limit.Verdict) {
		limit.Decide(states, req, req.At, v, nil)
	}
	b.in, b.out = func(*limit.Request) {}, func(*limit.Request, *limit.Verdict) {}
	b.check = b.caps.CheckRequest
	b.forget = func(k limit.Key) { delete(b.states, k) }
	b.clock = func() limit.Instant { return limit.InstantOf(time.Now()) }
	if spoil != nil {
		spoil(b)
	}
	return b
}

func (b *reference) Take(ctx context.Context, reqs []limit.Request, out []limit.Verdict) {
	if ctx.Err() != nil && !b.deaf {
		backends.Fail(out, fmt.Errorf("%w: %w: %w", backends.ErrUnavailable, backends.ErrNotApplied, ctx.Err()))
		return
	}
	for n := range reqs {
		i := n
		if b.reverse {
			i = len(reqs) - 1 - n
		}
		req := limit.Request{At: reqs[i].At, Ops: slices.Clone(reqs[i].Ops)}
		if err := b.check(&req); err != nil {
			backends.Fail(out[i:i+1], err)
			continue
		}
		b.takeOne(&req, &out[i])
	}
	if ctx.Err() != nil {
		backends.Fail(out, fmt.Errorf("%w: %w: %w", backends.ErrUnavailable, backends.ErrNotApplied, ctx.Err()))
	}
}

func (b *reference) takeOne(req *limit.Request, v *limit.Verdict) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if req.At == 0 {
		req.At = b.clock()
	}
	b.in(req)
	b.at = req.At
	if b.fresh {
		*v = limit.Verdict{}
	}
	states := make([]limit.State, len(req.Ops))
	for i := range req.Ops {
		states[i] = b.states[b.key(req.Ops[i].Key)]
	}
	if b.racy {
		b.mu.Unlock()
		runtime.Gosched()
		b.mu.Lock()
	}
	b.decide(states, req, v)
	for i := len(req.Ops) - 1; i >= 0; i-- { // the first of several counts
		b.states[b.key(req.Ops[i].Key)] = states[i]
	}
	b.out(req, v)
}

func (b *reference) Forget(ctx context.Context, keys []limit.Key) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %w", backends.ErrUnavailable, ctx.Err())
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, k := range keys {
		b.forget(b.key(k))
	}
	return nil
}

func (b *reference) Ping(ctx context.Context) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %w", backends.ErrUnavailable, ctx.Err())
	}
	return nil
}

func (b *reference) Close() error { return nil }

func TestReferencePassesTheSuite(t *testing.T) {
	Run(t, Suite{Caps: referenceCaps(), Open: func(testing.TB) backends.Backend { return newReference(nil) }})
}

// TestReferenceCoarse runs the suite with the least that Caps can promise.
func TestReferenceCoarse(t *testing.T) {
	caps := referenceCaps()
	caps.Precision, caps.ServerClock, caps.MaxOps = time.Millisecond, false, 2
	delete(caps.Algorithms, limit.SlidingLog)
	caps.Algorithms[limit.FixedWindow] = backends.AlgorithmCaps{MaxUnits: 100, Trips: 1}
	caps.Algorithms[limit.Concurrency] = backends.AlgorithmCaps{MaxUnits: 40, Trips: 1}
	Run(t, Suite{Caps: caps, Open: func(testing.TB) backends.Backend {
		return newReference(func(b *reference) {
			b.caps = caps
			b.check = b.caps.CheckRequest
			b.in = func(req *limit.Request) { req.At -= req.At % 1000 }
		})
	}})
}

// TestReferencePartitions runs the checks of leases where a refused request over several
// groups may leave a trace of the leases that it took and gave back.
func TestReferencePartitions(t *testing.T) {
	caps := referenceCaps()
	caps.Atomicity = backends.PerPartition
	suite := Suite{Caps: caps, Open: func(testing.TB) backends.Backend {
		return newReference(func(b *reference) {
			b.decide = func(states []limit.State, req *limit.Request, v *limit.Verdict) {
				decideParted(states, req, v)
				for i := range req.Ops {
					op := &req.Ops[i]
					if !v.Admitted && severalGroups(req) && op.Limit.Algorithm() == limit.Concurrency && op.Cost > 0 &&
						v.Outcomes[i].Admitted {
						end := limit.Op{Key: op.Key, Limit: op.Limit, Cost: -1, Holder: op.Holder}
						states[i], _ = limit.Step(states[i], &end, req.At)
					}
				}
			}
		})
	}}
	for _, c := range checks {
		if strings.HasPrefix(c.name, "Lease") {
			t.Run(c.name, func(t *testing.T) { c.run(newEnv(t, suite)) })
		}
	}
}

// decideParted is limit.Decide in the order of several partitions.
func decideParted(states []limit.State, req *limit.Request, v *limit.Verdict) {
	if !severalGroups(req) {
		limit.Decide(states, req, req.At, v, nil)
		return
	}
	order, sorted, own := partedOrder(req), limit.Request{}, []limit.State(nil)
	for _, i := range order {
		sorted.Ops, own = append(sorted.Ops, req.Ops[i]), append(own, states[i])
	}
	var out limit.Verdict
	limit.Decide(own, &sorted, req.At, &out, nil)
	v.Reset(len(req.Ops))
	v.At, v.Admitted = out.At, out.Admitted
	for at, i := range order {
		v.Outcomes[i] = out.Outcomes[at]
		first := slices.IndexFunc(sorted.Ops, func(op limit.Op) bool { return op.Key == sorted.Ops[at].Key })
		states[i] = own[first]
	}
}

// A mutant is one bug.
type mutant struct {
	name   string
	spoil  func(b *reference)
	checks []string // of which at least these must fail
}

// eachOp runs f on every outcome.
func eachOp(f func(op *limit.Op, out *limit.Outcome)) func(*limit.Request, *limit.Verdict) {
	return func(req *limit.Request, v *limit.Verdict) {
		for i := range v.Outcomes {
			f(&req.Ops[i], &v.Outcomes[i])
		}
	}
}

// shifted decides at an instant later by what by returns.
func shifted(by func(req *limit.Request) limit.Instant) func(b *reference) {
	return func(b *reference) {
		b.decide = func(states []limit.State, req *limit.Request, v *limit.Verdict) {
			at := req.At
			limit.Decide(states, req, at+by(req), v, nil)
			v.At = at
		}
	}
}

var mutants = []mutant{
	{name: "window ends 1 µs early", checks: []string{"Model"}, spoil: shifted(func(req *limit.Request) limit.Instant {
		for i := range req.Ops {
			if w := limit.Instant(req.Ops[i].Limit.Window().Microseconds()); req.At%w == w-1 {
				return 1
			}
		}
		return 0
	})},
	{name: "window ends 1 µs late", checks: []string{"Model"}, spoil: shifted(func(req *limit.Request) limit.Instant {
		for i := range req.Ops {
			if w := limit.Instant(req.Ops[i].Limit.Window().Microseconds()); req.At%w == 0 {
				return -1
			}
		}
		return 0
	})},
	{name: "log keeps the record at exactly one window", checks: []string{"Model", "Retry"}, spoil: func(b *reference) {
		b.decide = func(states []limit.State, req *limit.Request, v *limit.Verdict) {
			at := req.At
			for i := range states {
				if log := states[i].Log; len(log) > 0 && req.Ops[i].Limit.Algorithm() == limit.SlidingLog &&
					log[0].At+limit.Instant(req.Ops[i].Limit.Window().Microseconds()) == at {
					at--
				}
			}
			limit.Decide(states, req, at, v, nil)
			v.At = req.At
		}
	}},
	{name: "Retry 1 µs short", checks: []string{"Model", "Retry"}, spoil: func(b *reference) {
		b.out = eachOp(func(_ *limit.Op, out *limit.Outcome) {
			if out.Retry > time.Microsecond {
				out.Retry -= time.Microsecond
			}
		})
	}},
	{name: "Retry 1 µs long", checks: []string{"Model", "Retry"}, spoil: func(b *reference) {
		b.out = eachOp(func(_ *limit.Op, out *limit.Outcome) {
			if out.Retry > 0 {
				out.Retry += time.Microsecond
			}
		})
	}},
	{name: "Retry of what never fits is the window", checks: []string{"Model"}, spoil: func(b *reference) {
		b.out = eachOp(func(op *limit.Op, out *limit.Outcome) {
			if out.Retry == limit.Never {
				out.Retry = op.Limit.Window()
			}
		})
	}},
	{name: "Reset too short", checks: []string{"Model", "Reset"}, spoil: func(b *reference) {
		b.out = eachOp(func(_ *limit.Op, out *limit.Outcome) { out.Reset -= out.Reset / 100 })
	}},
	{name: "Remaining of an op that is not recorded", checks: []string{"Model"}, spoil: func(b *reference) {
		b.out = func(req *limit.Request, v *limit.Verdict) {
			for i := range v.Outcomes {
				if out := &v.Outcomes[i]; !v.Admitted && out.Admitted && req.Ops[i].Cost > 0 {
					out.Remaining = max(0, out.Remaining-req.Ops[i].Cost)
				}
			}
		}
	}},
	{name: "not all or nothing", checks: []string{"Model", "RefusedChangesNothing", "CrossedKeys"},
		spoil: func(b *reference) {
			b.in = func(req *limit.Request) {
				for i := range req.Ops {
					req.Ops[i].Each = true
				}
			}
		}},
	{name: "a refused op leaves a trace", checks: []string{"Model"}, spoil: func(b *reference) {
		b.decide = func(states []limit.State, req *limit.Request, v *limit.Verdict) {
			limit.Decide(states, req, req.At, v, nil)
			for i := range states {
				if !v.Admitted && states[i].At < req.At && req.Ops[i].Limit.Algorithm() == limit.TokenBucket && states[i].M > 0 {
					states[i].At = req.At // the level of then, the instant of now
				}
			}
		}
	}},
	{name: "Each is ignored", checks: []string{"Model"}, spoil: func(b *reference) {
		b.in = func(req *limit.Request) {
			for i := range req.Ops {
				req.Ops[i].Each = false
			}
		}
	}},
	{name: "overflow is ignored", checks: []string{"Model", "Overflow", "OverflowElsewhere", "ParallelReports"},
		spoil: func(b *reference) {
			b.in = func(req *limit.Request) {
				for i := range req.Ops {
					req.Ops[i].Limit = req.Ops[i].Limit.Strict()
				}
			}
		}},
	{name: "debt is forgiven", checks: []string{"Model", "Overflow", "ParallelReports"}, spoil: func(b *reference) {
		b.in = func(req *limit.Request) {
			for i := range req.Ops {
				if l := req.Ops[i].Limit; l.Overflow() == limit.Debt {
					req.Ops[i].Limit, _ = l.WithOverflow(limit.Saturate, 0)
				}
			}
		}
	}},
	{name: "what a refused cost takes is not told", checks: []string{"Model", "Overflow", "ParallelReports"},
		spoil: func(b *reference) {
			b.out = eachOp(func(_ *limit.Op, out *limit.Outcome) { out.Taken = 0 })
		}},
	{name: "what overflows is undone with its request", checks: []string{"Model", "OverflowElsewhere"},
		spoil: func(b *reference) {
			b.decide = func(states []limit.State, req *limit.Request, v *limit.Verdict) {
				before := slices.Clone(states)
				limit.Decide(states, req, req.At, v, nil)
				if !v.Admitted && len(states) > 1 {
					copy(states, before)
				}
			}
		}},
	{name: "shadow flag is lost", checks: []string{"Model"}, spoil: func(b *reference) {
		b.in = func(req *limit.Request) {
			for i := range req.Ops {
				req.Ops[i].Shadow = false
			}
		}
	}},
	{name: "shadow ops are not counted", checks: []string{"Model"}, spoil: func(b *reference) {
		b.in = func(req *limit.Request) {
			for i := range req.Ops {
				if req.Ops[i].Shadow {
					req.Ops[i].Cost = 0
				}
			}
		}
	}},
	{name: "cost 0 takes one", checks: []string{"Model"}, spoil: func(b *reference) {
		b.in = func(req *limit.Request) {
			for i := range req.Ops {
				if req.Ops[i].Cost == 0 {
					req.Ops[i].Cost = 1
				}
			}
		}
	}},
	{name: "refunds are ignored", checks: []string{"Model", "Extremes"}, spoil: func(b *reference) {
		b.in = func(req *limit.Request) {
			for i := range req.Ops {
				req.Ops[i].Cost = max(req.Ops[i].Cost, 0)
			}
		}
	}},
	{name: "costs are truncated to 32 bits", checks: []string{"Model"}, spoil: func(b *reference) {
		b.in = func(req *limit.Request) {
			for i := range req.Ops {
				req.Ops[i].Cost = int64(int32(req.Ops[i].Cost))
			}
		}
	}},
	{name: "a changed limit does not take effect", checks: []string{"Model"}, spoil: func(b *reference) {
		first := map[limit.Key]*limit.Limit{}
		b.in = func(req *limit.Request) {
			for i := range req.Ops {
				op := &req.Ops[i]
				if first[op.Key] == nil {
					first[op.Key] = op.Limit
				}
				op.Limit = first[op.Key]
			}
		}
	}},
	{name: "the second op of a key does not see the first", checks: []string{"Model"}, spoil: func(b *reference) {
		b.in = func(req *limit.Request) {
			for i := range req.Ops {
				for j := range req.Ops[:i] {
					if req.Ops[i].Key == req.Ops[j].Key {
						req.Ops[i].Key.Limit += "'"
					}
				}
			}
		}
	}},
	{name: "all alternatives are charged", checks: []string{"Alternatives", "AlternativesInOrder", "AlternativesParallel"},
		spoil: func(b *reference) {
			b.in = func(req *limit.Request) {
				for i := range req.Ops {
					req.Ops[i].Choice = limit.Choice{}
				}
			}
		}},
	{name: "the last alternative is tried first", checks: []string{"Alternatives", "AlternativesInOrder"},
		spoil: func(b *reference) {
			b.in = func(req *limit.Request) {
				for i := range req.Ops {
					req.Ops[i].Choice.Group = 255 - req.Ops[i].Choice.Group
				}
			}
		}},
	{name: "all sets of alternatives are one", checks: []string{"Alternatives"}, spoil: func(b *reference) {
		b.in = func(req *limit.Request) {
			for i := range req.Ops {
				req.Ops[i].Choice.Set = min(req.Ops[i].Choice.Set, 1)
			}
		}
	}},
	{name: "slices are decided backwards", checks: []string{"Model", "SliceEqualsSingles"},
		spoil: func(b *reference) { b.reverse = true }},
	{name: "Forget does nothing", checks: []string{"Forget"}, spoil: func(b *reference) { b.forget = func(limit.Key) {} }},
	{name: "Forget takes the group along", checks: []string{"Forget"}, spoil: func(b *reference) {
		b.forget = func(k limit.Key) {
			for other := range b.states {
				if other.Group == k.Group {
					delete(b.states, other)
				}
			}
		}
	}},
	{name: "key halves run together", checks: []string{"Keys"}, spoil: func(b *reference) {
		b.key = func(k limit.Key) limit.Key { return limit.Key{Group: k.Group + k.Limit} }
	}},
	{name: "limits of a raw group are one counter", checks: []string{"RawGroups"}, spoil: func(b *reference) {
		b.key = func(k limit.Key) limit.Key {
			if limit.IsRawGroup(k.Group) {
				k.Limit = ""
			}
			return k
		}
	}},
	{name: "keys are compared without case", checks: []string{"Keys"}, spoil: func(b *reference) {
		b.key = func(k limit.Key) limit.Key { return limit.Key{Group: strings.ToLower(k.Group), Limit: k.Limit} }
	}},
	{name: "trailing spaces of keys are lost", checks: []string{"Keys"}, spoil: func(b *reference) {
		b.key = func(k limit.Key) limit.Key { return limit.Key{Group: strings.TrimRight(k.Group, " "), Limit: k.Limit} }
	}},
	{name: "keys are cut off", checks: []string{"Keys"}, spoil: func(b *reference) {
		b.key = func(k limit.Key) limit.Key { return limit.Key{Group: k.Group, Limit: k.Limit[:min(len(k.Limit), 255)]} }
	}},
	{name: "keys are not cleaned of bad UTF-8 apart", checks: []string{"Keys"}, spoil: func(b *reference) {
		b.key = func(k limit.Key) limit.Key {
			return limit.Key{Group: strings.ToValidUTF8(k.Group, "?"), Limit: k.Limit}
		}
	}},
	{name: "read, then write", checks: []string{"LastUnit", "ParallelTakes"}, spoil: func(b *reference) { b.racy = true }},
	{name: "bad requests are decided", checks: []string{"OverCaps"}, spoil: func(b *reference) {
		b.check = func(req *limit.Request) error {
			if len(req.Ops) > 0 && req.Ops[len(req.Ops)-1].Limit == nil {
				return b.caps.CheckRequest(req)
			}
			return nil
		}
	}},
	{name: "a verdict's memory is not reused", checks: []string{"VerdictMemory"},
		spoil: func(b *reference) { b.fresh = true }},
	{name: "cancelled, called not applied, yet applied", checks: []string{"Cancelled"},
		spoil: func(b *reference) { b.deaf = true }},
	{name: "clock is two seconds behind", checks: []string{"ServerClock"}, spoil: func(b *reference) {
		b.clock = func() limit.Instant { return limit.InstantOf(time.Now().Add(-2 * time.Second)) }
	}},
	{name: "a key's time never goes back", checks: []string{"Model", "ClockSteps"}, spoil: func(b *reference) {
		b.decide = func(states []limit.State, req *limit.Request, v *limit.Verdict) {
			at := req.At
			for i := range states {
				at = max(at, states[i].At)
			}
			limit.Decide(states, req, at, v, nil)
			v.At = req.At
		}
	}},
	{name: "a state that lies ahead is dropped", checks: []string{"Model", "ClockSteps"}, spoil: func(b *reference) {
		b.decide = func(states []limit.State, req *limit.Request, v *limit.Verdict) {
			for i := range states {
				if w := req.Ops[i].Limit.Window(); states[i].At > req.At.Add(max(w, limit.MinAhead)) {
					states[i] = limit.State{}
				}
			}
			limit.Decide(states, req, req.At, v, nil)
		}
	}},
	{name: "leases expire by the latest instant there was", checks: []string{"ClockSteps"}, spoil: func(b *reference) {
		latest := map[limit.Key]limit.Instant{}
		b.decide = func(states []limit.State, req *limit.Request, v *limit.Verdict) {
			at, k := req.At, req.Ops[0].Key
			if req.Ops[0].Limit.Algorithm() == limit.Concurrency {
				latest[k] = max(latest[k], at)
				at = latest[k]
			}
			limit.Decide(states, req, at, v, nil)
			v.At = req.At
		}
	}},
	{name: "a given instant is ignored", checks: []string{"Model", "ServerClock"}, spoil: func(b *reference) {
		b.in = func(req *limit.Request) { req.At = b.clock() }
	}},
	{name: "TTL of one window for a sliding window", checks: []string{"ServerClockModel"}, spoil: func(b *reference) {
		b.decide = func(states []limit.State, req *limit.Request, v *limit.Verdict) {
			real := limit.InstantOf(time.Now())
			for i := range states {
				w := limit.Instant(req.Ops[i].Limit.Window().Microseconds())
				if req.Ops[i].Limit.Algorithm() == limit.SlidingWindow && states[i].At+w <= real {
					states[i] = limit.State{}
				}
			}
			limit.Decide(states, req, req.At, v, nil)
		}
	}},
}

func TestSuiteNoticesEachMutant(t *testing.T) {
	for _, m := range slices.Concat(mutants, leaseMutants) {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			suite := Suite{Caps: referenceCaps(), Open: func(testing.TB) backends.Backend { return newReference(m.spoil) }}
			for _, c := range checks {
				if slices.Contains(m.checks, c.name) && !fails(t, c, suite) {
					t.Errorf("%s did not notice", c.name)
				}
			}
		})
	}
}

// onlyLong are the mutants that a short suite does not notice.
var onlyLong = []string{"TTL of one window for a sliding window"}

// The short suite, too, notices wrong stores; TestSuiteNoticesEachMutant holds each check to what it
// says here.
func TestShortSuiteNoticesMutants(t *testing.T) {
	for kind, names := range chosen {
		for _, name := range names {
			if !slices.ContainsFunc(checks, func(c check) bool { return c.name == name }) {
				t.Errorf("%s: there is no check %s", kind, name)
			}
		}
	}
	for _, m := range slices.Concat(mutants, leaseMutants) {
		noticed := slices.ContainsFunc(short(), func(c check) bool { return slices.Contains(m.checks, c.name) })
		if missed := slices.Contains(onlyLong, m.name); noticed == missed {
			t.Errorf("%s: noticed %v, want %v", m.name, noticed, !missed)
		}
	}
}

// Where requests of many scripts are one slice, mutants are noticed as well.
func TestClockStepsInSlicesNoticesMutants(t *testing.T) {
	suite := Suite{Caps: referenceCaps(), Rounds: manyRounds - 1}
	at := slices.IndexFunc(checks, func(c check) bool { return c.name == "ClockSteps" })
	for _, m := range mutants {
		if !slices.Contains(m.checks, checks[at].name) {
			continue
		}
		suite.Open = func(testing.TB) backends.Backend { return newReference(m.spoil) }
		if !fails(t, checks[at], suite) {
			t.Errorf("%s: not noticed", m.name)
		}
	}
}

// fails runs one check and reports whether it failed.
func fails(t *testing.T, c check, s Suite) bool {
	w := &watcher{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer w.cleanUp()
		c.run(newEnv(w, s))
	}()
	<-done
	return w.failed
}

// A watcher is a testing.TB that keeps failures to itself.
type watcher struct {
	testing.TB
	mu       sync.Mutex
	failed   bool
	cleanups []func()
}

func (w *watcher) fail() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failed = true
}

func (w *watcher) cleanUp() {
	for _, f := range slices.Backward(w.cleanups) {
		f()
	}
}

func (w *watcher) Helper()               {}
func (w *watcher) Cleanup(f func())      { w.cleanups = append(w.cleanups, f) }
func (w *watcher) Log(...any)            {}
func (w *watcher) Logf(string, ...any)   {}
func (w *watcher) Error(...any)          { w.fail() }
func (w *watcher) Errorf(string, ...any) { w.fail() }
func (w *watcher) FailNow()              { w.fail(); runtime.Goexit() }
func (w *watcher) Fatal(...any)          { w.FailNow() }
func (w *watcher) Fatalf(string, ...any) { w.FailNow() }
func (w *watcher) Skip(...any)           { runtime.Goexit() }
func (w *watcher) Skipf(string, ...any)  { runtime.Goexit() }
