package redis

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/backends/memory"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/test/random"
	"github.com/headgate-rls/headgate/test/testenv"
)

// one is a request of one op on a fixed window, at Redis' time.
func one(t *testing.T, name string, most, cost int64, window time.Duration, o limit.Overflow) limit.Request {
	t.Helper()
	return limit.Request{Ops: []limit.Op{{Key: limit.Key{Group: "1:" + name, Limit: "w"},
		Limit: fixed(t, most, window, o), Cost: cost}}}
}

// take takes requests as a slice.
func take(t testing.TB, b backends.Backend, reqs ...limit.Request) []limit.Verdict {
	t.Helper()
	out := make([]limit.Verdict, len(reqs))
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	b.Take(ctx, reqs, out)
	return out
}

// windowSlice makes a slice of requests on few keys: most can be counted by INCRBY, and some have it go to the script.
func (m *sliceMaker) windowSlice() []limit.Request {
	reqs := make([]limit.Request, 1+m.IntN(6))
	for i := range reqs {
		n := 1
		if m.mixed && m.IntN(4) == 0 {
			n = 2
		}
		for range n {
			k := m.IntN(5 + m.IntN(20)/19)
			window := []float64{1, 2, 3600, 60, 3600, 0.5}[k]
			o := []limit.Overflow{limit.Refuse, limit.Saturate}[k%2]
			cost := int64(m.IntN(2 + k%2))
			if m.mixed && m.IntN(30) == 0 {
				cost = int64(m.IntN(9)) - 4
			}
			most := []int64{30, 1000, 20, 400, 500, 10}[k] + int64(m.IntN(2))
			op := limit.Op{Key: limit.Key{Group: "1:m", Limit: fmt.Sprint("w", k)}, Cost: cost,
				Limit:  fixed(m.t, most, time.Duration(window*float64(time.Second)), o),
				Shadow: m.IntN(9) == 0, Each: n > 1 && m.IntN(3) > 0}
			reqs[i].Ops = append(reqs[i].Ops, op)
		}
	}
	return reqs
}

// TestWindowsDecideAsMemory compares random slices with what memory decides at the instants that Redis says.
func TestWindowsDecideAsMemory(t *testing.T) {
	for _, flavour := range []string{testenv.Redis, testenv.Redis62, testenv.Valkey} {
		t.Run(flavour, func(t *testing.T) {
			t.Parallel()
			s := testenv.StartRedis(t, testenv.WithFlavour(flavour))
			counting, script, model := open(t, s.URL()), open(t, s.URL()), memory.New(memory.Config{})
			script.counts = nil // another replica, which takes part
			m := &sliceMaker{Rand: random.Rand(t, 17), t: t}
			for round := range random.Times(2500, 30000) {
				m.mixed = round%3 == 0
				reqs, b := m.windowSlice(), counting
				if m.IntN(8) == 0 {
					b = script
				}
				if m.IntN(300) == 0 {
					keys := []limit.Key{reqs[0].Ops[0].Key}
					if err := errors.Join(b.Forget(t.Context(), keys), model.Forget(t.Context(), keys)); err != nil {
						t.Fatal(err)
					}
				}
				got := take(t, b, reqs...)
				for i := range reqs {
					reqs[i].At = got[i].At
				}
				want := take(t, model, reqs...)
				for i := range reqs {
					if got[i].Err != nil || !sameVerdict(&got[i], &want[i]) {
						t.Fatalf("round %d, %+v:\nRedis:  %+v\nmemory: %+v", round, reqs[i], got[i], want[i])
					}
				}
				if m.IntN(50) == 0 {
					time.Sleep(time.Duration(m.IntN(100)) * time.Millisecond)
				}
			}
			if n := counting.counted.Load(); n < 300 {
				t.Errorf("only %d slices were counted without the script", n)
			}
			wantLives(t, s.Client())
		})
	}
}

// A crowd takes units of windows from several replicas at once, and notes what each window has admitted.
type crowd struct {
	mu       sync.Mutex
	admitted map[string]int64
	refused  map[string]bool
	failed   error
}

func newCrowd() *crowd { return &crowd{admitted: map[string]int64{}, refused: map[string]bool{}} }

func (c *crowd) run(t *testing.T, d time.Duration, replicas []*Backend, next func(r *rand.Rand) limit.Request) {
	var wg sync.WaitGroup
	for i := range 12 {
		r := rand.New(rand.NewPCG(random.Seed(t), uint64(i)))
		wg.Go(func() {
			for start := time.Now(); time.Since(start) < d; {
				reqs := []limit.Request{next(r), next(r), next(r)}
				for j, v := range take(t, replicas[i%len(replicas)], reqs...) {
					op := &reqs[j].Ops[0]
					window := fmt.Sprint(op.Key.Group, int64(v.At)/op.Limit.Window().Microseconds())
					c.mu.Lock()
					if v.Err != nil {
						c.failed = v.Err
					} else if v.Admitted {
						c.admitted[window] += op.Cost
					} else {
						c.refused[window] = true
					}
					c.mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
}

// TestWindowsAdmitTheirLimit: over several replicas, each window admits no more than its limit to a crowd, and refuses
// nobody before it has admitted that.
func TestWindowsAdmitTheirLimit(t *testing.T) {
	s := testenv.StartRedis(t)
	replicas := []*Backend{open(t, s.URL()), open(t, s.URL()), open(t, s.URL())}
	replicas[2].counts = nil
	c := newCrowd()
	const most = 300
	c.run(t, time.Duration(random.Times(4, 60))*time.Second, replicas, func(r *rand.Rand) limit.Request {
		if r.IntN(10) == 0 {
			return one(t, "mixed", most, int64(1+r.IntN(5)), time.Second, limit.Refuse)
		}
		return one(t, []string{"mixed", "plain"}[r.IntN(2)], most, 1, time.Second, limit.Refuse)
	})
	if c.failed != nil {
		t.Fatal(c.failed)
	}
	full := 0
	for name, n := range c.admitted {
		// Where costs are mixed, some may not fit into what is left.
		if n > most || n < most && c.refused[name] && strings.Contains(name, "plain") {
			t.Errorf("window %s has admitted %d of %d", name, n, most)
		} else if n == most {
			full++
		}
	}
	if full == 0 {
		t.Error("no window was used up")
	}
	if n := replicas[0].counted.Load(); n < 100 {
		t.Errorf("only %d slices were counted without the script", n)
	}
}

// TestWindowsWhoseKeysGo: where keys are lost, no request fails, and no key stays for good.
func TestWindowsWhoseKeysGo(t *testing.T) {
	s := testenv.StartRedis(t)
	replicas := []*Backend{open(t, s.URL()), open(t, s.URL())}
	c, client := newCrowd(), s.Client()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			client.FlushDB(ctx)
			time.Sleep(5 * time.Millisecond)
		}
	})
	c.run(t, 2*time.Second, replicas, func(r *rand.Rand) limit.Request {
		return one(t, fmt.Sprint("k", r.IntN(3)), 1_000_000, 1, time.Hour, limit.Refuse)
	})
	cancel()
	wg.Wait()
	if c.failed != nil {
		t.Error(c.failed)
	}
	take(t, replicas[0], one(t, "k0", 9, 1, time.Hour, limit.Refuse))
	wantLives(t, s.Client())
}

// A slice on numbers that are known is one INCRBY for each key and one TIME, and the key costs less than its state.
func TestWindowsNeedOneCommandForEachKey(t *testing.T) {
	s := testenv.StartRedis(t)
	b, c := open(t, s.URL()), s.Client()
	reqs := make([]limit.Request, 20)
	for i := range reqs {
		reqs[i] = one(t, fmt.Sprint("k", i%5), 4_000_000_000, 1, 24*time.Hour, limit.Refuse)
	}
	take(t, b, reqs...)
	c.ConfigResetStat(t.Context())
	for i, v := range take(t, b, reqs...) {
		if want := 4_000_000_000 - int64(5+i/5); v.Err != nil || v.Outcomes[0].Remaining != want {
			t.Errorf("%+v, want %d left", v, want)
		}
	}
	stats := parseInfo(c.Info(t.Context(), "commandstats").Val())
	for name, calls := range map[string]string{"incrby": "calls=5,", "time": "calls=1,", "evalsha": "", "set": ""} {
		if got := stats["cmdstat_"+name]; !strings.HasPrefix(got, calls) || calls == "" && got != "" {
			t.Errorf("%s: %q, want %q", name, got, calls)
		}
	}
	if got := c.ObjectEncoding(t.Context(), b.ownKey(reqs[0].Ops[0].Key)).Val(); got != "int" {
		t.Errorf("a window is stored as %s", got)
	}
}

// Ops that are charged each are counted without the script as well.
func TestWindowsThatAreChargedEach(t *testing.T) {
	s := testenv.StartRedis(t)
	b, req := open(t, s.URL()), limit.Request{}
	if err := b.ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := scriptCalls(t.Context(), s.Client())
	for i, o := range []limit.Overflow{limit.Refuse, limit.Saturate, limit.Refuse} {
		op := one(t, fmt.Sprint("k", i), 9, 1, time.Hour, o).Ops[0]
		op.Each = true
		req.Ops = append(req.Ops, op)
	}
	for i := range int64(12) {
		v := take(t, b, req)[0]
		if v.Err != nil || v.Admitted != (i < 9) || v.Outcomes[2].Remaining != max(8-i, 0) {
			t.Errorf("%d: %+v", i, v)
		}
	}
	// EVALSHA and EVAL of both scripts, and what had no room
	if n := scriptCalls(t.Context(), s.Client()) - before; n != 6 {
		t.Errorf("the script was called %d times", n)
	}
}

// Refused clients ask the script alone, and what they ask counts nothing.
func TestWindowsThatAreFullAskTheScript(t *testing.T) {
	s := testenv.StartRedis(t)
	b, req := open(t, s.URL()), one(t, "k", 3, 1, time.Hour, limit.Refuse)
	for i := range 20 {
		v := take(t, b, req, req)
		for j := range v {
			if v[j].Err != nil || v[j].Admitted != (2*i+j < 3) {
				t.Errorf("%d: %+v", 2*i+j, v[j])
			}
		}
	}
	if n := b.counted.Load(); n != 1 {
		t.Errorf("%d slices were counted, want the second alone", n)
	}
	larger := one(t, "k", 5, 1, time.Hour, limit.Refuse)
	if v := take(t, b, larger)[0]; v.Outcomes[0].Remaining != 1 {
		t.Errorf("with a limit of 5: %+v, want 1 left", v)
	}
}

// What INCRBY cannot count is decided by the script as ever: keys of other programs, and a server that takes no writes.
func TestWindowsThatCannotBeCounted(t *testing.T) {
	s := testenv.StartRedis(t)
	c := s.Client()
	for what, spoil := range map[string]func(key string){
		"hash":   func(key string) { c.Del(t.Context(), key); c.HSet(t.Context(), key, "a", "b") },
		"string": func(key string) { c.Set(t.Context(), key, "foreign", 0) },
		"empty":  func(key string) { c.Set(t.Context(), key, "", 0) },
		"number": func(key string) { c.Set(t.Context(), key, "9223372036854775000", 0) },
		"most":   func(key string) { c.Set(t.Context(), key, "9223372036854775807", 0) },
	} {
		b, req := open(t, s.URL()), one(t, what, 9, 1, time.Hour, limit.Refuse)
		take(t, b, req)
		spoil(b.ownKey(req.Ops[0].Key))
		v := take(t, b, req, one(t, "other", 9, 1, time.Hour, limit.Refuse))
		if !errors.Is(v[0].Err, backends.ErrCorrupt) || v[1].Err != nil {
			t.Errorf("%s: %+v", what, v)
		}
	}
	for _, way := range unwritable {
		b, req := open(t, s.URL()), one(t, way.name, 2, 1, time.Hour, limit.Refuse)
		take(t, b, req)
		take(t, b, req)
		c.ConfigSet(t.Context(), way.setting, way.value)
		if v := take(t, b, req)[0]; v.Err != nil || v.Admitted { // there is nothing to write
			t.Errorf("%s, limit 2: %+v", way.name, v)
		}
		v := take(t, b, one(t, way.name, 3, 1, time.Hour, limit.Refuse))[0]
		if way.full != v.Admitted || way.full == errors.Is(v.Err, backends.ErrDeclined) {
			t.Errorf("%s, limit 3: %+v", way.name, v)
		}
		c.ConfigSet(t.Context(), way.setting, way.undo)
	}
}

// A user who may not use INCRBY has the script count.
func TestWindowsWithoutTheRight(t *testing.T) {
	s := testenv.StartRedis(t,
		testenv.WithACL("user old on >pw ~* resetchannels -@all +hello +auth +select +evalsha +eval +time +get +mget +set"))
	var log bytes.Buffer
	conf := mustParse(t, s.URLFor("old", "pw")+"?timeout=10s")
	conf.Now = time.Now
	b, err := Open(t.Context(), conf, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	for i := range int64(5) {
		v := take(t, b, one(t, "k", 3, 1, time.Hour, limit.Refuse))[0]
		if v.Err != nil || v.Outcomes[0].Remaining != max(2-i, 0) {
			t.Errorf("take %d: %+v", i, v)
		}
	}
	b.Close()
	if n := b.counted.Load(); n != 1 || strings.Count(log.String(), "+incrby") != 1 {
		t.Errorf("%d slices were tried without the script, want 1: %s", n, log.String())
	}
}

// After a timeout nobody knows what was counted, and the call is not made again.
func TestWindowsWithoutAnAnswer(t *testing.T) {
	s := testenv.StartRedis(t)
	proxy := testenv.StartProxy(t, s.Addr)
	b, req := open(t, "redis://"+proxy.Addr+"?timeout=100ms"), one(t, "k", 9, 1, time.Hour, limit.Refuse)
	take(t, b, req)
	proxy.Freeze()
	v := take(t, b, req)[0]
	if !errors.Is(v.Err, backends.ErrUnavailable) || errors.Is(v.Err, backends.ErrNotApplied) {
		t.Errorf("frozen: %+v", v)
	}
	proxy.Resume()
	b = open(t, s.URL())
	take(t, b, req)
	s.Stop()
	take(t, b, req) // it finds a broken connection
	if v = take(t, b, req)[0]; !errors.Is(v.Err, backends.ErrNotApplied) {
		t.Errorf("stopped: %+v", v)
	}
}

// Another replica begins the next window before or after INCRBY: what was counted by mistake is given back where it
// was counted, and nowhere else.
func TestWindowsThatEndMeanwhile(t *testing.T) {
	for _, before := range []bool{true, false} {
		s := testenv.StartRedis(t)
		b, other := open(t, s.URL()), open(t, s.URL())
		other.counts = nil
		const most = 2
		req := one(t, "k", most, 1, time.Second, limit.Refuse)
		for time.Now().Nanosecond() > 300e6 {
			time.Sleep(10 * time.Millisecond)
		}
		take(t, b, req)
		hook := &around{before: func() {}, after: func() {}}
		next := func() {
			time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second + 50*time.Millisecond)))
			take(t, other, req)
		}
		hook.after = next
		if before {
			hook.before, hook.after = next, func() {}
		}
		b.client.AddHook(hook)
		var admitted []bool
		for _, v := range take(t, b, req, req, req) {
			admitted = append(admitted, v.Admitted)
		}
		// Of the window that ended, one was left; of the next, the other replica has taken one.
		if want := []bool{true, !before, false}; !slices.Equal(admitted, want) {
			t.Errorf("next window before INCRBY %v: admitted %v, want %v", before, admitted, want)
		}
		if v := take(t, b, req)[0]; v.Admitted {
			t.Errorf("next window before INCRBY %v: a third unit: %+v", before, v)
		}
	}
}

// A key that INCRBY has made expires also where the script refuses the request.
func TestWindowsThatAreGoneAndRefused(t *testing.T) {
	s := testenv.StartRedis(t)
	b := open(t, s.URL())
	req := one(t, "k", 9, 1, time.Hour, limit.Refuse)
	take(t, b, req)
	s.Client().FlushDB(t.Context())
	req.Ops[0].Limit = fixed(t, 0, time.Hour, limit.Refuse)
	if v := take(t, b, req)[0]; v.Err != nil || v.Admitted {
		t.Errorf("%+v", v)
	}
	wantLives(t, s.Client())
}

// The key of a window lives on where the caller's clock runs slower than that of Redis.
func TestWindowsOfSlowClocks(t *testing.T) {
	s := testenv.StartRedis(t)
	b, req := open(t, s.URL()), one(t, "k", 9, 1, time.Second, limit.Refuse)
	req.At = take(t, b, req)[0].At
	for i := range int64(7) {
		time.Sleep(600 * time.Millisecond)
		if v := take(t, b, req)[0]; v.Err != nil || v.Outcomes[0].Remaining != 7-i {
			t.Fatalf("take %d: %+v", i, v)
		}
	}
}
