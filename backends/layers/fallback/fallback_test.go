package fallback

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/backends/backendtest"
	"github.com/headgate-rls/headgate/backends/internal/remote"
	"github.com/headgate-rls/headgate/backends/layers/breaker"
	"github.com/headgate-rls/headgate/backends/memory"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/test/random"
)

const ms = time.Millisecond

func newStore() *remote.Moody { return remote.NewMoody(memory.New(memory.Config{})) }

// A pair is a fallback, its primary, and a clock that the test moves.
type pair struct {
	testing.TB
	l       *Backend
	inner   *memory.Backend
	primary *remote.Moody
	at      limit.Instant
}

func newPair(t testing.TB, cfg Config) *pair {
	p := &pair{TB: t, inner: memory.New(memory.Config{}), primary: newStore(), at: remote.Start}
	p.l = New(p.inner, p.primary, cfg, func() limit.Instant { return p.at })
	return p
}

func key(i int) limit.Key { return limit.Key{Group: strconv.Itoa(i), Limit: "x"} }

// take takes one op and returns its outcome.
func (p *pair) take(b backends.Backend, k limit.Key, l *limit.Limit, cost int64) limit.Outcome {
	p.Helper()
	out := make([]limit.Verdict, 1)
	b.Take(context.Background(), []limit.Request{{At: p.at, Ops: []limit.Op{{Key: k, Limit: l, Cost: cost}}}}, out)
	if out[0].Err != nil {
		p.Fatal(out[0].Err)
	}
	return out[0].Outcomes[0]
}

// used asks how much is gone of a key's limit.
func (p *pair) used(b backends.Backend, k limit.Key, l *limit.Limit) int64 {
	p.Helper()
	return l.Capacity() - p.take(b, k, l, 0).Remaining
}

// wantUsed is about the store behind the primary, faults or not.
func (p *pair) wantUsed(k limit.Key, l *limit.Limit, want int64) {
	p.Helper()
	if got := p.used(p.primary.Backend, k, l); got != want {
		p.Errorf("%v: %d units are gone on the primary, want %d", l, got, want)
	}
}

func (p *pair) reconcile() Result {
	p.Helper()
	r, err := p.l.Reconcile(context.Background())
	if err != nil {
		p.Error(err)
	}
	if n := p.l.Pending(); n != r.Left {
		p.Errorf("%+v, but %d are pending", r, n)
	}
	return r
}

func (p *pair) wantResult(want Result) {
	p.Helper()
	if got := p.reconcile(); got != want {
		p.Errorf("%+v, want %+v", got, want)
	}
}

func (p *pair) wantPending(want int) {
	p.Helper()
	if got := p.l.Pending(); got != want {
		p.Errorf("%d keys are pending, want %d", got, want)
	}
}

func each(most int64, window time.Duration) []*limit.Limit {
	var all []*limit.Limit
	for _, a := range limit.Algorithms() {
		all = append(all, limit.MustNew(limit.Spec{Algorithm: a, Max: most, Window: window}))
	}
	return all
}

func TestConformance(t *testing.T) {
	for replicas := range 2 {
		cfg := Config{Replicas: replicas}
		backendtest.Run(t, backendtest.Suite{
			Caps: memory.Caps(), Rounds: 30, Short: true,
			Open: func(testing.TB) backends.Backend {
				return New(memory.New(memory.Config{}), newStore(), cfg, func() limit.Instant { return remote.Start })
			},
		})
	}
}

// TestShareOfLimits: n shares are no more than the whole, but for the unit
// that each has at least, and a unit less than the n-th part at most.
func TestShareOfLimits(t *testing.T) {
	r := random.Rand(t, 1)
	for range 20_000 {
		spec := limit.Spec{Algorithm: limit.Algorithms()[r.IntN(len(limit.Algorithms()))], Max: 1 << r.IntN(41),
			Window: limit.MinWindow << r.IntN(39)}
		spec.Max = max(r.Int64N(spec.Max+1)-1, 0)
		if spec.Algorithm == limit.TokenBucket {
			spec.Burst = 1 + r.Int64N(1<<r.IntN(41))
		}
		whole, err := limit.New(spec)
		n := 2 + r.Int64N(9)
		if err != nil {
			continue
		}
		s := share(whole, n)
		if got, all := s.Capacity(), whole.Capacity(); got > max(all/n, 1) || all == 0 && got != 0 || all > 0 && got < 1 {
			t.Errorf("a share of %v by %d: %v", whole, n, s)
		}
		if s.Algorithm() != whole.Algorithm() {
			t.Errorf("a share of %v is %v", whole, s)
		}
		if whole.Algorithm() != limit.TokenBucket {
			if s.Window() != whole.Window() {
				t.Errorf("a share of %v is %v", whole, s)
			}
			continue
		}
		rate := func(l *limit.Limit) float64 { return float64(l.Max()) / float64(l.Window()) }
		if got, all := rate(s)*float64(n), rate(whole); got > all*(1+1e-9) && s.Max() > 1 {
			t.Errorf("%d times the rate of %v are more than %v", n, s, whole)
		}
	}
	for n, want := range map[int64]string{2: "fixed_window 3/1s", 7: "fixed_window 1/1s", 8: "fixed_window 1/1s"} {
		if got := share(each(7, time.Second)[0], n).String(); got != want {
			t.Errorf("7 by %d: %s, want %s", n, got, want)
		}
	}
	if got := share(each(2, time.Second)[3], 3).String(); got != "token_bucket 2/3s burst 1" {
		t.Error(got)
	}
}

// TestSharesAreHeld: what a replica admits is its share, whatever it is asked
// for; the caller's requests stay as they are.
func TestSharesAreHeld(t *testing.T) {
	for _, l := range each(100, time.Hour) {
		p := newPair(t, Config{Replicas: 3})
		var admitted int64
		for i := range 200 {
			reqs := []limit.Request{{At: p.at, Ops: []limit.Op{{Key: key(1), Limit: l, Cost: int64(1 + i%3)}}}}
			out := make([]limit.Verdict, 1)
			p.l.Take(context.Background(), reqs, out)
			if out[0].Admitted {
				admitted += reqs[0].Ops[0].Cost
			}
			if reqs[0].Ops[0].Limit != l {
				t.Fatal("the caller's request was changed")
			}
		}
		if admitted != 33 {
			t.Errorf("%v: %d were admitted by one of three", l, admitted)
		}
		p.wantUsed(key(1), l, 0)
		p.reconcile()
		p.wantUsed(key(1), l, 33)
	}
}

// TestReconcileChargesOnceUpToTheLimit: afterwards the primary's count is what it was and
// what was admitted here, up to the limit; doing it again changes nothing. Here it stays counted.
func TestReconcileChargesOnceUpToTheLimit(t *testing.T) {
	r := random.Rand(t, 1)
	for range 300 {
		p := newPair(t, Config{Replicas: r.IntN(3), Slice: 1 + r.IntN(5), ServerClock: false})
		want, here, limits, short := map[int]int64{}, map[int]int64{}, map[int]*limit.Limit{}, 0
		for i := range 1 + r.IntN(12) {
			l := each(1+r.Int64N(20), time.Hour)[r.IntN(4)]
			limits[i] = l
			before := r.Int64N(l.Capacity() + 1)
			if before > 0 {
				p.take(p.primary, key(i), l, before)
			}
			var admitted int64
			for range r.IntN(8) {
				cost := r.Int64N(5)
				if r.IntN(4) == 0 {
					cost = -cost
				}
				if o := p.take(p.l, key(i), l, cost); o.Admitted {
					admitted = max(admitted+cost, 0)
				}
			}
			want[i], here[i] = min(l.Capacity(), before+admitted), admitted
			if before+admitted > l.Capacity() {
				short++
			}
		}
		p.reconcile()
		p.wantPending(0)
		if _, waiting := p.l.owed(); waiting != short {
			t.Errorf("%d keys wait for room, want %d", waiting, short)
		}
		for range 2 {
			for i, l := range limits {
				p.wantUsed(key(i), l, want[i])
				if n := p.used(p.inner, key(i), p.l.shares.get(l)); n != here[i] {
					t.Errorf("%v: %d units are gone here, want %d", l, n, here[i])
				}
			}
			takes, _ := p.primary.Calls()
			p.wantResult(Result{})
			if n, _ := p.primary.Calls(); n != takes {
				t.Error("reconciling twice asks the primary twice")
			}
		}
		if t.Failed() {
			return
		}
	}
}

// TestOnlyWhatIsCharged: of several ops, those count that the verdict says are
// recorded.
func TestOnlyWhatIsCharged(t *testing.T) {
	l, none := each(10, time.Hour)[0], limit.MustNew(limit.Spec{Algorithm: limit.FixedWindow, Window: time.Hour})
	full := limit.Op{Key: key(9), Limit: none, Cost: 1}
	for _, c := range []struct {
		name string
		ops  []limit.Op
		want int64 // of key 1
		keys int
	}{
		{"admitted", []limit.Op{{Key: key(1), Limit: l, Cost: 4}, {Key: key(2), Limit: l, Cost: 1}}, 4, 2},
		{"refused", []limit.Op{{Key: key(1), Limit: l, Cost: 4}, full}, 0, 0},
		{"refused, but each", []limit.Op{{Key: key(1), Limit: l, Cost: 4, Each: true}, full}, 4, 1},
		{"shadow", []limit.Op{{Key: key(1), Limit: l, Cost: 4, Shadow: true}}, 4, 1},
		{"shadow without room", []limit.Op{{Key: key(1), Limit: l, Cost: 14, Shadow: true}}, 0, 0},
		{"twice", []limit.Op{{Key: key(1), Limit: l, Cost: 4}, {Key: key(1), Limit: l, Cost: 3}}, 7, 1},
		{"only asked", []limit.Op{{Key: key(1), Limit: l}}, 0, 0},
		{"refund", []limit.Op{{Key: key(1), Limit: l, Cost: -3}}, 0, 0},
	} {
		p := newPair(t, Config{})
		p.l.Take(context.Background(), []limit.Request{{At: p.at, Ops: c.ops}}, make([]limit.Verdict, 1))
		p.take(p.primary, key(1), l, 1)
		p.wantPending(c.keys)
		p.reconcile()
		if got := p.used(p.primary, key(1), l); got != 1+c.want {
			t.Errorf("%s: %d charged, want %d", c.name, got-1, c.want)
		}
	}
}

// TestEndedWindowsAreNotCharged: what no longer counts is not charged.
func TestEndedWindowsAreNotCharged(t *testing.T) {
	for _, l := range each(10, time.Minute) {
		p := newPair(t, Config{})
		p.take(p.l, key(1), l, 6)
		p.at += 2 * 60e6
		p.wantResult(Result{Ended: 1})
		p.wantUsed(key(1), l, 0)
		p.take(p.l, key(1), l, 4) // and what is new counts as such
		p.wantResult(Result{Keys: 1, Units: 4})
	}
	p, bucket := newPair(t, Config{}), each(10, time.Minute)[3]
	p.take(p.l, key(1), bucket, 6)
	p.at += 20e6 // refills a third of ten
	p.wantResult(Result{Keys: 1, Units: 3})
}

// TestShortPrimaryIsChargedWhatIsLeft: where less is left than is owed, that is charged.
func TestShortPrimaryIsChargedWhatIsLeft(t *testing.T) {
	for _, l := range each(10, time.Hour) {
		p := newPair(t, Config{})
		p.take(p.l, key(1), l, 6)
		p.take(p.l, key(2), l, 6)
		p.take(p.primary, key(1), l, 7)
		p.take(p.primary, key(2), l, 10)
		p.wantResult(Result{Keys: 2, Units: 3, Short: 9})
		p.wantUsed(key(1), l, 10)
		p.wantUsed(key(2), l, 10)
		p.wantResult(Result{}) // there is no room yet
		p.at += 3 * 3600e6
		p.wantResult(Result{Ended: 2})
	}
}

// TestShortUnitsAreChargedLater: what there was no room for is charged when there is, as long as it counts.
func TestShortUnitsAreChargedLater(t *testing.T) {
	l := each(10, time.Hour)[3]
	p := newPair(t, Config{})
	p.take(p.primary, key(1), l, 10)
	p.take(p.l, key(1), l, 8)
	p.wantResult(Result{Keys: 1, Short: 8})
	p.wantResult(Result{}) // it was asked just now
	p.at += 12 * 60e6      // two units come back, there and here
	p.wantResult(Result{Keys: 1, Units: 2})
	p.wantUsed(key(1), l, 10)
	p.at += 36 * 60e6 // here all
	p.wantResult(Result{Ended: 1})
}

// outages has replicas of a service with one store ask as often as they can, while the store goes away and
// comes back every two seconds for a minute, and returns how many units they admit.
func outages(t *testing.T, l *limit.Limit, replicas int) (admitted int64) {
	p := newPair(t, Config{})
	all := make([]*Backend, replicas)
	for i := range all {
		all[i] = New(memory.New(memory.Config{}), p.primary, Config{Replicas: replicas},
			func() limit.Instant { return p.at })
	}
	for ms := range 60_000 / 10 {
		p.at += 10e3
		away := ms/200%2 == 1
		p.primary.Behave(map[bool]remote.Way{true: remote.Down}[away])
		for _, r := range all {
			if !away {
				_, _ = r.Reconcile(context.Background())
			}
			out := make([]limit.Verdict, 1)
			reqs := []limit.Request{{At: p.at, Ops: []limit.Op{{Key: key(1), Limit: l, Cost: 1}}}}
			p.primary.Take(context.Background(), reqs, out)
			if out[0].Err != nil {
				r.Take(context.Background(), reqs, out)
			}
			if out[0].Admitted {
				admitted++
			}
		}
	}
	return admitted
}

// TestOutagesTogetherAdmitOneShare: over a window, all outages together admit at most one share of each
// replica more than the limit, however many there are.
func TestOutagesTogetherAdmitOneShare(t *testing.T) {
	for _, l := range each(100, time.Hour) {
		for replicas := 1; replicas <= 2; replicas++ {
			const refilled = 5 // of a bucket in a minute, at the store and here
			if n := outages(t, l, replicas); n > 200+refilled || n < 100 {
				t.Errorf("%v: %d replicas admit %d", l, replicas, n)
			}
		}
	}
}

// TestPrimaryFailureKeepsDebtsAndShares: a failure leaves debts and shares as they are.
func TestPrimaryFailureKeepsDebtsAndShares(t *testing.T) {
	l := each(10, time.Hour)[1]
	p := newPair(t, Config{Slice: 3})
	for i := range 20 {
		p.take(p.l, key(i), l, 6)
	}
	p.primary.Behave(remote.Down)
	for range 5 {
		before, _ := p.primary.Calls()
		r, err := p.l.Reconcile(context.Background())
		if !errors.Is(err, remote.ErrDown) || r.Keys != 0 || r.Left != 20 {
			t.Errorf("%+v, %v", r, err)
		}
		if after, _ := p.primary.Calls(); after != before+1 {
			t.Errorf("%d calls to a primary that is away", after-before)
		}
		if o := p.take(p.l, key(7), l, 5); o.Admitted {
			t.Error("a failed reconciliation gave a new share")
		}
	}
	p.take(p.l, key(7), l, 2)
	p.primary.Behave(nil)
	p.primary.Partly = remote.ErrDown // the second of each slice
	r, err := p.l.Reconcile(context.Background())
	if !errors.Is(err, remote.ErrDown) || r.Keys == 0 || r.Keys > 14 || r.Left != 20-r.Keys {
		t.Errorf("%+v, %v", r, err)
	}
	p.primary.Partly = nil
	p.wantResult(Result{Keys: r.Left, Units: 122 - r.Units, Left: 0})
}

// TestHopelessChargesAreNotRepeated: what the primary cannot keep is not tried for ever.
func TestHopelessChargesAreNotRepeated(t *testing.T) {
	for _, err := range []error{backends.ErrInvalid, backends.ErrUnsupported, backends.ErrCorrupt} {
		p := newPair(t, Config{})
		p.take(p.l, key(1), remote.Hour, 6)
		p.primary.Behave(func(context.Context) error { return err })
		p.reconcile()
		p.wantPending(0)
		if s := p.l.Stats(); s.Refused != 1 || s.Units != 0 {
			t.Errorf("%+v", s)
		}
	}
}

// A rival takes from the primary whenever somebody else has read what is left.
type rival struct {
	*remote.Moody
	p     *pair
	of    *limit.Limit
	takes int64
}

func (s *rival) Take(ctx context.Context, reqs []limit.Request, out []limit.Verdict) {
	s.Moody.Take(ctx, reqs, out)
	if s.takes > 0 && out[0].Err == nil && !out[0].Admitted {
		s.takes--
		s.p.take(s.Moody.Backend, key(1), s.of, 1)
	}
}

// TestCrowdedPrimaryIsAskedForLess: what is left can be gone a moment later; then less is
// asked for, and in the end it is tried again another time.
func TestCrowdedPrimaryIsAskedForLess(t *testing.T) {
	l := each(20, time.Hour)[0]
	for rivals, units := range map[int64]int64{0: 10, 1: 9, 2: 8, 3: 0} {
		p := newPair(t, Config{})
		p.l.primary = &rival{Moody: p.primary, p: p, of: l, takes: rivals}
		p.take(p.l, key(1), l, 12)
		p.take(p.primary, key(1), l, 10)
		r, err := p.l.Reconcile(context.Background())
		if (err != nil) != (units == 0) || r.Units != units {
			t.Errorf("%d rivals: %+v, %v", rivals, r, err)
		}
		if units == 0 {
			p.wantResult(Result{Keys: 1, Units: 7, Short: 5})
		}
		p.wantUsed(key(1), l, 20)
	}
}

// TestTakesMeanwhileAreChargedNextTime: what is admitted while the primary is being charged is
// charged next time, and all of it counts here.
func TestTakesMeanwhileAreChargedNextTime(t *testing.T) {
	for _, l := range each(10, time.Hour) {
		p := newPair(t, Config{})
		for i := range 3 {
			p.take(p.l, key(i), l, 4)
		}
		meanwhile := true
		p.primary.Behave(func(context.Context) error {
			if meanwhile {
				p.take(p.l, key(1), l, 3)
				p.take(p.l, key(1), l, -1)
				if o := p.take(p.l, key(1), l, 5); o.Admitted {
					t.Errorf("%v: the share was exceeded while it was charged", l)
				}
				p.take(p.l, key(3), l, 1)
				if err := p.l.Forget(context.Background(), []limit.Key{key(2)}); err != nil {
					t.Error(err)
				}
				p.take(p.l, key(2), l, 1) // a debt of its own
				meanwhile = false
			}
			return nil
		})
		p.wantResult(Result{Keys: 3, Units: 12, Left: 3})
		if n := p.used(p.inner, key(1), l); n != 6 {
			t.Errorf("%v: %d units count here, want 6", l, n)
		}
		p.wantResult(Result{Keys: 3, Units: 4})
		p.wantUsed(key(1), l, 6)
		p.wantUsed(key(2), l, 5)
	}
}

// TestParallelReconciliationsLoseNothing: of takes and reconciliations at once nothing is
// lost and nothing counted twice, though the primary fails now and then.
func TestParallelReconciliationsLoseNothing(t *testing.T) {
	for _, l := range each(1_000_000, time.Hour) {
		p := newPair(t, Config{Slice: 2})
		var coin, admitted atomic.Int64
		p.primary.Behave(func(context.Context) error {
			runtime.Gosched()
			if coin.Add(1)%3 == 0 {
				return remote.ErrDown
			}
			return nil
		})
		var takers, charger sync.WaitGroup
		done := make(chan struct{})
		for i := range 8 {
			takers.Go(func() {
				for j := range 300 {
					if o := p.take(p.l, key((i+j)%5), l, 2); o.Admitted {
						admitted.Add(2)
					}
					p.l.Pending()
				}
			})
		}
		charger.Go(func() {
			for {
				_, _ = p.l.Reconcile(context.Background())
				select {
				case <-done:
					return
				default:
				}
			}
		})
		takers.Wait()
		close(done)
		charger.Wait()
		p.primary.Behave(nil)
		p.reconcile()
		var sum int64
		for i := range 5 {
			sum += p.used(p.primary, key(i), l)
		}
		if s := p.l.Stats(); sum != admitted.Load() || sum != 8*300*2 || s.Units != uint64(sum) || s.Pending != 0 {
			t.Errorf("%v: %d admitted, %d charged, %+v", l, admitted.Load(), sum, s)
		}
	}
}

// TestKeysAndLimitsStayWithinBounds: neither keys nor limits grow without end, and what is
// over makes room.
func TestKeysAndLimitsStayWithinBounds(t *testing.T) {
	p := newPair(t, Config{MaxKeys: 160, MaxLimits: 10, Replicas: 2})
	for i := range 1000 {
		l := limit.MustNew(limit.Spec{Algorithm: limit.FixedWindow, Max: 10, Window: time.Second})
		p.take(p.l, key(i), l, 1)
		if n := len(p.l.shares.of); n > 10 {
			t.Fatalf("%d shares are kept", n)
		}
	}
	s := p.l.Stats()
	if s.Pending > 160 || s.Pending < 140 || s.Overflow != uint64(1000-s.Pending) {
		t.Errorf("%+v", s)
	}
	p.at += 2e6 // all are over
	for i := range 50 {
		p.take(p.l, key(1000+i), each(10, time.Second)[0], 1)
	}
	now := p.l.Stats()
	if now.Overflow > s.Overflow+2 { // a shard may get more than its part
		t.Errorf("%+v, and a moment ago %+v", now, s)
	}
	p.reconcile()
	p.wantPending(0)
}

// TestForgottenKeysAreNotCharged: what is forgotten is not charged.
func TestForgottenKeysAreNotCharged(t *testing.T) {
	p := newPair(t, Config{})
	p.take(p.l, key(1), remote.Hour, 5)
	p.take(p.l, key(2), remote.Hour, 5)
	if err := p.l.Forget(context.Background(), []limit.Key{key(1), key(3)}); err != nil {
		t.Error(err)
	}
	p.wantResult(Result{Keys: 1, Units: 5})
	p.wantUsed(key(1), remote.Hour, 0)
}

// TestReusedKeyIsChargedOnce: a key that was forgotten and used again before its turn came
// has a new debt, which is charged once.
func TestReusedKeyIsChargedOnce(t *testing.T) {
	p := newPair(t, Config{Slice: 1})
	for i := range 2 {
		p.take(p.l, key(i), remote.Hour, 5)
	}
	first := true
	p.primary.Behave(func(context.Context) error {
		if first {
			first = false
			for i := range 2 {
				if err := p.l.Forget(context.Background(), []limit.Key{key(i)}); err != nil {
					t.Error(err)
				}
				p.take(p.l, key(i), remote.Hour, 3)
			}
		}
		return nil
	})
	p.wantResult(Result{Keys: 1, Units: 5, Left: 2})
	p.wantResult(Result{Keys: 2, Units: 6})
}

// clocked is a primary that notes the instants it is asked at.
type clocked struct {
	backends.Backend
	at []limit.Instant
}

func (c *clocked) Take(_ context.Context, reqs []limit.Request, out []limit.Verdict) {
	for i := range reqs {
		c.at = append(c.at, reqs[i].At)
		out[i].Reset(1)
		out[i].Admitted = true
	}
}

// TestPrimaryIsChargedByItsOwnClock: a primary with a clock is charged by its own.
func TestPrimaryIsChargedByItsOwnClock(t *testing.T) {
	for serverClock, want := range map[bool]limit.Instant{true: 0, false: remote.Start + 5} {
		c := &clocked{}
		l := New(memory.New(memory.Config{}), c, Config{ServerClock: serverClock},
			func() limit.Instant { return remote.Start + 5 })
		reqs, out := remote.Requests(1)
		l.Take(context.Background(), reqs, out)
		if _, err := l.Reconcile(context.Background()); err != nil || !reflect.DeepEqual(c.at, []limit.Instant{want}) {
			t.Errorf("charged at %d, %v", c.at, err)
		}
	}
}

// TestReconciliationsTakeTurns: one reconciliation at a time; who waits has a deadline.
func TestReconciliationsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, Config{})
		p.take(p.l, key(1), remote.Hour, 1)
		p.primary.Behave(remote.Slow(time.Second))
		done := make(chan Result)
		go func() { done <- p.reconcile() }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), 100*ms)
		defer cancel()
		if r, err := p.l.Reconcile(ctx); !errors.Is(err, context.DeadlineExceeded) || r != (Result{}) {
			t.Errorf("%+v, %v", r, err)
		}
		if r := <-done; r != (Result{Keys: 1, Units: 1}) {
			t.Errorf("%+v", r)
		}
		p.take(p.l, key(1), remote.Hour, 1)
		if _, err := p.l.Reconcile(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
}

// TestDeadlinesOfReconcile: a primary that is silent costs a slice's time, and
// one that is slow the whole time there is.
func TestDeadlinesOfReconcile(t *testing.T) {
	for name, c := range map[string]struct {
		way  func(context.Context) error
		want time.Duration
	}{"silent": {remote.Mute, 500 * ms}, "slow": {remote.Slow(300 * ms), 1200 * ms}} {
		synctest.Test(t, func(t *testing.T) {
			p := newPair(t, Config{Slice: 1})
			for i := range 100 {
				p.take(p.l, key(i), remote.Hour, 1)
			}
			p.primary.Behave(c.way)
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			began := time.Now()
			_, err := p.l.Reconcile(ctx)
			if d := time.Since(began); err == nil || d != c.want {
				t.Errorf("%s: %v, %v", name, d, err)
			}
		})
	}
}

// TestRunChargesWhatAnOutageAdmitted: the whole story. The store goes away, rules are
// decided here, the store is back, and what was admitted is charged there, without anybody
// asking for it.
func TestRunChargesWhatAnOutageAdmitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l *Backend
		s := newStore()
		b := breaker.New(s, breaker.Config{OnChange: func(_, to breaker.State, _ error) {
			if to == breaker.Closed {
				l.Signal()
			}
		}}, time.Now)
		var told []string
		began := time.Now()
		now := func() limit.Instant { return limit.InstantOf(time.Now()) }
		l = New(memory.New(memory.Config{}), b, Config{Every: time.Minute, OnReconcile: func(r Result, err error) {
			told = append(told, fmt.Sprintf("%v: %+v %v", time.Since(began).Round(100*ms), r, err))
		}}, now)
		ctx, cancel := context.WithCancel(context.Background())
		var run sync.WaitGroup
		run.Go(func() { l.Run(ctx) })

		day := limit.MustNew(limit.Spec{Algorithm: limit.FixedWindow, Max: 1000, Window: 24 * time.Hour})
		reqs, out := remote.Requests(1)
		call := func() {
			ctx, cancel := context.WithTimeout(context.Background(), 20*ms)
			defer cancel()
			reqs[0].At, reqs[0].Ops[0].Limit = now(), day
			b.Take(ctx, reqs, out)
			if out[0].Err != nil {
				l.Take(ctx, reqs, out)
			}
		}
		calls := func(n int) {
			for range n {
				call()
				time.Sleep(10 * ms)
			}
		}
		calls(10)
		s.Behave(remote.Down)
		calls(290)
		s.Behave(nil)
		calls(200)
		cancel()
		run.Wait()
		reqs[0].Ops[0].Cost = 0
		call()
		if left := out[0].Outcomes[0].Remaining; left != 500 {
			t.Errorf("%d are left of 1000 after 500 calls; %q", left, told)
		}
		if len(told) != 1 {
			t.Errorf("reconciled: %q", told)
		}
		if err := errors.Join(b.Close(), l.Close()); err != nil {
			t.Error(err)
		}
	})
}

// TestRunWithoutSignal: single failures are settled too.
func TestRunWithoutSignal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, Config{})
		ctx, cancel := context.WithCancel(context.Background())
		var run sync.WaitGroup
		run.Go(func() { p.l.Run(ctx) })
		p.take(p.l, key(1), remote.Hour, 3)
		time.Sleep(1001 * ms)
		synctest.Wait()
		p.wantUsed(key(1), remote.Hour, 3)
		takes, _ := p.primary.Calls()
		p.l.Signal()
		p.l.Signal()
		time.Sleep(time.Minute)
		if n, _ := p.primary.Calls(); n != takes {
			t.Errorf("%d calls with nothing to do", n-takes)
		}
		p.primary.Behave(remote.Mute)
		p.take(p.l, key(1), remote.Hour, 3)
		time.Sleep(1100 * ms)
		began := time.Now()
		cancel()
		run.Wait()
		if d := time.Since(began); d != 0 {
			t.Errorf("Run ended %v after its context", d)
		}
		p.wantPending(1)
	})
}

func TestDoesNotAllocate(t *testing.T) {
	// With more replicas there is a pool, which the race detector empties.
	p := newPair(t, Config{})
	reqs, out := remote.Requests(3)
	ctx := context.Background()
	p.l.Take(ctx, reqs, out)
	if n := testing.AllocsPerRun(1000, func() { p.l.Take(ctx, reqs, out) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkFallback(b *testing.B) {
	run := func(name string, be backends.Backend) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				reqs, out := remote.Requests(1)
				for i := 0; pb.Next(); i++ {
					reqs[0].Ops[0].Key = keys[i%len(keys)]
					be.Take(context.Background(), reqs, out)
				}
			})
		})
	}
	run("memory", memory.New(memory.Config{}))
	for _, replicas := range []int{1, 3} {
		run(fmt.Sprintf("replicas=%d", replicas), newPair(b, Config{Replicas: replicas}).l)
	}
}

var keys = func() (all [1024]limit.Key) {
	for i := range all {
		all[i] = key(i)
	}
	return all
}()

// BenchmarkReconcile settles 10,000 keys; the time is for all of them.
func BenchmarkReconcile(b *testing.B) {
	for b.Loop() {
		b.StopTimer()
		p := newPair(b, Config{})
		for i := range 10_000 {
			p.take(p.l, key(i), remote.Hour, 1)
		}
		b.StartTimer()
		p.reconcile()
	}
}
