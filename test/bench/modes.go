package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/backends/layers/coalesce"
	"github.com/headgate-rls/headgate/backends/redis"
	"github.com/headgate-rls/headgate/limit"
)

// A mode is a way to use package redis, with the figures that were published
// for the same way of another limiter (µs; a sliding log in Redis, from Java).
type mode struct {
	name      string
	requests  int
	callers   int
	slice     int  // requests per Take
	combined  bool // through package coalesce, as the service does
	served    bool // as the service does it, so that -check holds it to the goal
	poolSize  int
	published [5]string // average, P50, P95, P99, requests/s
}

func modes() []mode {
	threads := [5]string{"", "700-900", "1000-1300", "1500-2000", ""}
	return []mode{
		{name: "sequential", requests: 10_000, callers: 1, slice: 1, poolSize: 20, served: true,
			published: [5]string{"1200", "600-800", "900-1100", "1200-1500", "8000"}},
		{name: "pipelined, 2 slices of 16", requests: 100_000, callers: 2, slice: 16, poolSize: 20, served: true,
			published: [5]string{"850", "500-700", "800-1000", "1100-1400", ""}},
		{name: "100 goroutines", requests: 100_000, callers: 100, slice: 1, poolSize: 20, published: threads},
		{name: "100 goroutines, combined", requests: 100_000, callers: 100, slice: 1, poolSize: 20, combined: true,
			served: true, published: threads},
		{name: "one connection, pipelined", requests: 100_000, callers: 1, slice: 128, poolSize: 1,
			published: [5]string{"", "", "", "", "15000"}},
	}
}

func (b *bench) modesTable(ctx context.Context) error {
	if b.redis == nil {
		return nil
	}
	fmt.Print("\npackage redis alone, sliding logs: µs per Take and requests/s, beside published figures of a limiter " +
		"like it\n\n")
	fmt.Printf("%-28s %10s %10s %10s %10s %11s\n", "mode", "average", "P50", "P95", "P99", "requests/s")
	var missed []error
	for _, m := range modes() {
		m.requests = max(m.requests/b.modeShare, 2*m.callers*m.slice)
		took, elapsed, err := b.measureMode(ctx, m)
		if err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
		var sum time.Duration
		for _, d := range took {
			sum += d
		}
		us := func(share float64) int64 { return quantile(took, share).Microseconds() }
		fmt.Printf("%-28s %10d %10d %10d %10d %11.0f\n", m.name, (sum / time.Duration(len(took))).Microseconds(),
			us(0.5), us(0.95), us(0.99), float64(m.requests)/elapsed.Seconds())
		if p95 := quantile(took, 0.95); m.served && b.goal > 0 && p95 > b.goal {
			missed = append(missed, fmt.Errorf("the P95 of %q is %v, not at most %v", m.name, p95, b.goal))
		}
		p := m.published
		fmt.Printf("%-28s %10s %10s %10s %10s %11s\n", "    published", p[0], p[1], p[2], p[3], p[4])
	}
	return errors.Join(b.printWire(ctx), errors.Join(missed...))
}

func (b *bench) openBackend(ctx context.Context, poolSize int) (*redis.Backend, error) {
	conf, err := redis.Parse(fmt.Sprintf("%s?pool_size=%d", b.redis.url, poolSize))
	if err != nil {
		return nil, err
	}
	conf.Now = time.Now
	return redis.Open(ctx, conf, nil)
}

// takes returns requests to decide, of one unit each.
func takes() []limit.Request {
	l := limit.MustNew(limit.Spec{Algorithm: limit.SlidingLog, Max: 100, Window: time.Minute})
	list := make([]limit.Request, keys)
	for i := range list {
		key := limit.Key{Group: limit.RawGroup(clientName(i)), Limit: "bench"}
		list[i].Ops = []limit.Op{{Key: key, Limit: l, Cost: 1}}
	}
	return list
}

// measureMode returns, sorted, how long the Takes took, and all together.
func (b *bench) measureMode(ctx context.Context, m mode) ([]time.Duration, time.Duration, error) {
	if err := b.redis.client.FlushAll(ctx).Err(); err != nil {
		return nil, 0, err
	}
	driver, err := b.openBackend(ctx, m.poolSize)
	if err != nil {
		return nil, 0, err
	}
	var be backends.Backend = driver
	if m.combined {
		be = coalesce.New(driver, coalesce.Config{})
	}
	defer be.Close()
	if _, err := runMode(ctx, be, m, m.requests/10); err != nil { // to warm up
		return nil, 0, err
	}
	start := time.Now()
	took, err := runMode(ctx, be, m, m.requests)
	elapsed := time.Since(start)
	slices.Sort(took)
	return took, elapsed, err
}

func runMode(ctx context.Context, be backends.Backend, m mode, requests int) ([]time.Duration, error) {
	list := takes()
	takers := make([]taker, m.callers)
	for i := range takers {
		takers[i] = taker{list: list, next: i * len(list) / m.callers, reqs: make([]limit.Request, m.slice),
			out: make([]limit.Verdict, m.slice)}
	}
	return loop(m.callers, times(requests/m.slice), func(i int, _ time.Time) error { return takers[i].take(ctx, be) })
}

// A taker takes slices of a list in turn.
type taker struct {
	list []limit.Request
	next int
	reqs []limit.Request
	out  []limit.Verdict
}

func (t *taker) take(ctx context.Context, be backends.Backend) error {
	for i := range t.reqs {
		t.reqs[i] = t.list[t.next%len(t.list)]
		t.next++
	}
	be.Take(ctx, t.reqs, t.out)
	for i := range t.out {
		if t.out[i].Err != nil {
			return t.out[i].Err
		}
	}
	return nil
}

// printWire says how many commands and bytes a decision sends.
func (b *bench) printWire(ctx context.Context) error {
	be, err := b.openBackend(ctx, 1)
	if err != nil {
		return err
	}
	defer be.Close()
	client := b.redis.client
	reqs, out := takes()[:1], make([]limit.Verdict, 1)
	take := func() error { be.Take(ctx, reqs, out); return out[0].Err }
	if err := take(); err != nil { // connects, and loads the script
		return err
	}
	if err := client.ConfigResetStat(ctx).Err(); err != nil {
		return err
	}
	bySHA, err := received(ctx, client, take)
	if err != nil {
		return err
	}
	stats, err := client.Info(ctx, "commandstats").Result()
	if err != nil {
		return err
	}
	_, calls, _ := strings.Cut(stats, "cmdstat_evalsha:calls=")
	calls, _, _ = strings.Cut(calls, ",")
	if err := client.ScriptFlush(ctx).Err(); err != nil {
		return err
	}
	both, err := received(ctx, client, take) // EVALSHA, which fails, then EVAL
	if err != nil {
		return err
	}
	fmt.Printf("\ncommands per decision: %s (published: 1 instead of 3-4)\n", calls)
	fmt.Printf("bytes sent per decision: %d by EVALSHA, %d by EVAL: %d saved (published: about 1 KB)\n", bySHA, both-bySHA,
		both-2*bySHA)
	return nil
}

// received returns how many bytes the server received while f ran.
func received(ctx context.Context, client *goredis.Client, f func() error) (int, error) {
	var counts [3]int
	for i := range counts {
		if i == 2 {
			if err := f(); err != nil {
				return 0, err
			}
		}
		text, err := client.Info(ctx, "stats").Result()
		if err != nil {
			return 0, err
		}
		_, text, _ = strings.Cut(text, "total_net_input_bytes:")
		if _, err := fmt.Sscan(text, &counts[i]); err != nil {
			return 0, fmt.Errorf("INFO stats: %w", err)
		}
	}
	asking := counts[1] - counts[0]
	return counts[2] - counts[1] - asking, nil
}
