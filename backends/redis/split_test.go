package redis

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/test/random"
	"github.com/headgate-rls/headgate/test/testenv"
)

// TestRefusedRequestsAdmitNobody: however many requests over two slots are
// refused by the one, the other admits no more than its limit, by the server's
// clock, although refunds come at any moment.
func TestRefusedRequestsAdmitNobody(t *testing.T) {
	t.Parallel()
	s := testenv.StartRedisCluster(t)
	b := open(t, "redis+cluster://"+strings.Join(s.Addrs, ","))
	const most, window = 20, 200 * time.Millisecond
	took := time.Duration(random.Times(600, 1500)) * time.Millisecond
	unique := strconv.FormatUint(rand.Uint64(), 36)
	for _, a := range limit.Algorithms() {
		wanted := limit.Op{Key: limit.Key{Group: unique + "a", Limit: a.String()}, Cost: 1,
			Limit: limit.MustNew(limit.Spec{Algorithm: a, Max: most, Window: window})}
		none := limit.Op{Key: limit.Key{Group: unique + "b", Limit: a.String()}, Cost: 1,
			Limit: limit.MustNew(limit.Spec{Algorithm: limit.FixedWindow, Max: 0, Window: window})}
		var mu sync.Mutex
		var admitted []limit.Instant
		// A busy machine has more time to show something.
		began := time.Now()
		done := func() bool {
			mu.Lock()
			defer mu.Unlock()
			past := time.Since(began)
			return past > took && (len(admitted) >= most || past > 20*time.Second)
		}
		var all sync.WaitGroup
		call := func(ops ...limit.Op) (v limit.Verdict) {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			out := make([]limit.Verdict, 1)
			b.Take(ctx, []limit.Request{{Ops: ops}}, out)
			return out[0]
		}
		for range 6 {
			all.Go(func() {
				for !done() {
					if v := call(wanted, none); v.Err == nil && v.Admitted {
						t.Error("a limit of 0 admits")
					}
				}
			})
			all.Go(func() {
				for !done() {
					if v := call(wanted); v.Err == nil && v.Admitted {
						mu.Lock()
						admitted = append(admitted, v.At)
						mu.Unlock()
					}
				}
			})
		}
		all.Wait()
		waitRefunds(t, b)
		slices.Sort(admitted)
		t.Logf("%v: %d admitted, %+v", a, len(admitted), b.Stats())
		wantWithin(t, wanted.Limit, admitted)
		time.Sleep(2 * window)
		ask := wanted
		ask.Cost = 0
		if left := call(ask).Outcomes[0].Remaining; left != most {
			t.Errorf("%v: %d units are left in the end, want %d", a, left, most)
		}
	}
}

// TestRefusedRequestsSayWhatIsLeft: when another slot refuses a request, its ops say what is left once all that it
// took is given back, as they do on one server: also those that ask before others take.
func TestRefusedRequestsSayWhatIsLeft(t *testing.T) {
	t.Parallel()
	s := testenv.StartRedisCluster(t)
	b := open(t, "redis+cluster://"+strings.Join(s.Addrs, ","))
	saturates := limit.MustNew(limit.Spec{Algorithm: limit.FixedWindow, Max: 10, Window: time.Hour,
		Overflow: limit.Saturate})
	never := limit.MustNew(limit.Spec{Algorithm: limit.FixedWindow, Max: 0, Window: time.Hour})
	for name, ops := range map[string][]limit.Op{
		"what is charged alone": {{Limit: saturates.Strict()}, {Limit: saturates.Strict(), Cost: 2, Each: true}},
		"what saturates": {{Limit: saturates, Cost: 1}, {Limit: saturates},
			{Limit: saturates, Cost: 10, Shadow: true}},
		"what is given back": {{Limit: saturates, Cost: 1}, {Limit: saturates}, {Limit: saturates, Cost: 2, Each: true},
			{Limit: saturates, Cost: 3}},
	} {
		group := strconv.FormatUint(rand.Uint64(), 36)
		for i := range ops {
			ops[i].Key = limit.Key{Group: group + "a", Limit: "f"}
		}
		ops = append(ops, limit.Op{Key: limit.Key{Group: group + "b", Limit: "f"}, Limit: never, Cost: 1})
		req := limit.Request{Ops: ops}
		var want limit.Verdict
		limit.Decide(make([]limit.State, len(ops)), &req, limit.InstantOf(time.Now()), &want, nil)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		out := make([]limit.Verdict, 1)
		b.Take(ctx, []limit.Request{req}, out)
		cancel()
		if out[0].Err != nil {
			t.Fatal(out[0].Err)
		}
		for i := range ops {
			if got, want := out[0].Outcomes[i].Remaining, want.Outcomes[i].Remaining; got != want {
				t.Errorf("%s: op %d of %d says that %d units are left, want %d", name, i, len(ops), got, want)
			}
		}
	}
}

// wantWithin checks that no stretch of time has more admissions than the limit
// allows in one.
func wantWithin(t *testing.T, l *limit.Limit, admitted []limit.Instant) {
	t.Helper()
	window := limit.Instant(l.Window().Microseconds())
	if len(admitted) < int(l.Max()) {
		t.Errorf("%v: %d admitted: nothing was shown", l, len(admitted))
	}
	for i, last := range admitted {
		within := 0 // of the stretch that ends with last
		for j := i; j >= 0; j-- {
			n := int64(i - j + 1)
			length := last - admitted[j]
			switch l.Algorithm() {
			case limit.FixedWindow:
				if admitted[j] >= last-last%window {
					within++
				}
			case limit.SlidingLog:
				if length < window {
					within++
				}
			case limit.SlidingWindow: // is never above the fixed window's
				if admitted[j] >= last-last%window {
					within++
				}
			case limit.TokenBucket:
				if over := n - l.Capacity() - int64(length)*l.Max()/int64(window) - 1; over > 0 {
					t.Fatalf("%v: %d more than allowed in %d µs", l, over, length)
				}
			}
		}
		if int64(within) > l.Max() {
			t.Fatalf("%v: %d admitted in one window", l, within)
		}
	}
}

// A Cluster decides alternatives whose keys share a slot. Others fail, and take nothing.
func TestAlternativesInSeveralSlots(t *testing.T) {
	t.Parallel()
	s := testenv.StartRedisCluster(t)
	b := open(t, "redis+cluster://"+strings.Join(s.Addrs, ","))
	l := limit.MustNew(limit.Spec{Algorithm: limit.FixedWindow, Max: 1, Window: time.Hour})
	unique := limit.RawGroup(strconv.FormatUint(rand.Uint64(), 36))
	choice := func(groups ...string) limit.Verdict {
		var req limit.Request
		for i, group := range groups {
			req.Ops = append(req.Ops, limit.Op{Key: limit.Key{Group: unique + group, Limit: strconv.Itoa(i)}, Limit: l, Cost: 1,
				Choice: limit.Choice{Set: 1, Group: uint8(i)}})
		}
		out := make([]limit.Verdict, 1)
		b.Take(t.Context(), []limit.Request{req}, out)
		return out[0]
	}
	if v := choice("a", "b"); !errors.Is(v.Err, backends.ErrUnsupported) || !errors.Is(v.Err, backends.ErrNotApplied) {
		t.Errorf("alternatives in two slots: %+v", v)
	}
	for i := range 2 {
		if v := choice("a", "a"); v.Err != nil || !v.Admitted || !v.Outcomes[i].Chosen {
			t.Errorf("alternatives in one slot, request %d: %+v", i, v)
		}
	}
}
