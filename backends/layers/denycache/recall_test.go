package denycache

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/limit"
)

// fail has the store fail every request with err from now on, nil: no more.
func (r *rig) fail(err error) {
	r.store.Fail = nil
	if err != nil {
		r.store.Fail = func(*limit.Request) error { return err }
	}
}

// outage asks while the store fails with err, when refusals are too old for a store that answers. Nothing of
// that stays in the store.
func (r *rig) outage(err error, ops ...limit.Op) limit.Verdict {
	r.Helper()
	r.clock.Add(2 * time.Second)
	r.fail(err)
	defer r.fail(nil)
	memory := r.store.Memory
	defer func() { r.store.Memory = memory }()
	r.store.Memory = nothing{}
	out := make([]limit.Verdict, 1)
	r.Take(context.Background(), []limit.Request{{Ops: ops}}, out)
	return out[0]
}

// nothing decides nothing.
type nothing struct{ backends.Backend }

func (nothing) Take(context.Context, []limit.Request, []limit.Verdict) {}

var errAway = fmt.Errorf("%w: away", backends.ErrUnavailable)

// wantRecalled checks that a request is refused while the store is away, or not recalled.
func (r *rig) wantRecalled(what string, refused bool, ops ...limit.Op) {
	r.Helper()
	before := r.stats().recalled
	v := r.outage(errAway, ops...)
	recalled := v.Err == nil && v.Recalled && !v.Admitted && len(v.Outcomes) == len(ops)
	counted := r.stats().recalled - before
	if recalled != refused || !refused && !errors.Is(v.Err, errAway) || (counted == 1) != refused {
		r.Errorf("%s: %+v, want refused %v", what, v, refused)
	}
}

// TestRefusedStaysRefusedWhileTheStoreIsAway: by every limit, until the time that the store has named, and no
// longer.
func TestRefusedStaysRefusedWhileTheStoreIsAway(t *testing.T) {
	for _, a := range limit.Algorithms() {
		for _, over := range []limit.Overflow{limit.Refuse, limit.Saturate, limit.Debt} {
			l := newLimit(a, 3, time.Hour)
			if over == limit.Debt {
				l = must(l.WithOverflow(over, 3))
			} else {
				l = must(l.WithOverflow(over, 0))
			}
			t.Run(fmt.Sprint(a, over), func(t *testing.T) {
				r := newRig(t, time.Second)
				o := op("k", l, 1)
				r.wantRecalled("never asked", false, o)
				r.want("room", true, true, o)
				r.wantRecalled("admitted", false, o)
				r.exhaust(o)
				v, _ := r.take(o)
				retry := v.Outcomes[0].Retry
				if retry < 10*time.Second {
					t.Fatalf("%+v", v)
				}
				for range 3 {
					r.wantRecalled("refused", true, o)
					r.wantRecalled("refused, a greater cost", true, op("k", l, 2))
					r.clock.Add(retry / 4)
				}
				r.wantRecalled("another key", false, op("other", l, 1))
				r.clock.Add(retry / 4)
				r.wantRecalled("when it has room again", false, o)
			})
		}
	}
}

func must(l *limit.Limit, err error) *limit.Limit {
	if err != nil {
		panic(err)
	}
	return l
}

// TestRecallEnds: a refusal is forgotten with a reset, another limit, units that come back, and when the store
// has made room for whatever reason.
func TestRecallEnds(t *testing.T) {
	l := newLimit(limit.FixedWindow, 3, time.Hour)
	o := op("k", l, 1)
	for name, end := range map[string]func(r *rig){
		"a reset": func(r *rig) {
			if err := r.Forget(context.Background(), []limit.Key{o.Key}); err != nil {
				t.Error(err)
			}
		},
		"units come back": func(r *rig) { r.want("back", true, true, op("k", l, -1)) },
		"a reset by another replica, and a take": func(r *rig) {
			if err := r.replica(time.Second).Forget(context.Background(), []limit.Key{o.Key}); err != nil {
				t.Error(err)
			}
			r.clock.Add(2 * time.Second)
			r.want("room", true, true, o)
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, time.Second)
			r.exhaust(o)
			r.wantRecalled("refused", true, o)
			end(r)
			r.wantRecalled("after "+name, false, o)
		})
	}
	r := newRig(t, time.Second)
	r.exhaust(o)
	r.wantRecalled("another limit", false, op("k", newLimit(limit.FixedWindow, 4, time.Hour), 1))
}

// TestWhatIsRecalled: of which requests, and after which errors.
func TestWhatIsRecalled(t *testing.T) {
	r := newRig(t, time.Second)
	l, flight := newLimit(limit.FixedWindow, 3, time.Hour), newLimit(limit.Concurrency, 1, time.Hour)
	full, other, lease := op("k", l, 1), op("other", l, 1), op("f", flight, 1)
	r.exhaust(full)
	lease.Holder = "holder0000000001"
	r.want("in flight", true, true, lease)
	lease.Holder = "holder0000000002"
	r.want("no room in flight", false, true, lease)
	r.wantRecalled("requests in flight, which may end at any moment", false, lease)
	r.wantRecalled("beside a request in flight", true, lease, full)
	r.wantRecalled("beside another", true, other, full)
	r.wantRecalled("beside one that is charged by itself", true, each(other), full)
	if v := r.outage(errAway, full, op("other", l, l.Capacity()+1)); v.Err != nil || v.Outcomes[1].Admitted ||
		v.Outcomes[1].Retry != limit.Never || v.Outcomes[1].Remaining != 0 {
		t.Errorf("beside one that no counter admits: %+v", v)
	}
	r.wantRecalled("what gives back", false, full, op("other", l, -1))
	r.wantRecalled("what only asks", true, op("k", l, 0))
	release := op("f", flight, 0)
	release.Holder = lease.Holder
	r.wantRecalled("what ends a request in flight", false, full, release)
	r.wantRecalled("a shadow beside one that has room", false, shadow(full), other)
	if v := r.outage(errAway, shadow(full)); v.Err != nil || !v.Recalled || !v.Admitted || v.Outcomes[0].Admitted {
		t.Errorf("shadows only: %+v", v)
	}
	for _, err := range []error{backends.ErrDeclined, fmt.Errorf("%w: %w", backends.ErrOverloaded, errAway)} {
		if v := r.outage(err, full); v.Err != nil || !v.Recalled {
			t.Errorf("after %v: %+v", err, v)
		}
	}
	for _, err := range []error{backends.ErrInvalid, backends.ErrCorrupt} {
		if v := r.outage(err, full); !errors.Is(v.Err, err) {
			t.Errorf("after %v: %+v", err, v)
		}
	}
	r.clock.Add(2 * time.Second)
	r.want("the store answers again", false, true, full)
}

// TestQuestionsAreRecalled: a client asks with a cost of zero and reports what it has spent later. In an outage its
// questions are refused if the store refused the last one, and not if the store admitted it.
func TestQuestionsAreRecalled(t *testing.T) {
	for over, debt := range map[limit.Overflow]int64{limit.Refuse: 0, limit.Saturate: 0, limit.Debt: 3} {
		r := newRig(t, time.Second)
		l := must(newLimit(limit.FixedWindow, 3, time.Hour).WithOverflow(over, debt))
		question := op("k", l, 0)
		r.want("room", true, true, question)
		r.wantRecalled("room", false, question)
		r.want("what is spent", true, true, op("k", l, 3))
		r.want("no room", false, true, question)
		r.wantRecalled("no room", true, question)
		r.wantRecalled("no room for a unit", true, op("k", l, 1))
		if err := r.store.Memory.Forget(t.Context(), []limit.Key{question.Key}); err != nil {
			t.Fatal(err)
		}
		r.want("room after a reset elsewhere", true, true, question)
		r.wantRecalled("room after a reset elsewhere", false, question)
	}
}

// TestWhatOnlyAnOutageNeedsIsNotAnswered: a limit that lends is asked each time, as it lends more.
func TestWhatOnlyAnOutageNeedsIsNotAnswered(t *testing.T) {
	r := newRig(t, time.Second)
	o := op("k", must(newLimit(limit.FixedWindow, 3, time.Hour).WithOverflow(limit.Debt, 3)), 1)
	for range 3 {
		r.want("room", true, true, o)
	}
	for range 5 {
		r.want("none", false, true, o)
	}
	twice := op("twice", newLimit(limit.FixedWindow, 1, time.Hour), 1)
	for range 3 {
		r.want("two ops with one key", false, true, twice, twice)
	}
	r.wantRecalled("one of them has room", false, twice)
	r.want("room", true, true, twice)
	for range 2 {
		r.want("two ops with one key", false, true, twice, twice)
	}
	r.wantRecalled("two ops with one key", true, twice, twice)
}
