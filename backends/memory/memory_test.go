package memory

import (
	"context"
	"log/slog"
	"math"
	"math/rand/v2"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/backends/backendtest"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/test/random"
	"github.com/headgate-rls/headgate/test/testenv"
)

func open(testing.TB) backends.Backend { return New(Config{Now: time.Now}) }

func TestConformance(t *testing.T) {
	testenv.UseMemory(t)
	backendtest.Run(t, backendtest.Suite{Caps: Caps(), Open: open, Trips: func() int64 { return 0 }})
}

func BenchmarkTake(b *testing.B) { backendtest.Benchmark(b, Caps(), open) }

const second = limit.Instant(1e6)

var start = limit.InstantOf(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))

func perSecond(a limit.Algorithm, most int64) *limit.Limit {
	return limit.MustNew(limit.Spec{Algorithm: a, Max: most, Window: time.Second})
}

// taker sends single takes.
type taker struct {
	b    *Backend
	reqs [1]limit.Request
	out  [1]limit.Verdict
}

func (t *taker) take(at limit.Instant, k limit.Key, l *limit.Limit, cost int64) limit.Outcome {
	t.reqs[0].At = at
	t.reqs[0].Ops = append(t.reqs[0].Ops[:0], limit.Op{Key: k, Limit: l, Cost: cost})
	t.b.Take(context.Background(), t.reqs[:], t.out[:])
	if t.out[0].Err != nil {
		panic(t.out[0].Err)
	}
	return t.out[0].Outcomes[0]
}

func numbered(i int) limit.Key { return limit.Key{Group: strconv.Itoa(i), Limit: "x"} }

func TestTakeDoesNotAllocate(t *testing.T) {
	for _, a := range []limit.Algorithm{limit.FixedWindow, limit.SlidingWindow, limit.TokenBucket} {
		tk, l, now := taker{b: New(Config{})}, perSecond(a, 10), start
		if n := testing.AllocsPerRun(1000, func() { now += 1000; tk.take(now, numbered(1), l, 1) }); n != 0 {
			t.Errorf("%v: %v allocations for a key that exists", a, n)
		}
		if n := testing.AllocsPerRun(1000, func() { tk.take(now, numbered(2), l, 0) }); n != 0 {
			t.Errorf("%v: %v allocations for asking", a, n)
		}
	}
}

// TestFullStoreDropsTheLeastUsed: at the bound the least used state goes, and it is logged.
func TestFullStoreDropsTheLeastUsed(t *testing.T) {
	var log strings.Builder
	b := New(Config{MaxKeys: 3, Log: slog.New(slog.NewTextHandler(&log, nil))})
	tk := taker{b: b}
	bucket := limit.MustNew(limit.Spec{Algorithm: limit.TokenBucket, Max: 10, Window: time.Minute})
	for i, cost := range []int64{5, 1, 3} {
		tk.take(start, numbered(i), bucket, cost)
	}
	tk.take(start, numbered(1), bucket, 6)
	tk.take(start, numbered(3), bucket, 2) // 2 has most left
	wantLeft := []int64{5, 3, 10, 8}
	for i, want := range wantLeft {
		if got := tk.take(start, numbered(i), bucket, 0).Remaining; got != want {
			t.Errorf("key %d: %d left, want %d", i, got, want)
		}
	}
	tk.take(start, numbered(0), bucket, -5) // as good as unused
	tk.take(start, numbered(4), bucket, 1)
	if got, want := b.Stats(), (Stats{Keys: 3, Expired: 1, Evicted: 1}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	for i := range 100 { // within a minute, then after one
		tk.take(start+limit.Instant(i)*second, numbered(100+i), bucket, 10)
	}
	if n := strings.Count(log.String(), "level=WARN"); n != 2 {
		t.Errorf("%d warnings in 100 seconds:\n%s", n, log.String())
	}
	tk.take(start, numbered(300), bucket, 10) // by a clock that was set back
	if n := strings.Count(log.String(), "level=WARN"); n != 3 {
		t.Errorf("%d warnings after the clock was set back:\n%s", n, log.String())
	}
	if err := b.Close(); err != nil || b.Stats().Keys != 0 {
		t.Errorf("%d keys after Close, %v", b.Stats().Keys, err)
	}
}

// TestIdleMemoryGoes: Sweep drops what is over, and the room it took.
func TestIdleMemoryGoes(t *testing.T) {
	b := New(Config{})
	tk, l := taker{b: b}, perSecond(limit.SlidingWindow, 10)
	before := heap()
	for i := range 200_000 {
		tk.take(start, numbered(i), l, 1)
	}
	full := heap()
	b.Sweep(start + second)
	if n := b.Stats().Keys; n != 200_000 {
		t.Errorf("%d keys while all state counts", n)
	}
	b.Sweep(start + 4*second)
	if n := b.Stats().Keys; n != 0 {
		t.Errorf("%d keys are left", n)
	}
	if now := heap(); now-before > (full-before)/10 {
		t.Errorf("%d bytes of %d are left", now-before, full-before)
	}
	runtime.KeepAlive(b)
}

// TestNewKeysTakeTheRoomOfTwo: without Sweep, what is over goes twice as fast as what is new comes.
func TestNewKeysTakeTheRoomOfTwo(t *testing.T) {
	b := New(Config{MaxKeys: 10}) // one shard
	tk, l := taker{b: b}, perSecond(limit.FixedWindow, 10)
	for i := range 6 {
		tk.take(start, numbered(i), l, 1)
	}
	for i, want := range []int{5, 4, 3, 4} {
		tk.take(start+10*second, numbered(10+i), l, 1)
		if n := b.Stats().Keys; n != want {
			t.Errorf("%d keys after %d new ones, want %d", n, i+1, want)
		}
	}
}

// TestBoundsBelowZero are the defaults.
func TestBoundsBelowZero(t *testing.T) {
	b, usual := New(Config{MaxKeys: -1, MaxLeases: -1, MaxRecords: -1}), New(Config{})
	got, want := b.cfg, usual.cfg
	if got.MaxKeys != want.MaxKeys || got.MaxLeases != want.MaxLeases || got.MaxRecords != want.MaxRecords {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestManyKeysKeepMemoryFlat: memory stays flat however many keys clients think of.
func TestManyKeysKeepMemoryFlat(t *testing.T) {
	keys, bound := random.Times(60_000, 300_000), 10_000
	for _, step := range []limit.Instant{1, 1000} { // full of live state, or with time to expire
		b := New(Config{MaxKeys: bound})
		flat(t, b, keys, bound, step)
	}
}

// BenchmarkTenMillionKeys is the real size; -benchtime 1x is enough.
func BenchmarkTenMillionKeys(b *testing.B) {
	for range b.N {
		flat(b, New(Config{}), 10_000_000, 1_000_000, 10)
	}
}

func flat(t testing.TB, b *Backend, keys, bound int, step limit.Instant) {
	t.Helper()
	tk, l, before, early := taker{b: b}, perSecond(limit.TokenBucket, 10), heap(), int64(0)
	for i := range keys {
		tk.take(start+limit.Instant(i)*step, numbered(i), l, 5)
		if i == 2*bound {
			early = heap() - before
		}
	}
	late, s := heap()-before, b.Stats()
	t.Logf("%d keys, %d µs apart: %+v, heap %d kB, after the first %d: %d kB", keys, step, s, late>>10, 2*bound, early>>10)
	if late > early*5/4+1<<20 {
		t.Errorf("%d bytes after %d keys, %d after the first %d", late, keys, early, 2*bound)
	}
	if s.Keys > bound+backends.MaxShards || uint64(s.Keys)+s.Expired+s.Evicted != uint64(keys) {
		t.Errorf("%+v of %d keys, at most %d", s, keys, bound)
	}
	runtime.KeepAlive(b)
}

// TestClockGoingBackwardsLosesNoState: instants that go back lose no state that still
// counts, nor do those that arrive a little out of order.
func TestClockGoingBackwardsLosesNoState(t *testing.T) {
	for _, a := range limit.Algorithms() {
		tk, l := taker{b: New(Config{MaxKeys: 1000})}, perSecond(a, 1)
		now := start - start%second
		tk.take(now, numbered(0), l, 1)
		for i := range 500 { // others see the end of its window, and make room
			tk.take(now+2*second-1, numbered(1+i), l, 1)
		}
		if out := tk.take(now+second/2, numbered(0), l, 1); out.Admitted {
			t.Errorf("%v: state was lost to an instant that came early: %+v", a, out)
		}
		tk.take(now+2*second, numbered(0), l, 1)
		if out := tk.take(now-10*second, numbered(0), l, 1); out.Admitted {
			t.Errorf("%v: going back admits again: %+v", a, out)
		}
	}
}

// TestShardKeepsCollidingKeysApart compares a shard with the obvious, hashes colliding all
// the time, and while the table grows.
func TestShardKeepsCollidingKeysApart(t *testing.T) {
	for _, hashes := range []uint32{4, 50, math.MaxUint32} {
		collide(t, hashes)
	}
}

// collide has keys have so many hashes.
func collide(t *testing.T, hashes uint32) {
	t.Helper()
	r := rand.New(rand.NewPCG(1, 2))
	s := shard{leases: new(atomic.Int64)}
	s.init(50)
	live, now := map[limit.Key]*entry{}, start
	l := perSecond(limit.TokenBucket, 1_000)
	for i := range random.Times(8000, 20_000) {
		now += limit.Instant(r.IntN(20_000))
		if i%1000 == 0 {
			now += 2 * second
			s.init(50) // a table that grows from nothing
			live = map[limit.Key]*entry{}
		}
		n := r.IntN(300)
		k, hash := numbered(n), uint32(n)*0x9e3779b9%hashes
		state := limit.State{At: now, N: int64(r.IntN(1_000_000)), M: 1000}
		if e := s.table.find(hash, &k); (e != nil) != (live[k] != nil) || e != live[k] {
			t.Fatalf("step %d: found %v under %v, want %v", i, e, k, live[k])
		} else if e == nil {
			s.insert(hash, &k, &state, l, now)
		} else if r.IntN(3) > 0 {
			s.update(e, &state, l, now)
		} else {
			s.remove(e)
		}
		if i%10 == 0 {
			s.sweep(now)
		}
		live = checkShard(t, &s, now, i%10 == 0)
	}
	if s.evicted == 0 || s.expired == 0 {
		t.Errorf("evicted %d, expired %d: not all was tried", s.evicted, s.expired)
	}
}

// checkShard holds a shard to its structure and returns its entries.
func checkShard(t *testing.T, s *shard, now limit.Instant, swept bool) map[limit.Key]*entry {
	t.Helper()
	live := map[limit.Key]*entry{}
	for bucket, e := range s.table.buckets {
		for ; e != nil; e = e.next {
			live[e.name()] = e
			if s.table.bucket(e.hash) != uint32(bucket) || s.queue[e.queued] != e {
				t.Fatalf("%+v is out of place", e)
			}
		}
	}
	if len(live) != len(s.queue) || len(live) > s.max {
		t.Fatalf("%d entries, %d in the queue", len(live), len(s.queue))
	}
	for i, e := range s.queue {
		if e.due > e.ends() || e.due < s.queue[max(0, i-1)/2].due || swept && e.ends()+grace <= now {
			t.Fatalf("%+v, %d. in the queue", e, i)
		}
	}
	return live
}

// TestChangedLimitKeepsTheOldEnd: a state's end is that of the limit that wrote it, though
// others look at it.
func TestChangedLimitKeepsTheOldEnd(t *testing.T) {
	b := New(Config{})
	tk := taker{b: b}
	day := limit.MustNew(limit.Spec{Algorithm: limit.SlidingLog, Max: 1, Window: 24 * time.Hour})
	tk.take(start, numbered(0), day, 1)
	tk.take(start, numbered(0), perSecond(limit.SlidingLog, 1), 0)
	b.Sweep(start + 3600*second)
	if out := tk.take(start+3600*second, numbered(0), day, 1); out.Admitted {
		t.Errorf("the day's unit is back after an hour: %+v", out)
	}
}

func BenchmarkParallel(b *testing.B) {
	m, l := New(Config{}), perSecond(limit.TokenBucket, 100)
	var n atomic.Int64
	b.RunParallel(func(pb *testing.PB) {
		tk := taker{b: m}
		r := rand.New(rand.NewPCG(uint64(n.Add(1)), 0))
		keys := make([]limit.Key, 1024)
		for i := range keys {
			keys[i] = numbered(i)
		}
		for now := start; pb.Next(); now++ {
			tk.take(now, keys[r.IntN(len(keys))], l, 1)
		}
	})
}

func BenchmarkThreeOps(b *testing.B) {
	m, l := New(Config{}), perSecond(limit.TokenBucket, 100)
	reqs, out := make([]limit.Request, 1), make([]limit.Verdict, 1)
	for i := range 3 {
		reqs[0].Ops = append(reqs[0].Ops, limit.Op{Key: numbered(i), Limit: l, Cost: 1})
	}
	b.ReportAllocs()
	for i := range b.N {
		reqs[0].At = start + limit.Instant(i)
		m.Take(context.Background(), reqs, out)
	}
}

func BenchmarkNewKeys(b *testing.B) {
	tk, l := taker{b: New(Config{})}, perSecond(limit.TokenBucket, 10)
	b.ReportAllocs()
	for i := range b.N {
		tk.take(start+limit.Instant(i), numbered(i), l, 5)
	}
	runtime.GC()
	b.ReportMetric(float64(heap())/float64(tk.b.Stats().Keys), "B/key")
}
