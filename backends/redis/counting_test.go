package redis

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/test/random"
	"github.com/headgate-rls/headgate/test/testenv"
)

// openCounting opens a backend that counts without the script from its next slice on.
func openCounting(t *testing.T, url string) *Backend {
	t.Helper()
	b := open(t, url)
	now := limit.InstantOf(time.Now())
	if v := takeAt(t, b, now, textKey("d_first_"), fixed(t, 1, time.Second, limit.Refuse), 1); v.Err != nil {
		t.Fatal(v.Err)
	}
	return b
}

func countsOf(b *Backend) *counting { return b.counts.(*counting) }

// hit is one op that counts what it refuses, whatever becomes of others.
func hit(t *testing.T, text string, most, cost int64) limit.Op {
	return limit.Op{Key: textKey(text), Limit: fixed(t, most, time.Hour, limit.Saturate), Cost: cost, Each: true}
}

// thisHour is an instant in the window of now that is not its first.
func thisHour() limit.Instant { return limit.InstantOf(time.Now().Truncate(time.Second)) }

// keyAt is the key in Redis of an op.
func keyAt(b *Backend, op limit.Op, at limit.Instant) string { return b.keyOf(&op, at) }

// takeOps takes ops as one request.
func takeOps(t *testing.T, b *Backend, at limit.Instant, ops ...limit.Op) limit.Verdict {
	t.Helper()
	return take(t, b, limit.Request{At: at, Ops: ops})[0]
}

// A sliceMaker makes random slices of requests on few keys, near their limits.
type sliceMaker struct {
	*rand.Rand
	t     *testing.T
	round int
	mixed bool // there are ops that only the script knows
}

func (m *sliceMaker) op(each bool) limit.Op {
	o := limit.Saturate
	cost := int64(m.IntN(5))
	if m.mixed && m.IntN(20) == 0 {
		o = limit.Refuse
	}
	if m.mixed && m.IntN(20) == 0 {
		cost = -cost
	}
	if m.IntN(80) == 0 {
		cost = math.MaxInt64
	}
	k := textKey(fmt.Sprintf("d_%d_%d_", m.round, m.IntN(6)))
	if m.IntN(6) == 0 {
		k = limit.Key{Group: fmt.Sprintf("1:d%d", m.round), Limit: "1h"}
	}
	window := []time.Duration{time.Hour, day}[m.IntN(2)]
	if time.Now().UTC().Hour() == 0 {
		window = time.Hour // in the first hour of a day both windows have one key, whose life is that of who came first
	}
	l := fixed(m.t, int64(m.IntN(30)), window, o)
	return limit.Op{Key: k, Limit: l, Cost: cost, Each: each, Shadow: m.IntN(8) == 0}
}

func (m *sliceMaker) slice(at limit.Instant) []limit.Request {
	reqs := make([]limit.Request, 1+m.IntN(6))
	for i := range reqs {
		reqs[i].At = at
		n := 1 + m.IntN(3)
		each := n > 1 || m.IntN(2) == 0
		if m.mixed && m.IntN(20) == 0 {
			each = false
		}
		for range n {
			reqs[i].Ops = append(reqs[i].Ops, m.op(each))
		}
		if m.IntN(40) == 0 {
			reqs[i].Ops = nil // invalid
		}
	}
	return reqs
}

// foreign are values that other programs may leave under a key, and how long they live.
var foreign = []struct {
	value string
	life  time.Duration
}{
	{"3", 0}, {"3", time.Hour}, {"3", 2 * time.Second}, {"0", 0}, {"0", time.Hour}, {"-2", time.Hour}, {"abc", time.Hour},
	{"", 0}, {"4503599627370494", time.Hour}, {"9223372036854775806", time.Hour}, {"-9223372036854775808", 0},
}

// TestCountingDecidesAsTheScript has random slices decided by both, on counters of their own, which at random
// hold foreign values, are gone, or are in a Redis that is full or takes no writes.
func TestCountingDecidesAsTheScript(t *testing.T) {
	for _, flavour := range []string{testenv.Redis, testenv.Redis62, testenv.Valkey} {
		t.Run(flavour, func(t *testing.T) {
			s := testenv.StartRedis(t, testenv.WithFlavour(flavour))
			url := s.URL() + "?layout=envoy&expiration_jitter=0"
			counting := openCounting(t, url+"&cache_key_prefix=c:&prefix=own-c:")
			script := open(t, url+"&cache_key_prefix=s:&prefix=own-s:")
			script.counts = nil
			m, client := &sliceMaker{Rand: random.Rand(t, 11), t: t}, s.Client()
			for round := range random.Times(60, 2000) {
				m.round, m.mixed = round, round%3 == 0
				at := thisHour()
				for range 8 {
					undo := m.disturb(client, counting, script, at)
					reqs := m.slice(at)
					got, want := make([]limit.Verdict, len(reqs)), make([]limit.Verdict, len(reqs))
					counting.Take(t.Context(), reqs, got)
					script.Take(t.Context(), reqs, want)
					undo()
					for i := range reqs {
						if !sameVerdict(&got[i], &want[i]) {
							t.Fatalf("round %d, %+v:\ncounting: %+v\nscript:   %+v", round, reqs[i], got[i], want[i])
						}
					}
					sameKeys(t, client, counting, script, reqs)
				}
				client.FlushDB(t.Context())
			}
			if n := counting.counted.Load(); n < 300 {
				t.Errorf("only %d slices were counted without the script", n)
			}
		})
	}
}

// disturb changes at random what both find. It returns what ends that.
func (m *sliceMaker) disturb(c *redis.Client, counting, script *Backend, at limit.Instant) (undo func()) {
	ctx := m.t.Context()
	for range m.IntN(3) * m.IntN(2) {
		op, f, gone := m.op(true), foreign[m.IntN(len(foreign))], m.IntN(4) == 0
		for _, b := range []*Backend{counting, script} {
			key := keyAt(b, op, at)
			c.Del(ctx, key)
			if !gone {
				c.Set(ctx, key, f.value, f.life)
			}
		}
		if !gone { // who has seen a key's end believes in it
			countsOf(counting).ends = newEnds(time.Now)
		}
	}
	if m.IntN(8) > 0 {
		return func() {}
	}
	way := unwritable[m.IntN(len(unwritable))]
	c.ConfigSet(ctx, way.setting, way.value)
	return func() { c.ConfigSet(ctx, way.setting, way.undo) }
}

// sameVerdict compares all but the texts of errors.
func sameVerdict(a, b *limit.Verdict) bool {
	for _, kind := range []error{backends.ErrCorrupt, backends.ErrDeclined, backends.ErrUnavailable,
		backends.ErrNotApplied, backends.ErrInvalid, backends.ErrUnsupported} {
		if errors.Is(a.Err, kind) != errors.Is(b.Err, kind) {
			return false
		}
	}
	if a.Err != nil || b.Err != nil {
		return a.Err != nil && b.Err != nil
	}
	return a.At == b.At && a.Admitted == b.Admitted && reflect.DeepEqual(a.Outcomes, b.Outcomes)
}

// sameKeys checks that both have left the same under the keys of requests, and with an end.
func sameKeys(t *testing.T, c redis.UniversalClient, counting, script *Backend, reqs []limit.Request) {
	t.Helper()
	for i := range reqs {
		for _, op := range reqs[i].Ops {
			a, b := keyAt(counting, op, reqs[i].At), keyAt(script, op, reqs[i].At)
			got, want := c.Get(t.Context(), a), c.Get(t.Context(), b)
			lives, wanted := c.TTL(t.Context(), a).Val(), c.TTL(t.Context(), b).Val()
			if got.Val() == "0" && want.Err() != nil { // what was undone is there, with an end
				want, wanted = got, op.Limit.Window()
				c.Del(t.Context(), a) // of a full Redis it would have room
			}
			if got.Val() != want.Val() || (got.Err() == nil) != (want.Err() == nil) {
				t.Fatalf("%+v: counting left %v, the script %v", op, got, want)
			}
			// A key of somebody else that outlives the window keeps its expiry: the script alone renews it.
			rest := op.Limit.WindowEnd(reqs[i].At).Sub(reqs[i].At)
			if early := lives < wanted-2*time.Second; early && lives < rest-2*time.Second || lives > wanted+2*time.Second {
				t.Fatalf("%+v: after counting it lives %v, after the script %v", op, lives, wanted)
			}
		}
	}
}

// A key never stays without an end, wherever a pipeline that makes it breaks off.
func TestCountingLeavesNoKeyWithoutAnEnd(t *testing.T) {
	s := testenv.StartRedis(t)
	b, c := openCounting(t, s.URL()+"?layout=envoy"), s.Client()
	x, y := hit(t, "d_a_", 9, 1), hit(t, "d_b_", 9, 1)
	reqs := []limit.Request{{At: thisHour(), Ops: []limit.Op{x, y, x}}}
	all := 1
	for n := 1; n <= all; n++ {
		c.FlushDB(t.Context())
		batch := newBatch()
		countsOf(b).add(batch, reqs, make([]limit.Verdict, 1))
		batch.commands(countsOf(b).ends)
		cmds := batch.trips[0].cmds
		all = len(cmds)
		_ = pipelined(t.Context(), b.client, cmds[:n])
		wantLives(t, c)
	}
	if all < 4 {
		t.Errorf("%d commands for two counters", all)
	}
}

// What makes a key live too short, or for good, after it was known, is put right.
func TestCountingPutsEndsRight(t *testing.T) {
	s := testenv.StartRedis(t)
	url := s.URL() + "?layout=envoy&expiration_jitter=0"
	b, c, at := openCounting(t, url), s.Client(), thisHour()
	rest := limit.Instant(time.Hour.Microseconds()) - at%limit.Instant(time.Hour.Microseconds())
	for name, change := range map[string]func(key string, other *Backend) *Backend{
		"gone": func(key string, _ *Backend) *Backend { c.Del(t.Context(), key); return b },
		"forgotten": func(key string, _ *Backend) *Backend {
			b.Forget(t.Context(), []limit.Key{textKey("d_forgotten_")})
			return b
		},
		"no end":     func(key string, other *Backend) *Backend { c.Persist(t.Context(), key); return other },
		"ends early": func(key string, other *Backend) *Backend { c.Expire(t.Context(), key, 1*time.Second); return other },
	} {
		op := hit(t, "d_"+name+"_", 9, 2)
		key := keyAt(b, op, at)
		takeOps(t, b, at, op)
		by := change(key, openCounting(t, url))
		want := int64(5)
		if c.Exists(t.Context(), key).Val() == 0 {
			want = 7
		}
		if v := takeOps(t, by, at, op); v.Err != nil || v.Outcomes[0].Remaining != want {
			t.Errorf("%s: %+v, want %d left", name, v, want)
		}
		if ttl := c.TTL(t.Context(), key).Val(); ttl < time.Duration(rest)*time.Microsecond-2*time.Second {
			t.Errorf("%s: the key lives %v, its window %v", name, ttl, time.Duration(rest)*time.Microsecond)
		}
	}
}

// A key without an end is found also where it need not live any longer.
func TestCountingFindsKeysWithoutAnEndToTheLast(t *testing.T) {
	s := testenv.StartRedis(t)
	proxy := testenv.StartProxy(t, s.Addr)
	proxy.SetLatency(10 * time.Millisecond)
	b, op := openCounting(t, "redis://"+proxy.Addr+"?layout=envoy"), hit(t, "d_a_", 9, 1)
	last := limit.InstantOf(time.Now().Truncate(time.Hour)) - limit.Instant(time.Second.Microseconds())
	s.Client().Set(t.Context(), keyAt(b, op, last), 1, 0)
	if v := takeOps(t, b, last, op); v.Err != nil || v.Outcomes[0].Remaining != 7 {
		t.Errorf("%+v", v)
	}
	wantLives(t, s.Client())
}

// Keys whose hashes are equal are two.
func TestCountingTellsKeysApart(t *testing.T) {
	b, at := open(t, "redis://localhost?layout=envoy"), thisHour()
	x, y := hit(t, "d_a_", 9, 1), hit(t, "d_b_", 9, 1)
	batch := newBatch()
	counterOf := func(op *limit.Op) *counter {
		from := len(batch.text)
		batch.text = b.appendKey(batch.text, op, at)
		return batch.counter(from, 7)
	}
	k := counterOf(&x)
	if counterOf(&y) == k {
		t.Error("another key has the same counter")
	}
	batch.at[7] = k
	if counterOf(&x) != k {
		t.Error("one key has two counters")
	}
}

// A key lives for the length of its window, and by chance for the jitter longer, also where the instants of the
// caller are ahead of the clock.
func TestCountingJitters(t *testing.T) {
	s := testenv.StartRedis(t)
	b, c := openCounting(t, s.URL()+"?layout=envoy&expiration_jitter=100"), s.Client()
	lives := map[time.Duration]bool{}
	for i := range 30 {
		op := hit(t, fmt.Sprintf("d_%d_", i), 9, 1)
		takeOps(t, b, thisHour(), op)
		ttl := c.TTL(t.Context(), keyAt(b, op, thisHour())).Val()
		lives[ttl] = true
		if ttl < time.Hour-2*time.Second || ttl > time.Hour+100*time.Second {
			t.Errorf("a key lives %v", ttl)
		}
	}
	if len(lives) < 10 {
		t.Errorf("30 keys live %v", lives)
	}
	scripts := scriptCalls(t.Context(), c)
	op, ahead := hit(t, "d_ahead_", 9, 1), limit.InstantOf(time.Now().Add(48*time.Hour).Truncate(time.Hour))
	takeOps(t, b, ahead, op)
	if ttl := c.TTL(t.Context(), keyAt(b, op, ahead)).Val(); ttl < 47*time.Hour {
		t.Errorf("a key of the day after tomorrow lives %v", ttl)
	}
	if n := scriptCalls(t.Context(), c) - scripts; n != 0 {
		t.Errorf("the script was called for it %d times", n)
	}
}

// A slice is one command for each counter, once its end is known.
func TestCountingNeedsOneCommandForEachCounter(t *testing.T) {
	s := testenv.StartRedis(t)
	b, c := openCounting(t, s.URL()+"?layout=envoy"), s.Client()
	reqs, out := make([]limit.Request, 20), make([]limit.Verdict, 20)
	for i := range reqs {
		other := hit(t, fmt.Sprintf("d_%d_", i%5), 9, 1)
		reqs[i] = limit.Request{At: thisHour(), Ops: []limit.Op{hit(t, "d_hot_", 15, 1), other}}
	}
	b.Take(t.Context(), reqs, out)
	c.ConfigResetStat(t.Context())
	b.Take(t.Context(), reqs, out)
	stats := parseInfo(c.Info(t.Context(), "commandstats").Val())
	for name, want := range map[string]string{"incrby": "6", "evalsha": "", "pttl": "", "set": ""} {
		_, calls, _ := strings.Cut(stats["cmdstat_"+name], "calls=")
		if calls, _, _ = strings.Cut(calls, ","); calls != want {
			t.Errorf("%q calls of %s, want %q", calls, name, want)
		}
	}
}

// A user who was given the commands of the script alone goes on to use it.
func TestCountingWithoutTheRight(t *testing.T) {
	for _, flavour := range []string{testenv.Redis, testenv.Redis62, testenv.Valkey} {
		s := testenv.StartRedis(t, testenv.WithFlavour(flavour),
			testenv.WithACL("user old on >pw ~* resetchannels -@all +hello +auth +select +evalsha +eval +time +get +mget +set"))
		var log bytes.Buffer
		conf := mustParse(t, s.URLFor("old", "pw")+"?layout=envoy&timeout=10s")
		conf.Now = time.Now
		b, err := Open(t.Context(), conf, slog.New(slog.NewTextHandler(&log, nil)))
		if err != nil {
			t.Fatal(err)
		}
		for i := range 5 {
			v := takeOps(t, b, thisHour(), hit(t, "d_a_", 6, 2), hit(t, "d_b_", 8, 2))
			if v.Err != nil || v.Admitted != (i < 3) || v.Outcomes[1].Remaining != max(6-2*int64(i), 0) {
				t.Errorf("%s, take %d: %+v", flavour, i, v)
			}
		}
		if n := b.counted.Load(); n != 1 {
			t.Errorf("%s: %d slices were tried without the script, want 1", flavour, n)
		}
		b.Close()
		if n := strings.Count(log.String(), "+incrby"); n != 1 {
			t.Errorf("%s: %d warnings: %s", flavour, n, log.String())
		}
	}
}

// Of a Redis that does not answer nobody knows what it has counted; of one that cannot be reached everybody does.
func TestCountingWithoutAnAnswer(t *testing.T) {
	s := testenv.StartRedis(t)
	proxy := testenv.StartProxy(t, s.Addr)
	b := openCounting(t, "redis://"+proxy.Addr+"?layout=envoy")
	op, peek, other := hit(t, "d_a_", 9, 1), hit(t, "d_b_", 9, 0), hit(t, "d_c_", 9, 0)
	for range 20 { // whichever memory the next slice gets, it has had the reply that there is no such key
		takeOps(t, b, thisHour(), peek, other)
	}
	proxy.Freeze()
	for _, op := range []limit.Op{op, other} {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		out := make([]limit.Verdict, 2)
		start := time.Now()
		b.Take(ctx, []limit.Request{{At: thisHour(), Ops: []limit.Op{peek}}, {At: thisHour(), Ops: []limit.Op{op}}}, out)
		for i, cost := range []int64{0, op.Cost} {
			err := out[i].Err
			if !errors.Is(err, backends.ErrUnavailable) || cost > 0 && errors.Is(err, backends.ErrNotApplied) {
				t.Errorf("frozen, cost %d: %+v", cost, out[i])
			}
		}
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("frozen: it took %v", took)
		}
	}
	proxy.Resume()
	b = openCounting(t, s.URL()+"?layout=envoy")
	s.Stop()
	v := takeOps(t, b, thisHour(), op)
	if !errors.Is(v.Err, backends.ErrUnavailable) {
		t.Errorf("stopped: %+v", v)
	}
	if v = takeOps(t, b, thisHour(), op); !errors.Is(v.Err, backends.ErrNotApplied) {
		t.Errorf("stopped, without a connection: %+v", v)
	}
}

// What was added for a request that failed half-way is found by those who come after.
func TestCountingFindsWhatFailedRequestsHaveAdded(t *testing.T) {
	c, at := DefaultConfig(), thisHour()
	c.Layout = Envoy
	p, err := newPacker(&c)
	if err != nil {
		t.Fatal(err)
	}
	counts := newCounting(&servers{cfg: Config{Now: time.Now}}, p, nil)
	reqs := []limit.Request{{At: at, Ops: []limit.Op{hit(t, "d_a_", 5, 3), hit(t, "d_b_", 5, 3)}},
		{At: at, Ops: []limit.Op{hit(t, "d_a_", 5, 3)}}}
	out := make([]limit.Verdict, 2)
	batch := newBatch()
	counts.add(batch, reqs, out)
	batch.counters[1].state, batch.counters[1].err = lost, errors.New("broken")
	batch.decide(reqs, out, counts.saturates)
	if !errors.Is(out[0].Err, backends.ErrUnavailable) || errors.Is(out[0].Err, backends.ErrNotApplied) {
		t.Errorf("the request that failed: %+v", out[0])
	}
	if out[1].Err != nil || out[1].Admitted || out[1].Outcomes[0].Taken != 2 {
		t.Errorf("the one after it: %+v, want 2 of 5 taken", out[1])
	}
}

// Windows of a second whose keys live no longer are not the script's either.
func TestCountingWithoutJitter(t *testing.T) {
	s := testenv.StartRedis(t)
	b, c := openCounting(t, s.URL()+"?layout=envoy&expiration_jitter=0"), s.Client()
	before, l := scriptCalls(t.Context(), c), fixed(t, 9, time.Second, limit.Saturate)
	for start := time.Now(); time.Since(start) < 1500*time.Millisecond; time.Sleep(time.Millisecond) {
		if v := takeAt(t, b, thisHour(), textKey("d_second_"), l, 1); v.Err != nil {
			t.Fatal(v.Err)
		}
	}
	if n := scriptCalls(t.Context(), c) - before; n > 3 { // for keys that end just then
		t.Errorf("the script was called %d times", n)
	}
}

// TestCountingSurvivesAFailover: a master that has become a replica is left as with the script.
func TestCountingSurvivesAFailover(t *testing.T) {
	s := testenv.StartRedisSentinel(t)
	b := openCounting(t, "redis+sentinel://"+strings.Join(s.SentinelAddrs, ",")+"/"+s.MasterName+"?layout=envoy")
	op, at := hit(t, "d_a_", 1000, 1), thisHour()
	takeOps(t, b, at, op)
	old := s.Master()
	old.Kill()
	s.WaitNewMaster(old)
	before := b.counted.Load()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		v := takeOps(t, b, at, op)
		if v.Err == nil && v.Admitted {
			break
		} else if time.Now().After(end) {
			t.Fatalf("after the failover: %+v", v)
		}
	}
	if v := takeOps(t, b, at, op); v.Err != nil || b.counted.Load() < before+2 {
		t.Errorf("%+v, %d slices without the script", v, b.counted.Load()-before)
	}
	wantLives(t, s.Master().Client())
}

// around is a hook of the driver that does something before the first pipeline, and something after it.
type around struct {
	before, after         func()
	onceBefore, onceAfter sync.Once
}

func (*around) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (*around) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (h *around) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		h.onceBefore.Do(h.before)
		err := next(ctx, cmds)
		h.onceAfter.Do(h.after)
		return err
	}
}

// A request whose key may be left without an end, or that may be left counted, fails as one of which nobody knows
// whether it is recorded.
func TestCountingSaysWhatItCouldNotPutRight(t *testing.T) {
	s := testenv.StartRedis(t)
	c, at, a, foreign := s.Client(), thisHour(), hit(t, "d_a_", 9, 1), hit(t, "d_foreign_", 9, 1)
	for name, ops := range map[string][]limit.Op{"end": {a}, "undo": {a, foreign}} {
		b := openCounting(t, s.URL()+"?layout=envoy")
		takeOps(t, b, at, a)
		c.Set(t.Context(), keyAt(b, foreign, at), "foreign", time.Hour)
		if name == "end" {
			c.Del(t.Context(), keyAt(b, a, at))
		}
		b.client.AddHook(&around{before: func() {},
			after: func() { c.ConfigSet(t.Context(), "min-replicas-to-write", "1") }})
		v := takeOps(t, b, at, ops...)
		if !errors.Is(v.Err, backends.ErrDeclined) || errors.Is(v.Err, backends.ErrNotApplied) {
			t.Errorf("%s: %+v", name, v)
		}
		c.ConfigSet(t.Context(), "min-replicas-to-write", "0")
	}
}

// What may have been counted when a connection broke is not counted once more.
func TestCountingIsNotRepeatedAfterABrokenConnection(t *testing.T) {
	s := testenv.StartRedis(t)
	proxy := testenv.StartProxy(t, s.Addr)
	b := openCounting(t, "redis://"+proxy.Addr+"?layout=envoy")
	b.background.Wait() // else the look at the server has the connection, and a new one breaks before it has sent anything
	proxy.SetLatency(200 * time.Millisecond)
	time.AfterFunc(100*time.Millisecond, func() { proxy.SetLatency(0); proxy.Cut() })
	v := takeOps(t, b, thisHour(), hit(t, "d_a_", 9, 1))
	if !errors.Is(v.Err, backends.ErrUnavailable) || errors.Is(v.Err, backends.ErrNotApplied) {
		t.Errorf("%+v", v)
	}
}
