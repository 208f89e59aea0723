package limit

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/test/random"
)

// A naiveSet is leases as the documentation describes them: lists, searched
// from end to end.
type naiveSet struct {
	leases  []naiveLease
	refused []Record // each refusal, At is when it is forgotten
	ended   []naiveLease
}

type naiveLease struct {
	holder string
	until  int64 // ms
	again  int
}

func (n *naiveSet) clone() *naiveSet {
	return &naiveSet{slices.Clone(n.leases), slices.Clone(n.refused), slices.Clone(n.ended)}
}

func (n *naiveSet) drop(now Instant) {
	n.leases = slices.DeleteFunc(n.leases, func(l naiveLease) bool { return l.until*1000 <= int64(now) })
	n.refused = slices.DeleteFunc(n.refused, func(r Record) bool { return r.At <= now })
	n.ended = slices.DeleteFunc(n.ended, func(l naiveLease) bool { return l.until*1000 <= int64(now) })
	sort.Slice(n.leases, func(i, j int) bool {
		a, b := n.leases[i], n.leases[j]
		return a.until < b.until || a.until == b.until && (a.again < b.again || a.again == b.again && a.holder < b.holder)
	})
}

func (n *naiveSet) find(holder string) int {
	return slices.IndexFunc(n.leases, func(l naiveLease) bool { return l.holder == holder })
}

func (n *naiveSet) gone(holder string) bool {
	return slices.ContainsFunc(n.ended, func(l naiveLease) bool { return l.holder == holder })
}

func millis(t Instant) int64 { return (int64(t) + 999) / 1000 }

// take decides a request of one op, and of one that was granted before.
func (n *naiveSet) take(op *Op, now Instant) Outcome {
	n.drop(now)
	var out Outcome
	refused := int64(0)
	at := n.find(op.Holder)
	until := millis(now.Add(op.Limit.Window()))
	switch {
	case op.Cost > 0 && at >= 0:
		n.leases[at].again = min(n.leases[at].again+1, 7)
		n.leases[at].until = max(n.leases[at].until, until)
		out.Admitted, out.Held = true, true
	case op.Cost > 0 && n.gone(op.Holder):
		refused = 1
	case op.Cost > 0 && int64(len(n.leases)) >= op.Limit.Max():
		if hold, step := op.Limit.Hold(); hold > 0 {
			n.moveRefused(op.Limit, now)
			n.refused = append(n.refused, Record{At: ceilTo(now.Add(hold), step), N: 1})
		} else {
			refused = 1
		}
	case op.Cost > 0:
		n.leases = append(n.leases, naiveLease{op.Holder, until, 0})
		out.Admitted = true
	case op.Cost == 0 && op.Holder == "":
		out.Admitted = int64(len(n.leases)) < op.Limit.Max()
	case op.Cost == 0:
		if out.Held = at >= 0; out.Held {
			n.leases[at].until, n.leases[at].again = max(n.leases[at].until, until), 7
		}
		out.Admitted = out.Held
	case op.Ending == EndLate:
		out.Admitted = true
		before := len(n.leases)
		till := int64(now) - max(op.Cost, -1<<20)*1000
		n.leases = slices.DeleteFunc(n.leases, func(l naiveLease) bool { return l.until*1000 <= till })
		out.Held = len(n.leases) < before
	case op.Holder == "":
		out.Admitted = true
		n.moveRefused(op.Limit, now)
		sort.Slice(n.refused, func(i, j int) bool { return n.refused[i].At < n.refused[j].At })
		for i := op.Cost; i < 0; i++ {
			switch {
			case len(n.refused) > 0:
				n.refused = n.refused[1:]
			case len(n.leases) > 0:
				n.leases = n.leases[1:]
			default:
				continue
			}
			out.Held = true
		}
	case op.Ending == EndOwner:
		out.Admitted = true
		before := len(n.leases)
		n.leases = slices.DeleteFunc(n.leases, func(l naiveLease) bool { return strings.HasPrefix(l.holder, op.Holder) })
		out.Held = len(n.leases) < before
	default:
		out.Admitted, out.Held = true, at >= 0
		switch {
		case at < 0 && op.Ending == EndKnown:
		case at < 0:
			n.ended = slices.DeleteFunc(n.ended, func(l naiveLease) bool { return l.holder == op.Holder })
			n.ended = append(n.ended, naiveLease{holder: op.Holder, until: millis(now.Add(EndedLife))})
		case op.Ending == EndAttempt && n.leases[at].again > 0:
			n.leases[at].again--
		default:
			n.leases = slices.Delete(n.leases, at, at+1)
		}
	}
	n.describe(op, now, refused, &out)
	return out
}

func (n *naiveSet) describe(op *Op, now Instant, refused int64, out *Outcome) {
	n.drop(now)
	if op.Cost > 0 {
		n.moveTo(op.Limit, now)
	}
	count := int64(len(n.leases))
	out.Remaining, out.InFlight = max(op.Limit.Max()-count, 0), count
	if !out.Admitted || op.Cost == 0 {
		out.InFlight += int64(len(n.refused)) + refused
	}
	if count > 0 {
		out.Reset = time.Duration(n.leases[count-1].until*1000-int64(now)) * time.Microsecond
	}
	switch {
	case op.Cost < 0 && op.Ending == EndOwner && op.Holder != "": // so few are one slice
	case op.Limit.Max() == 0, op.Cost > 0 && !out.Admitted && n.gone(op.Holder),
		op.Cost == 0 && op.Holder != "" && !out.Held:
		out.Retry = Never
	case count >= op.Limit.Max():
		out.Retry = time.Duration(n.leases[count-op.Limit.Max()].until*1000-int64(now)) * time.Microsecond
	}
}

// moveTo moves the ends of leases that a clock set which has stepped back since.
func (n *naiveSet) moveTo(l *Limit, now Instant) {
	for i := range n.leases {
		if far := Instant(n.leases[i].until*1000) - now; far > micro(l.Window()+max(l.Window(), MinAhead)) {
			n.leases[i].until = millis(now.Add(l.Window()))
		}
	}
	n.drop(now)
}

// moveRefused does the same with refusals.
func (n *naiveSet) moveRefused(l *Limit, now Instant) {
	hold, step := l.Hold()
	for i := range n.refused {
		if far := n.refused[i].At - now; far <= micro(hold+max(l.Window(), MinAhead)) {
			continue
		}
		n.refused[i].At = now
		if hold > 0 {
			n.refused[i].At = ceilTo(now.Add(hold), step)
		}
	}
	n.refused = slices.DeleteFunc(n.refused, func(r Record) bool { return r.At == now })
}

func ceilTo(t Instant, step time.Duration) Instant {
	s := micro(step)
	return (t + s - 1) / s * s
}

var inFlightHolders = []string{"a1", "a2", "a3", "b1", "b2", "c1", "c2", "c3", "c4"}

func randomLeaseOp(r *rand.Rand, l *Limit, k Key) Op {
	op := Op{Key: k, Limit: l, Cost: 1, Holder: inFlightHolders[r.IntN(len(inFlightHolders))]}
	switch r.IntN(10) {
	case 0, 1, 2:
		op.Cost = -1
	case 3:
		op.Cost, op.Ending = -1, []Ending{EndAttempt, EndKnown}[r.IntN(2)]
	case 4:
		op.Cost = 0
	case 5:
		op.Cost, op.Holder = 0, ""
	case 6:
		if r.IntN(3) == 0 {
			op.Cost, op.Holder = -r.Int64N(4), ""
		}
	case 7:
		if r.IntN(4) == 0 {
			op.Cost, op.Holder, op.Ending = -1, op.Holder[:1], EndOwner
		}
	case 8:
		if r.IntN(4) == 0 {
			op.Cost, op.Holder, op.Ending = -1-r.Int64N(1000), "", EndLate
		}
	}
	return op
}

func randomInFlight(r *rand.Rand) *Limit {
	window := []time.Duration{time.Millisecond, 50 * time.Millisecond, time.Second, 1234567 * time.Microsecond,
		time.Hour}[r.IntN(5)]
	hold := []time.Duration{0, 0, window, window / 2, window / 1000 * 7}[r.IntN(5)].Truncate(time.Microsecond)
	return MustNew(Spec{Algorithm: Concurrency, Max: r.Int64N(7), Window: window, Hold: hold})
}

// TestConcurrencyNaive compares random ops, one by one and with limits that
// change, with the naive set.
func TestConcurrencyNaive(t *testing.T) {
	for seed := range random.Seeds(t, uint64(random.Times(120, 400))) {
		r := rand.New(rand.NewPCG(seed, 1))
		var s State
		n := &naiveSet{}
		now := Instant(1_700_000_000_000_000)
		l := randomInFlight(r)
		var past []string
		for range 200 {
			if r.IntN(20) == 0 {
				l = randomInFlight(r)
			}
			if r.IntN(2) == 0 {
				now += Instant(r.Int64N(int64(l.Window().Microseconds())/4 + 2))
			}
			op := randomLeaseOp(r, l, Key{Group: "g"})
			want := n.take(&op, now)
			var got Outcome
			if r.IntN(2) == 0 {
				s, got = Step(s, &op, now)
			} else {
				states, v := []State{s}, Verdict{}
				Decide(states, &Request{Ops: []Op{op}}, now, &v, nil)
				s, got = states[0], v.Outcomes[0]
				if want.Held && op.Cost > 0 {
					got.Retry = want.Retry // a request that was granted before need not wait
				}
			}
			past = append(past, fmt.Sprintf("at %d %+v hold %v: %+v", now, op, l.Spec(), got))
			if got != want {
				t.Fatalf("seed %d:\ngot  %+v\nwant %+v\n%s", seed, got, want, strings.Join(past[max(0, len(past)-12):], "\n"))
			}
			if ends := l.Ends(s); s.Leases != nil && (len(n.leases) > 0 && int64(ends) < n.leases[len(n.leases)-1].until*1000) {
				t.Fatalf("seed %d: the state ends at %d, before its last lease", seed, ends)
			}
		}
	}
}

// TestConcurrencyRequests: all of a request or nothing is done, and the state
// afterwards is the one of the naive set.
func TestConcurrencyRequests(t *testing.T) {
	for seed := range random.Seeds(t, uint64(random.Times(120, 400))) {
		r := rand.New(rand.NewPCG(seed, 2))
		var limits []*Limit
		var sets []*naiveSet
		states := map[Key]State{}
		keys := []Key{{"g", "0"}, {"g", "1"}, {"h", "2"}}
		for range keys {
			limits, sets = append(limits, randomInFlight(r)), append(sets, &naiveSet{})
		}
		bucket := MustNew(Spec{Algorithm: TokenBucket, Max: 3, Window: time.Second})
		now := Instant(1_700_000_000_000_000)
		for step := range 120 {
			now += Instant(r.Int64N(300_000))
			var req Request
			for i, k := range keys {
				if r.IntN(2) == 0 {
					op := randomLeaseOp(r, limits[i], k)
					op.Shadow, op.Each = r.IntN(4) == 0, r.IntN(3) == 0
					req.Ops = append(req.Ops, op)
				}
			}
			req.Ops = append(req.Ops, Op{Key: Key{"b", ""}, Limit: bucket, Cost: 1})
			st := make([]State, len(req.Ops))
			for i := range req.Ops {
				st[i] = states[req.Ops[i].Key]
			}
			level, _ := Step(st[len(st)-1], &Op{Limit: bucket}, now)
			var v Verdict
			Decide(st, &req, now, &v, nil)
			for i := range req.Ops {
				states[req.Ops[i].Key] = st[i]
			}
			wantRequest(t, fmt.Sprintf("seed %d, step %d", seed, step), keys, sets, &req, now, &v)
			_, after := Step(st[len(st)-1], &Op{Limit: bucket}, now)
			if !v.Admitted {
				if _, before := Step(level, &Op{Limit: bucket}, now); after != before {
					t.Fatalf("seed %d: a refused request took a token", seed)
				}
			}
			for i, k := range keys {
				ask := Op{Limit: limits[i]}
				_, got := Step(states[k], &ask, now)
				if want := sets[i].clone().take(&ask, now); got != want {
					t.Fatalf("seed %d, step %d, key %v after %+v:\ngot  %+v\nwant %+v\nverdict %+v", seed, step, k, req.Ops,
						got, want, v)
				}
			}
		}
	}
}

// wantRequest does to the sets what a request that got v must have done.
func wantRequest(t *testing.T, where string, keys []Key, sets []*naiveSet, req *Request, now Instant, v *Verdict) {
	t.Helper()
	set := func(op *Op) *naiveSet {
		if i := slices.Index(keys, op.Key); i >= 0 {
			return sets[i]
		}
		return nil
	}
	again := false
	for i := range req.Ops {
		if op := &req.Ops[i]; op.Limit.Algorithm() == Concurrency && op.Cost > 0 {
			set(op).drop(now)
			again = again || set(op).find(op.Holder) >= 0
		}
	}
	for i := range req.Ops {
		op := &req.Ops[i]
		if op.Limit.Algorithm() != Concurrency {
			continue
		}
		n := set(op)
		trial := n.clone()
		out := trial.take(op, now)
		n.drop(now)
		switch held := n.find(op.Holder) >= 0; {
		case again && op.Cost > 0 && held, !again && v.Admitted:
			*n = *trial
		case again || out.Admitted:
			out.Admitted = true // not done
		default: // refused, and remembered
			n.refused = trial.refused
		}
		if v.Outcomes[i].Admitted != out.Admitted {
			t.Fatalf("%s, op %d of %+v: %+v, want %+v", where, i, req.Ops, v.Outcomes[i], out)
		}
	}
	if again && !v.Admitted {
		t.Fatalf("%s: a request that was granted before is refused: %+v", where, v)
	}
}

// TestChargedOnce: a caller that asks again, with a lease that was granted, is not
// charged again for anything; a caller that is done has nothing left.
func TestChargedOnce(t *testing.T) {
	l := MustNew(Spec{Algorithm: Concurrency, Max: 2, Window: time.Minute})
	bucket := MustNew(Spec{Algorithm: TokenBucket, Max: 1, Window: time.Hour})
	states := make([]State, 2)
	now := Instant(1_700_000_000_000_000)
	take := func(holder string) Verdict {
		var v Verdict
		Decide(states, &Request{Ops: []Op{
			{Key: Key{Limit: "l"}, Limit: l, Cost: 1, Holder: holder}, {Key: Key{Limit: "b"}, Limit: bucket, Cost: 1},
		}}, now, &v, nil)
		return v
	}
	if v := take("x"); !v.Admitted || v.Outcomes[0].InFlight != 1 || v.Outcomes[0].Held {
		t.Fatalf("%+v", v)
	}
	for range 3 {
		if v := take("x"); !v.Admitted || v.Outcomes[0].InFlight != 1 || !v.Outcomes[0].Held || v.Outcomes[1].Remaining != 0 {
			t.Fatalf("again: %+v", v)
		}
	}
	if v := take("y"); v.Admitted || v.Outcomes[0].InFlight != 1 {
		t.Fatalf("another: %+v", v)
	}
	end := Op{Limit: l, Cost: -1, Holder: "x", Ending: EndAttempt}
	for range 3 {
		if _, out := Step(states[0], &end, now); out.InFlight != 1 || !out.Held {
			t.Fatalf("an attempt of several is taken back: %+v", out)
		}
	}
	if _, out := Step(states[0], &end, now); out.InFlight != 0 || !out.Held {
		t.Fatalf("the last attempt is taken back: %+v", out)
	}
	if _, out := Step(states[0], &end, now); out.InFlight != 0 || out.Held {
		t.Fatalf("one more: %+v", out)
	}
	if v := take("x"); v.Admitted || v.Outcomes[0].Retry != Never {
		t.Fatalf("an acquire that its end has overtaken: %+v", v)
	}
}

// TestAnonymousReleasesKeepTheCount: where everybody gives back without a name, also who was
// refused, the count stays right.
func TestAnonymousReleasesKeepTheCount(t *testing.T) {
	l := MustNew(Spec{Algorithm: Concurrency, Max: 3, Window: time.Minute, Hold: time.Minute})
	var s State
	now := Instant(1_700_000_000_000_000)
	admitted, out := 0, Outcome{}
	for i := range 10 {
		if s, out = Step(s, &Op{Limit: l, Cost: 1, Holder: strconv.Itoa(i)}, now); out.Admitted {
			admitted++
		}
	}
	if admitted != 3 || out.InFlight != 10 {
		t.Fatalf("%d admitted, %+v", admitted, out)
	}
	for i := range 10 {
		s, out = Step(s, &Op{Limit: l, Cost: -1}, now)
		if want := min(3, int64(9-i)); out.InFlight != want {
			t.Fatalf("after %d came back: %+v, want %d in flight", i+1, out, want)
		}
	}
	if s, out = Step(s, &Op{Limit: l, Cost: -5}, now); out.InFlight != 0 || out.Remaining != 3 || out.Held {
		t.Fatalf("more than there was: %+v", out)
	}
	if ends := l.Ends(s); ends > now {
		t.Fatalf("nothing is left, until %v", ends)
	}
}

// TestExpireMany: 10^5 leases that expire at once leave nothing, and what it
// costs is no more than to look at each once.
func TestExpireMany(t *testing.T) {
	const n = 100_000
	l := MustNew(Spec{Algorithm: Concurrency, Max: n, Window: time.Second})
	var s State
	now := Instant(1_700_000_000_000_000)
	for i := range n {
		var out Outcome
		if s, out = Step(s, &Op{Limit: l, Cost: 1, Holder: strconv.Itoa(i)}, now); !out.Admitted {
			t.Fatalf("%d: %+v", i, out)
		}
	}
	if _, out := Step(s, &Op{Limit: l, Cost: 1, Holder: "one more"}, now); out.Admitted || out.Retry != time.Second {
		t.Fatalf("%+v", out)
	}
	now = now.Add(time.Second)
	s, out := Step(s, &Op{Limit: l, Cost: 1, Holder: "next"}, now)
	if !out.Admitted || out.InFlight != 1 || len(s.Leases.queue) != 1 || len(s.Leases.scores) != 1 {
		t.Fatalf("%+v, %d leases kept", out, len(s.Leases.queue))
	}
}

// TestLeaseSetBounded: what comes and goes leaves no trace that grows.
func TestLeaseSetBounded(t *testing.T) {
	l := MustNew(Spec{Algorithm: Concurrency, Max: 10, Window: time.Hour, Hold: time.Minute})
	var s State
	now := Instant(1_700_000_000_000_000)
	for i := range 50_000 {
		h := strconv.Itoa(i)
		s, _ = Step(s, &Op{Limit: l, Cost: 1, Holder: h}, now)
		s, _ = Step(s, &Op{Limit: l, Cost: 1, Holder: h}, now)
		s, _ = Step(s, &Op{Limit: l, Cost: -1, Holder: h}, now)
		s, _ = Step(s, &Op{Limit: l, Cost: -1, Holder: "unknown" + h}, now)
		now += 200_000
	}
	set := s.Leases
	if len(set.scores) != 0 || len(set.queue) > 64 || len(set.ended) > maxEnded || len(set.refused) > 2*holdSteps {
		t.Errorf("%d leases, %d queued, %d ends, %d refusals", len(set.scores), len(set.queue), len(set.ended),
			len(set.refused))
	}
}
