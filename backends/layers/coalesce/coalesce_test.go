package coalesce

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/backends/backendtest"
	"github.com/headgate-rls/headgate/backends/memory"
	"github.com/headgate-rls/headgate/limit"
)

// A store is a memory backend behind a gate, which can be shut.
type store struct {
	*memory.Backend
	delay time.Duration

	mu     sync.Mutex
	gate   chan struct{} // nil when open
	closed bool
	slices []int           // lengths, in order of arrival
	ctxs   []time.Duration // how long each was given

	reached chan struct{} // tells each arrival, if not nil
}

func newStore() *store { return &store{Backend: memory.New(memory.Config{})} }

func (s *store) shut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gate = make(chan struct{})
}

func (s *store) open() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.gate)
	s.gate = nil
}

// pass waits for the gate to open.
func (s *store) pass(ctx context.Context) error {
	s.mu.Lock()
	gate := s.gate
	s.mu.Unlock()
	if gate == nil {
		return nil
	}
	select {
	case <-gate:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", backends.ErrUnavailable, ctx.Err())
	}
}

func (s *store) Take(ctx context.Context, reqs []limit.Request, out []limit.Verdict) {
	d, _ := ctx.Deadline()
	s.mu.Lock()
	s.slices = append(s.slices, len(reqs))
	s.ctxs = append(s.ctxs, time.Until(d))
	s.mu.Unlock()
	if s.reached != nil {
		s.reached <- struct{}{}
	}
	if err := s.pass(ctx); err != nil {
		backends.Fail(out, err)
		return
	}
	time.Sleep(s.delay)
	s.Backend.Take(ctx, reqs, out)
}

func (s *store) Forget(ctx context.Context, keys []limit.Key) error {
	if err := s.pass(ctx); err != nil {
		return err
	}
	return s.Backend.Forget(ctx, keys)
}

func (s *store) Ping(ctx context.Context) error { return s.pass(ctx) }

func (s *store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return s.Backend.Close()
}

func TestConformance(t *testing.T) {
	backendtest.Run(t, backendtest.Suite{Caps: memory.Caps(), Short: true, Open: func(testing.TB) backends.Backend {
		return New(memory.New(memory.Config{}), Config{})
	}})
}

// TestConformanceSlow runs the suite where most requests are gathered.
func TestConformanceSlow(t *testing.T) {
	var s *store
	backendtest.Run(t, backendtest.Suite{
		Caps: memory.Caps(), Rounds: 20, Short: true,
		Open: func(testing.TB) backends.Backend {
			s = newStore()
			s.delay = 10 * time.Microsecond
			return New(s, Config{InFlight: 1, MaxSlice: 16})
		},
		Faults: &backendtest.Faults{
			Freeze: func(testing.TB) { s.shut() },
			Thaw:   func(testing.TB) { s.open() },
		},
	})
}

var hour = limit.MustNew(limit.Spec{Algorithm: limit.FixedWindow, Max: most, Window: time.Hour})

const most = 1_000_000

const now = limit.Instant(1_800_000_000_000_000)

func ask(n int) ([]limit.Request, []limit.Verdict) {
	reqs := make([]limit.Request, n)
	for i := range reqs {
		reqs[i] = limit.Request{At: now, Ops: []limit.Op{{Key: limit.Key{Group: "g"}, Limit: hour, Cost: 1}}}
	}
	return reqs, make([]limit.Verdict, n)
}

// A scene is a backend whose store is shut with one request in it.
type scene struct {
	*testing.T
	s       *store
	b       *Backend
	results chan error
	callers int
}

func newScene(t *testing.T, cfg Config) *scene {
	cfg.InFlight = 1
	sc := &scene{T: t, s: newStore(), results: make(chan error, 100)}
	sc.b = New(sc.s, cfg)
	sc.s.reached = make(chan struct{}, 100)
	sc.s.shut()
	sc.call(context.Background(), 1)
	<-sc.s.reached
	return sc
}

// call takes n requests in a goroutine and waits until they are queued.
func (sc *scene) call(ctx context.Context, n int) {
	before := sc.b.waiting()
	sc.callers++
	go func() {
		reqs, out := ask(n)
		sc.b.Take(ctx, reqs, out)
		for i := range out {
			if out[i].Err == nil && len(out[i].Outcomes) != 1 {
				out[i].Err = errors.New("no outcome")
			}
			sc.results <- out[i].Err
		}
		clear(reqs) // the race detector sees any goroutine that still reads them
		clear(out)
	}()
	for sc.callers > 1 && sc.b.waiting() != before+n {
		runtime.Gosched()
	}
}

func (b *Backend) waiting() int {
	l := &b.lanes[0]
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.queue.requests
}

// end opens the store, wants n more results without error, and closes.
func (sc *scene) end(n int) {
	sc.Helper()
	sc.s.open()
	for range n {
		if err := <-sc.results; err != nil {
			sc.Error(err)
		}
	}
	if err := sc.b.Close(); err != nil {
		sc.Error(err)
	}
}

func (sc *scene) wantTaken(n int64) {
	sc.Helper()
	if got := sc.s.taken(); got != n {
		sc.Errorf("%d units are taken, want %d", got, n)
	}
}

// taken asks how many units are gone.
func (s *store) taken() int64 { return s.count("g") }

func TestWaitingCallsAreGatheredIntoSlices(t *testing.T) {
	sc := newScene(t, Config{MaxSlice: 4})
	for _, n := range []int{1, 1, 1, 1, 1, 2, 9, 1} {
		sc.call(context.Background(), n)
	}
	sc.s.open()
	for range 18 {
		if err := <-sc.results; err != nil {
			t.Error(err)
		}
	}
	sc.wantTaken(18)
	if want := []int{1, 4, 3, 9, 1}; !slices.Equal(sc.s.slices, want) {
		t.Errorf("slices of %d, want %d", sc.s.slices, want)
	}
	if err := sc.b.Close(); err != nil {
		t.Error(err)
	}
}

// TestEndedCallLeavesTheQueue: whose context ends in the queue is not sent.
func TestEndedCallLeavesTheQueue(t *testing.T) {
	sc := newScene(t, Config{})
	ctx, cancel := context.WithCancel(context.Background())
	sc.call(context.Background(), 1)
	sc.call(ctx, 2)
	sc.call(context.Background(), 1)
	cancel()
	for range 2 {
		if err := <-sc.results; !errors.Is(err, backends.ErrUnavailable) || !errors.Is(err, backends.ErrNotApplied) ||
			!errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	if n := sc.b.waiting(); n != 2 {
		t.Errorf("%d requests wait, want 2", n)
	}
	sc.s.open()
	for range 3 {
		if err := <-sc.results; err != nil {
			t.Error(err)
		}
	}
	sc.wantTaken(3)
	sc.s.shut()
	sc.end(0)
}

// TestEndedCallLeavesItsCompanionsServed: a call whose context ends under way gets an
// unknown outcome, its memory is not used, and its companions are served.
func TestEndedCallLeavesItsCompanionsServed(t *testing.T) {
	sc := newScene(t, Config{})
	ctx, cancel := context.WithCancel(context.Background())
	sc.call(ctx, 2)
	sc.call(context.Background(), 1)
	gate := sc.s.gate
	sc.s.mu.Lock()
	sc.s.gate = make(chan struct{}) // for the next slice
	sc.s.mu.Unlock()
	close(gate)
	<-sc.s.reached
	if err := <-sc.results; err != nil {
		t.Error(err)
	}
	cancel()
	for range 2 {
		if err := <-sc.results; !errors.Is(err, backends.ErrUnavailable) || errors.Is(err, backends.ErrNotApplied) {
			t.Error(err)
		}
	}
	sc.end(1)
}

// TestOverloadedOnlyWhileTheStoreAnswers: what finds no room, no turn in time, or no time
// at all, is overload while the store answers, and a failure of the store otherwise.
func TestOverloadedOnlyWhileTheStoreAnswers(t *testing.T) {
	var answers atomic.Bool
	sc := newScene(t, Config{Queue: 5, Answers: answers.Load})
	sc.call(context.Background(), 3)
	for _, a := range []bool{true, false} {
		answers.Store(a)
		want := func(when string, err error) {
			t.Helper()
			if !errors.Is(err, backends.ErrUnavailable) || !errors.Is(err, backends.ErrNotApplied) ||
				errors.Is(err, backends.ErrOverloaded) != a {
				t.Errorf("%s, the store answers: %v: %v", when, a, err)
			}
		}
		short, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		defer cancel()
		reqs, out := ask(2)
		sc.b.Take(short, reqs, out)
		want("no turn in time", out[0].Err)
		sc.b.Take(short, reqs, out)
		want("no time", out[1].Err)
		reqs, out = ask(3)
		sc.b.Take(context.Background(), reqs, out)
		for i := range out {
			want("no room", out[i].Err)
		}
	}
	sc.end(4)
}

// TestCloseFailsWaitingCalls: calls that wait get an error, and those under way end.
func TestCloseFailsWaitingCalls(t *testing.T) {
	before := runtime.NumGoroutine()
	sc := newScene(t, Config{Timeout: time.Minute})
	sc.call(context.Background(), 1) // will be under way with its slice
	gate := sc.s.gate
	sc.s.mu.Lock()
	sc.s.gate = make(chan struct{})
	sc.s.mu.Unlock()
	close(gate)
	<-sc.s.reached
	if err := <-sc.results; err != nil {
		t.Error(err)
	}
	sc.call(context.Background(), 1)
	if err := sc.b.Close(); err != nil {
		t.Error(err)
	}
	notApplied := 0
	for range 2 {
		err := <-sc.results
		if !errors.Is(err, backends.ErrUnavailable) {
			t.Error(err)
		}
		if errors.Is(err, backends.ErrNotApplied) {
			notApplied++
		}
	}
	if notApplied != 1 || !sc.s.closed {
		t.Errorf("%d of 2 not applied, store closed: %v", notApplied, sc.s.closed)
	}
	reqs, out := ask(1)
	sc.b.Take(context.Background(), reqs, out)
	if !errors.Is(out[0].Err, backends.ErrNotApplied) {
		t.Errorf("after Close: %v", out[0].Err)
	}
	for range 100 {
		if runtime.NumGoroutine() <= before {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("%d goroutines, %d before", runtime.NumGoroutine(), before)
}

// TestSliceHasTheLatestDeadline: a slice has the latest deadline of its callers, and Timeout
// where one has none.
func TestSliceHasTheLatestDeadline(t *testing.T) {
	sc := newScene(t, Config{Timeout: 20 * time.Second})
	for _, d := range []time.Duration{40, 60, 50} {
		ctx, cancel := context.WithTimeout(context.Background(), d*time.Second)
		defer cancel()
		sc.call(ctx, 1)
	}
	sc.s.open()
	for range 4 {
		<-sc.results
	}
	sc.s.shut()
	short, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	sc.callers = 0 // the next one goes straight through
	sc.call(short, 1)
	for range 2 {
		<-sc.s.reached
	}
	sc.callers = 1
	sc.call(short, 1)
	sc.call(context.Background(), 1)
	sc.end(3)
	want := []time.Duration{20 * time.Second, 60 * time.Second, 10 * time.Second, 20 * time.Second}
	for i, d := range sc.s.ctxs {
		if i >= len(want) || d > want[i] || d < want[i]-5*time.Second {
			t.Fatalf("deadlines in %v, want %v", sc.s.ctxs, want)
		}
	}
}

// TestLeaversAtRandom lets callers leave at every moment there is.
func TestLeaversAtRandom(t *testing.T) {
	s := newStore()
	s.delay = 20 * time.Microsecond
	b := New(s, Config{MaxSlice: 8, Queue: 20})
	var sure, unsure, refused atomic.Int64
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			reqs, out := ask(1 + i%3)
			for j := range 200 {
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(i*j)*time.Microsecond)
				b.Take(ctx, reqs, out)
				cancel()
				for k := range out {
					switch err := out[k].Err; {
					case err == nil && out[k].Admitted:
						sure.Add(1)
					case errors.Is(err, backends.ErrNotApplied):
						refused.Add(1)
					default:
						unsure.Add(1)
					}
				}
			}
		})
	}
	all.Wait()
	b.lanes[0].wait()
	taken := s.taken()
	t.Logf("%d taken: %d yes, %d perhaps, %d no", taken, sure.Load(), unsure.Load(), refused.Load())
	if taken < sure.Load() || taken > sure.Load()+unsure.Load() {
		t.Error("that does not add up")
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

func benchmark(b *testing.B, callers int, h backends.Backend) {
	defer h.Close()
	b.ReportAllocs()
	b.SetParallelism(callers / runtime.GOMAXPROCS(0))
	var n atomic.Int64
	b.RunParallel(func(pb *testing.PB) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
		defer cancel()
		reqs, out := ask(1)
		reqs[0].Ops[0].Key.Group = strconv.FormatInt(n.Add(1), 10)
		for pb.Next() {
			h.Take(ctx, reqs, out)
		}
	})
}

// trip is a store that costs a trip of its own and a little for each request,
// one at a time: roughly what Redis is.
type trip struct {
	memory.Backend
	each, more time.Duration
	mu         sync.Mutex
	requests   atomic.Int64
	trips      atomic.Int64
}

func (s *trip) Take(_ context.Context, reqs []limit.Request, out []limit.Verdict) {
	time.Sleep(s.each) // on the way
	s.mu.Lock()
	for began := time.Now(); time.Since(began) < time.Duration(len(reqs))*s.more; {
	}
	s.mu.Unlock()
	s.trips.Add(1)
	s.requests.Add(int64(len(reqs)))
	for i := range out {
		out[i].Reset(1)
	}
}

// yields lets everybody else run during a Take, so that all of them queue:
// what is left is the cost of gathering.
type yields struct{ *memory.Backend }

func (s yields) Take(ctx context.Context, reqs []limit.Request, out []limit.Verdict) {
	runtime.Gosched()
	s.Backend.Take(ctx, reqs, out)
}

func BenchmarkTake(b *testing.B) {
	b.Run("queued/callers=64", func(b *testing.B) {
		benchmark(b, 64, New(yields{memory.New(memory.Config{})}, Config{}))
	})
	b.Run("yields/callers=64", func(b *testing.B) { benchmark(b, 64, yields{memory.New(memory.Config{})}) })
	for _, callers := range []int{2, 64} {
		b.Run(fmt.Sprintf("memory/callers=%d", callers), func(b *testing.B) {
			benchmark(b, callers, memory.New(memory.Config{}))
		})
		b.Run(fmt.Sprintf("combine/callers=%d", callers), func(b *testing.B) {
			benchmark(b, callers, New(memory.New(memory.Config{}), Config{}))
		})
	}
	for _, flights := range []int{1, 2, 3, 4, 8} {
		b.Run(fmt.Sprintf("trips/callers=64/flights=%d", flights), func(b *testing.B) {
			s := &trip{each: 100 * time.Microsecond, more: 2 * time.Microsecond}
			benchmark(b, 64, New(s, Config{InFlight: flights}))
			b.ReportMetric(float64(s.requests.Load())/float64(s.trips.Load()), "reqs/trip")
		})
	}
}

// serversOf takes the first byte of the groups for a server.
func serversOf(req *limit.Request) (set uint64) {
	for i := range req.Ops {
		g := req.Ops[i].Key.Group
		if g == "" {
			return backends.AnyServer
		}
		set |= 1 << (g[0] % 8)
	}
	return set
}

// TestConformanceApart runs the suite where requests of one Take go apart.
func TestConformanceApart(t *testing.T) {
	backendtest.Run(t, backendtest.Suite{
		Caps: memory.Caps(), Rounds: 20, Short: true,
		Open: func(testing.TB) backends.Backend {
			s := newStore()
			s.delay = 10 * time.Microsecond
			return New(s, Config{InFlight: 1, MaxSlice: 16, Servers: serversOf})
		},
	})
}

func TestRequestsThatMayMeetStayTogether(t *testing.T) {
	for _, c := range []struct{ sets, want []uint64 }{
		{[]uint64{1, 2, 4}, []uint64{1, 2, 4}},
		{[]uint64{1, 1, 2}, []uint64{1, 2}},
		{[]uint64{1, 2, 3}, []uint64{3}},
		{[]uint64{1, 6, 8, 2}, []uint64{1, 6, 8}},
		{[]uint64{1, 2, 4, 5}, []uint64{2, 5}},
		{[]uint64{1, backends.AnyServer, 2}, []uint64{backends.AnyServer}},
	} {
		var apart []uint64
		for _, set := range c.sets {
			apart = separate(apart, set)
		}
		slices.Sort(apart)
		slices.Sort(c.want)
		if !slices.Equal(apart, c.want) {
			t.Errorf("%b go apart as %b, want %b", c.sets, apart, c.want)
		}
	}
}

// TestServersHaveLanesOfTheirOwn: no two of 64 servers share one, nor do sets of a few.
func TestServersHaveLanesOfTheirOwn(t *testing.T) {
	b := New(newStore(), Config{Servers: serversOf})
	defer b.Close()
	sets := []uint64{backends.AnyServer}
	for i := range 64 {
		sets = append(sets, 1<<i)
	}
	for few := range uint64(64) {
		if few&(few-1) != 0 {
			sets = append(sets, few)
		}
	}
	single, all := map[*lane]uint64{}, map[*lane]uint64{}
	for _, set := range sets {
		l := b.lane(set)
		if other, ok := single[l]; ok && set&(set-1) == 0 {
			t.Errorf("servers %b and %b share a lane", other, set)
		}
		if other, ok := all[l]; ok && set < 64 && other < 64 {
			t.Errorf("sets %b and %b share a lane", other, set)
		}
		if set&(set-1) == 0 {
			single[l] = set
		}
		all[l] = set
	}
}

// A twin is a store of two servers, the first of which answers once it is told to.
type twin struct {
	*store
	arrived, answer chan struct{}
}

const first, second = "1", "2"

func (s *twin) Take(ctx context.Context, reqs []limit.Request, out []limit.Verdict) {
	if reqs[0].Ops[0].Key.Group == first {
		s.arrived <- struct{}{}
		<-s.answer
	}
	s.Backend.Take(ctx, reqs, out)
}

// TestEndedCallLeavesApart: of a Take whose requests go apart, what is still queued when
// its context ends is not sent, what is under way has an unknown outcome, and what
// another server has decided stays decided.
func TestEndedCallLeavesApart(t *testing.T) {
	s := &twin{newStore(), make(chan struct{}), make(chan struct{})}
	b := New(s, Config{InFlight: 1, Servers: serversOf})
	var callers sync.WaitGroup
	take := func(queued bool) (leave func()) {
		ctx, cancel := context.WithCancel(context.Background())
		reqs, out := ask(2)
		reqs[0].Ops[0].Key.Group, reqs[1].Ops[0].Key.Group = first, second
		callers.Go(func() {
			b.Take(ctx, reqs, out)
			if err := out[0].Err; !errors.Is(err, context.Canceled) || errors.Is(err, backends.ErrNotApplied) != queued {
				t.Errorf("the first server's, queued: %v: %v", queued, err)
			}
			if out[1].Err != nil || !out[1].Admitted {
				t.Errorf("the second server's: %+v", out[1])
			}
			clear(reqs) // the race detector sees any goroutine that still reads them
			clear(out)
		})
		return cancel
	}
	leave := take(false)
	<-s.arrived
	leaveQueue := take(true)
	l := b.lane(1 << (first[0] % 8))
	decided := func() bool { l.mu.Lock(); defer l.mu.Unlock(); return l.queue.requests == 1 && s.count(second) == 2 }
	for !decided() {
		runtime.Gosched()
	}
	leaveQueue()
	leave()
	callers.Wait()
	s.answer <- struct{}{}
	l.wait()
	if n := s.count(first); n != 1 {
		t.Errorf("the first server has counted %d requests, want 1", n)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

// count says how many units of a group are taken.
func (s *store) count(group string) int64 {
	reqs, out := ask(1)
	reqs[0].Ops[0].Cost, reqs[0].Ops[0].Key.Group = 0, group
	s.Backend.Take(context.Background(), reqs, out)
	return most - out[0].Outcomes[0].Remaining
}

// TestFullQueueRefusesItsServersOnly: calls that wait for a server leave room for others.
func TestFullQueueRefusesItsServersOnly(t *testing.T) {
	s := &twin{newStore(), make(chan struct{}), make(chan struct{})}
	b := New(s, Config{InFlight: 1, Queue: 1, MaxSlice: 1, Servers: serversOf})
	take := func(group string) error {
		reqs, out := ask(1)
		reqs[0].Ops[0].Key.Group = group
		b.Take(context.Background(), reqs, out)
		return out[0].Err
	}
	var callers sync.WaitGroup
	for range 2 {
		callers.Go(func() {
			if err := take(first); err != nil {
				t.Error(err)
			}
		})
	}
	<-s.arrived
	l := b.lane(1 << (first[0] % 8))
	full := func() bool { l.mu.Lock(); defer l.mu.Unlock(); return l.queue.requests == 1 }
	for !full() {
		runtime.Gosched()
	}
	if err := take(first); !errors.Is(err, backends.ErrOverloaded) {
		t.Errorf("the first server's queue is full, and the answer is %v", err)
	}
	if err := take(second); err != nil {
		t.Errorf("the second server's: %v", err)
	}
	s.answer <- struct{}{}
	<-s.arrived
	s.answer <- struct{}{}
	callers.Wait()
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}
