package limit

import (
	"errors"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/test/random"
)

// TestDecideAgainstNaive plays random scripts; FuzzDecide searches for more.
func TestDecideAgainstNaive(t *testing.T) {
	r := seeded(t)
	for range random.Times(60, 200) {
		b := make([]byte, 300)
		for i := range b {
			b[i] = byte(r.IntN(256))
		}
		playScript(t, b)
	}
}

// decide answers ops on copies of states and returns the states afterwards.
func decide(states []State, ops []Op, now Instant) ([]State, Verdict) {
	next := make([]State, len(states))
	for i := range states {
		next[i] = clone(states[i])
	}
	var v Verdict
	Decide(next, &Request{Ops: ops}, now, &v, nil)
	return next, v
}

// requests plays random requests over a few keys and calls check before each
// is recorded. With dups, ops of a request may share a key.
func requests(t *testing.T, dups bool, check func(t *testing.T, states []State, ops []Op, now Instant)) {
	r := seeded(t)
	limits := decideLimits()
	for range 60 {
		s := script{now: 1_700_000_000_000_000}
		kept := map[Key]State{}
		for range 50 {
			s.b = make([]byte, 12)
			for i := range s.b {
				s.b[i] = byte(r.IntN(256))
			}
			req := s.request(limits)
			for i := range req.Ops {
				req.Ops[i].Choice = Choice{}
			}
			if !dups {
				for i := len(req.Ops) - 1; i >= 0; i-- {
					if firstWithKey(req.Ops, i) != i {
						req.Ops = slices.Delete(req.Ops, i, i+1)
					}
				}
			}
			if s.now > MaxInstant/2 {
				break
			}
			states := make([]State, len(req.Ops))
			for i := range req.Ops {
				states[i] = kept[req.Ops[i].Key]
			}
			check(t, states, req.Ops, s.now)
			if t.Failed() {
				t.Fatalf("at %d: %s", s.now, describe(req.Ops))
			}
			states, v := decide(states, req.Ops, s.now)
			for i := range req.Ops {
				if firstWithKey(req.Ops, i) == i {
					kept[req.Ops[i].Key] = states[i]
				}
				if retry := v.Outcomes[i].Retry; retry > 0 {
					s.retry = retry
				}
			}
		}
	}
}

func TestDecideAdmitsIffEveryOpHasRoom(t *testing.T) {
	requests(t, true, func(t *testing.T, states []State, ops []Op, now Instant) {
		_, v := decide(states, ops, now)
		want := true
		for i := range ops {
			want = want && (ops[i].Shadow || v.Outcomes[i].Admitted)
		}
		each := slices.ContainsFunc(ops, func(op Op) bool { return op.Each })
		// An op with Each that shares its key can find room once the others
		// are not recorded; the request stays refused.
		if v.Admitted && !want || !each && v.Admitted != want {
			t.Errorf("admitted %v, outcomes %+v", v.Admitted, v.Outcomes)
		}
		if v.At != now {
			t.Errorf("decided at %d", v.At)
		}
	})
}

func TestDecideAdmittedEqualsSteps(t *testing.T) {
	requests(t, true, func(t *testing.T, states []State, ops []Op, now Instant) {
		got, v := decide(states, ops, now)
		if !v.Admitted {
			return
		}
		one := map[Key]State{}
		for i := range ops {
			if firstWithKey(ops, i) == i {
				one[ops[i].Key] = clone(states[i])
			}
			var out Outcome
			one[ops[i].Key], out = Step(one[ops[i].Key], &ops[i], now)
			if out != v.Outcomes[i] {
				t.Errorf("op %d: %+v, alone %+v", i, v.Outcomes[i], out)
			}
		}
		for i := range ops {
			if firstWithKey(ops, i) == i && !equal(got[i], one[ops[i].Key]) {
				t.Errorf("op %d: state %+v, alone %+v", i, got[i], one[ops[i].Key])
			}
		}
	})
}

// TestDecideRefusedRecordsOnlyEach: what is not Each and does not overflow leaves
// no trace, and its outcome states what is left without it.
func TestDecideRefusedRecordsOnlyEach(t *testing.T) {
	requests(t, true, func(t *testing.T, states []State, ops []Op, now Instant) {
		got, v := decide(states, ops, now)
		if v.Admitted {
			return
		}
		want := make([]State, len(states))
		for i := range states {
			want[i], _ = try(states[i], ops[i].Limit, 0, now) // a clock that stepped back has moved it
		}
		charged := make([]bool, len(ops))
		first := make([]State, len(ops)) // where all ops are recorded
		for i := range states {
			first[i] = clone(want[i])
		}
		for i := range ops {
			at := firstWithKey(ops, i)
			var out Outcome
			first[at], out = Step(first[at], &ops[i], now)
			for j := range ops {
				charged[j] = charged[j] || ops[j].Each || !out.Admitted && ops[j].Cost > 0 && ops[i].Cost > 0 &&
					ops[i].Limit.Overflow() != Refuse && ops[j].Key == ops[i].Key
			}
		}
		for i := range ops {
			if charged[i] {
				at := firstWithKey(ops, i)
				want[at], _ = Step(want[at], &ops[i], now)
			}
		}
		for i := range ops {
			at := firstWithKey(ops, i)
			if !equal(got[at], want[at]) {
				t.Errorf("op %d: state %+v, want %+v", i, got[at], want[at])
			}
			_, peek := try(got[at], ops[i].Limit, 0, now)
			if out := v.Outcomes[i]; !charged[i] && (out.Remaining != peek.Remaining || out.Reset != peek.Reset) {
				t.Errorf("op %d: %+v, but a peek says %+v", i, out, peek)
			}
		}
	})
}

func TestDecideOrderDoesNotMatter(t *testing.T) {
	requests(t, false, func(t *testing.T, states []State, ops []Op, now Instant) {
		got, v := decide(states, ops, now)
		back, mirror := slices.Clone(states), slices.Clone(ops)
		slices.Reverse(back)
		slices.Reverse(mirror)
		back, w := decide(back, mirror, now)
		slices.Reverse(back)
		slices.Reverse(w.Outcomes)
		if v.Admitted != w.Admitted || !slices.Equal(v.Outcomes, w.Outcomes) || !slices.EqualFunc(got, back, equal) {
			t.Errorf("%v %+v, in reverse %v %+v", v.Admitted, v.Outcomes, w.Admitted, w.Outcomes)
		}
	})
}

// TestDecideRetry: once every refused op's Retry is over, the request is
// admitted; 1 µs earlier it is not.
func TestDecideRetry(t *testing.T) {
	requests(t, false, func(t *testing.T, states []State, ops []Op, now Instant) {
		after, v := decide(states, ops, now)
		var wait time.Duration
		for i, out := range v.Outcomes {
			switch {
			case ops[i].Each:
				return // charged although refused
			case out.Admitted || ops[i].Shadow:
			case out.Retry == Never:
				return
			default:
				wait = max(wait, out.Retry)
			}
		}
		if v.Admitted {
			return
		}
		if _, then := decide(after, ops, now.Add(wait)); !then.Admitted {
			t.Errorf("%+v, yet after %v %+v", v.Outcomes, wait, then.Outcomes)
		}
		if _, then := decide(after, ops, now.Add(wait)-1); then.Admitted {
			t.Errorf("%+v, yet admitted 1 µs before %v", v.Outcomes, wait)
		}
	})
}

func TestDecideShadowNeverRefuses(t *testing.T) {
	requests(t, true, func(t *testing.T, states []State, ops []Op, now Instant) {
		all := slices.Clone(ops)
		for i := range all {
			all[i].Shadow = true
		}
		if _, v := decide(states, all, now); !v.Admitted {
			t.Error("refused, though all ops are shadows")
		}
	})
}

// TestDecideOutcomes spells a few refusals out.
func TestDecideOutcomes(t *testing.T) {
	ten := MustNew(Spec{Algorithm: FixedWindow, Max: 10, Window: time.Second})
	none := MustNew(Spec{Algorithm: FixedWindow, Max: 0, Window: time.Second})
	k, other := Key{"a", "1"}, Key{"b", "1"}
	refuses := Op{Key: other, Limit: none, Cost: 1}
	never := Outcome{Retry: Never, Reset: time.Second}
	free := Outcome{Admitted: true, Remaining: 10, Reset: time.Second}
	for _, c := range []struct {
		name     string
		ops      []Op
		admitted bool
		want     []Outcome
		used     int64 // of ten afterwards
	}{
		{"no ops", nil, true, nil, 0},
		{"one op", []Op{{Key: k, Limit: ten, Cost: 4}}, true,
			[]Outcome{{Admitted: true, Remaining: 6, Reset: time.Second}}, 4},
		{"refused, nothing taken", []Op{{Key: k, Limit: ten, Cost: 4}, refuses}, false, []Outcome{free, never}, 0},
		{"Each is charged", []Op{{Key: k, Limit: ten, Cost: 4, Each: true}, refuses}, false,
			[]Outcome{{Admitted: true, Remaining: 6, Reset: time.Second}, never}, 4},
		{"shadow does not refuse", []Op{{Key: k, Limit: ten, Cost: 4}, {Key: other, Limit: none, Cost: 1, Shadow: true}},
			true,
			[]Outcome{{Admitted: true, Remaining: 6, Reset: time.Second}, never}, 4},
		{"shadow is not recorded when others refuse", []Op{{Key: k, Limit: ten, Cost: 4, Shadow: true}, refuses}, false,
			[]Outcome{free, never}, 0},
		{"shared key, both fit", []Op{{Key: k, Limit: ten, Cost: 4}, {Key: k, Limit: ten, Cost: 6}}, true,
			[]Outcome{{Admitted: true, Remaining: 6, Reset: time.Second},
				{Admitted: true, Retry: time.Second, Reset: time.Second}}, 10},
		{"shared key, second lacks room", []Op{{Key: k, Limit: ten, Cost: 6}, {Key: k, Limit: ten, Cost: 6}}, false,
			[]Outcome{free, {Remaining: 10, Retry: time.Second, Reset: time.Second}}, 0},
		{"shared key, second is a shadow", []Op{{Key: k, Limit: ten, Cost: 6}, {Key: k, Limit: ten, Cost: 6, Shadow: true}},
			true,
			[]Outcome{{Admitted: true, Remaining: 4, Retry: time.Second, Reset: time.Second},
				{Remaining: 4, Retry: time.Second, Reset: time.Second}}, 6},
		{"refund is not recorded either", []Op{{Key: k, Limit: ten, Cost: -4}, refuses}, false, []Outcome{free, never}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			states, v := decide(make([]State, len(c.ops)), c.ops, 0)
			if v.Admitted != c.admitted || !slices.Equal(v.Outcomes, c.want) {
				t.Errorf("admitted %v, %+v\nwant %v, %+v", v.Admitted, v.Outcomes, c.admitted, c.want)
			}
			if len(states) > 0 && states[0].N != c.used {
				t.Errorf("%d units are used, want %d", states[0].N, c.used)
			}
		})
	}
}

// TestDecideReusesMemory: a verdict's earlier content does not show, and
// deciding with given memory allocates nothing.
func TestDecideReusesMemory(t *testing.T) {
	for _, refused := range []bool{false, true} {
		var req Request
		for i, l := range []*Limit{
			MustNew(Spec{Algorithm: FixedWindow, Max: MaxUnits, Window: time.Second}),
			MustNew(Spec{Algorithm: SlidingWindow, Max: MaxSlidingWindowUnits, Window: time.Second}),
			MustNew(Spec{Algorithm: TokenBucket, Max: 1000, Window: time.Second}),
		} {
			req.Ops = append(req.Ops, Op{Key: Key{Group: "g", Limit: strconv.Itoa(i)}, Limit: l, Cost: 1, Each: i == 1})
		}
		if refused {
			req.Ops[2].Cost = 1001
		}
		states, scratch := make([]State, 3), make([]State, 3)
		v := Verdict{Err: errors.New("from before"), Outcomes: make([]Outcome, 3, 8)}
		v.Outcomes[0].Retry = Never
		now := Instant(1_700_000_000_000_000)
		if n := testing.AllocsPerRun(100, func() {
			now += 1000
			Decide(states, &req, now, &v, scratch)
		}); n != 0 {
			t.Errorf("refused %v: %v allocations", refused, n)
		}
		if v.Admitted == refused || v.Err != nil || len(v.Outcomes) != 3 || cap(v.Outcomes) != 8 || v.Outcomes[0].Retry != 0 {
			t.Errorf("refused %v: %+v", refused, v)
		}
	}
}
