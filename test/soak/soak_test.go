//go:build soak

package soak

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate-rls/headgate/test/testenv"
)

const (
	reloadEvery = 10 * time.Second
	// recoverIn is how soon after the last fault all replicas decide by the
	// backend again, on a machine that may be busy.
	recoverIn = 15 * time.Second
	// maxNoise is the share of calls that may be excused by this machine's
	// noise, in percent. Were one replica to hang in all outages, it would be
	// about 10.
	maxNoise = 5.0
	// minutesOver is how long a run may take longer than the load runs.
	minutesOver = 5
)

// TestSoak is the whole run.
func TestSoak(t *testing.T) {
	if *length < time.Minute {
		t.Fatalf("-soak %v is too short: a quarter of it should see a fault", *length)
	}
	if *seed == 0 {
		*seed = rand.Uint64N(1 << 32)
	}
	t.Logf("%v with seed %d; repeat with -soak %v -seed %d", *length, *seed, *length, *seed)
	watchdog := time.AfterFunc(*length+minutesOver*time.Minute, func() { panic("the soak test hangs") })
	defer watchdog.Stop()

	r := start(t)
	r.run(t)
	r.finish(t)
}

// A run is everything that takes part.
type run struct {
	file     string // of the rules
	redis    *testenv.RedisServer
	client   *redis.Client
	services []*testenv.Headgate
	saboteur *saboteur
	load     *load
	gauge    *gauge

	begin, end time.Time
	calm       time.Time // when the last fault was over
	endLoad    context.CancelFunc
	background sync.WaitGroup
	stop       context.CancelFunc

	mu        sync.Mutex
	reloads   int
	reloadErr error
}

func start(t *testing.T) *run {
	t.Helper()
	r := &run{file: filepath.Join(t.TempDir(), "rules.yaml"), redis: testenv.StartRedis(t)}
	if err := putRules(r.file, 0); err != nil {
		t.Fatal(err)
	}
	// No retries: a Redis that is away shall not be waited for.
	r.client = redis.NewClient(&redis.Options{Addr: r.redis.Addr, MaxRetries: -1, DialerRetries: 1,
		DialTimeout: 500 * time.Millisecond, ContextTimeoutEnabled: true})
	t.Cleanup(func() { r.client.Close() })
	r.saboteur = &saboteur{random: rand.New(rand.NewPCG(*seed, 1<<63)), redis: r.redis, client: r.client,
		done: map[string]int{}}

	var addrs []string
	for i := range replicas {
		transport := "unary"
		if i == replicas-1 {
			transport = "grpc"
		}
		proxy := testenv.StartProxy(t, r.redis.Addr)
		r.saboteur.proxies = append(r.saboteur.proxies, proxy)
		s := testenv.StartHeadgate(t, program, "--rules", r.file, "--backend", "redis://"+proxy.Addr,
			"--replicas", strconv.Itoa(replicas), "--transport", transport)
		r.services = append(r.services, s)
		addrs = append(addrs, s.GRPC)
	}
	loadCtx, endLoad := context.WithCancel(context.Background())
	r.endLoad = endLoad
	t.Cleanup(endLoad)
	r.load = startLoad(t, loadCtx, *seed, append(addrs, testenv.StartIdle(t)))
	t.Cleanup(func() { // before the connections are closed
		endLoad()
		r.load.wait.Wait()
	})

	r.gauge = newGauge(r.services, r.client)
	ctx, stop := context.WithCancel(context.Background())
	r.stop = stop
	r.background.Go(func() { r.gauge.run(ctx) })
	r.background.Go(func() { r.reload(ctx) })
	t.Cleanup(func() {
		stop()
		r.background.Wait()
	})
	return r
}

// reload replaces the rules repeatedly.
func (r *run) reload(ctx context.Context) {
	ticker := time.NewTicker(reloadEvery)
	defer ticker.Stop()
	for generation := 1; ; generation++ {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		err := putRules(r.file, generation)
		r.mu.Lock()
		r.reloads = generation
		if r.reloadErr == nil {
			r.reloadErr = err
		}
		r.mu.Unlock()
	}
}

// run has faults happen until the time is over, and tells each minute how
// things are. The last seconds are without faults.
func (r *run) run(t *testing.T) {
	r.begin = time.Now()
	until := r.begin.Add(*length)
	nextFault, nextReport := r.begin.Add(r.saboteur.nextIn()), r.begin.Add(time.Minute)
	for last := until.Add(-10 * time.Second); ; {
		next := nextReport
		if nextFault.Before(last) && nextFault.Before(next) {
			next = nextFault
		}
		if next.After(until) {
			break
		}
		time.Sleep(time.Until(next))
		if next.Equal(nextReport) {
			r.report(t)
			nextReport = nextReport.Add(time.Minute)
			continue
		}
		what, err := r.saboteur.strike()
		r.calm = time.Now()
		if err != nil {
			t.Errorf("fault: %s: %v", what, err)
		}
		t.Logf("%8v fault: %s", r.elapsed(), what)
		nextFault = nextFault.Add(r.saboteur.nextIn())
	}
	time.Sleep(time.Until(until))
	r.end = time.Now()
}

func (r *run) elapsed() time.Duration { return time.Since(r.begin).Round(time.Second) }

// report prints the line of a minute, and what calls were found guilty.
func (r *run) report(t *testing.T) {
	r.blame(t, r.load.judge(time.Now().Add(-3*time.Second)))
	var sum client
	var worst time.Duration
	counts := r.load.counts()
	for _, c := range counts[:replicas] {
		sum.calls += c.calls
		sum.degraded += c.degraded
		sum.late += c.late
		sum.failed += c.failed
		sum.excused += c.excused
		worst = max(worst, c.times.worst)
	}
	t.Logf("%8v %d calls, by policy %d, late %d, errors %d, excused %d, max %v (idle %v); %v", r.elapsed(),
		sum.calls, sum.degraded, sum.late, sum.failed, sum.excused, worst.Round(time.Millisecond),
		counts[idle].times.worst.Round(time.Millisecond), r.gauge)
}

// blame prints the first of the calls that have no excuse.
func (r *run) blame(t *testing.T, guilty []suspect) {
	t.Helper()
	for i, s := range guilty {
		if i == 5 {
			t.Errorf("and %d more", len(guilty)-i)
			break
		}
		t.Errorf("a call of %s to replica %d, %v after the beginning, took %v and ended with %v; noise %v", s.key, s.client,
			s.began.Sub(r.begin).Round(time.Millisecond), s.took, s.err, s.noise)
	}
}

// finish ends everything and judges.
func (r *run) finish(t *testing.T) {
	r.wantRecovery(t)
	r.endLoad()
	r.load.wait.Wait()
	r.stop()
	r.background.Wait()

	r.blame(t, r.load.judge(time.Now()))
	r.wantCalls(t)
	t.Logf("sizes:")
	r.gauge.wantFlat(t, r.begin, r.end)
	wantExpiry(t, r.client)
	r.wantRules(t)
	for i, s := range r.services {
		if err := s.Stop(); err != nil {
			t.Errorf("replica %d: %v", i, err)
		}
	}
}

// wantRecovery wants the backend to decide again after the last fault.
func (r *run) wantRecovery(t *testing.T) {
	t.Helper()
	since := r.calm.Add(time.Second)
	for end := time.Now().Add(recoverIn); ; time.Sleep(50 * time.Millisecond) {
		undecided := r.load.undecided(since)
		if len(undecided) == 0 {
			return
		}
		if time.Now().After(end) {
			t.Errorf("the backend decides for replicas %v no more after the last fault", undecided)
			return
		}
	}
}

// wantCalls prints the table of calls and wants their times and ends to be in
// order, and all policies to have been needed.
func (r *run) wantCalls(t *testing.T) {
	t.Helper()
	counts := r.load.counts()
	t.Logf("faults: %s", strings.TrimPrefix(fmt.Sprint(r.saboteur.done), "map"))
	t.Logf("calls to        number   refused  by policy   late  errors  excused      p50      p99    p99.9      max")
	total, excused := 0, 0
	for i, c := range counts {
		name := fmt.Sprintf("replica %d", i)
		if i == idle {
			name = "(idle)"
		} else {
			total, excused = total+c.calls, excused+c.excused
			if c.calls == 0 || c.refused == 0 || c.degraded == 0 {
				t.Errorf("%s had %d calls, refused %d and answered %d by policy: the run shows nothing", name, c.calls,
					c.refused, c.degraded)
			}
		}
		t.Logf("%-12s %9d %9d %10d %6d %7d %8d %8v %8v %8v %8v", name, c.calls, c.refused, c.degraded, c.late,
			c.failed, c.excused,
			c.times.at(0.5), c.times.at(0.99), c.times.at(0.999), c.times.worst.Round(100*time.Microsecond))
	}
	if share := 100 * float64(excused) / float64(total); share > maxNoise {
		t.Errorf("%.1f %% of the calls ended at their deadline on a busy machine, want at most %v %%", share, maxNoise)
	}
	if r.load.lost > 0 {
		t.Errorf("%d more calls were late or failed", r.load.lost)
	}
}

// wantRules wants every change of the rules to have been taken, and nothing to
// have been wrong with one.
func (r *run) wantRules(t *testing.T) {
	t.Helper()
	r.mu.Lock()
	reloads, err := r.reloads, r.reloadErr
	r.mu.Unlock()
	if err != nil {
		t.Errorf("the rules could not be replaced: %v", err)
	}
	for i, s := range r.services {
		got, err := s.Metrics("headgate_rules_generation")
		if err != nil {
			t.Errorf("replica %d: %v", i, err)
			continue
		}
		// On a machine that stands still two changes can become one.
		if n := int(got[0]) - 1; n > reloads || n < reloads*9/10-1 {
			t.Errorf("replica %d took %d changes of the rules, want %d", i, n, reloads)
		}
		warnings, failures := strings.Count(s.Log(), "level=WARN"), strings.Count(s.Log(), "level=ERROR")
		t.Logf("replica %d: %v of %d changes of the rules, %d warnings and %d errors in %d KiB of log", i, got[0]-1, reloads,
			warnings, failures, len(s.Log())>>10)
	}
}
