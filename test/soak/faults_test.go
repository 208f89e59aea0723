//go:build soak

package soak

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate-rls/headgate/test/testenv"
)

// A saboteur makes Redis fail. Each replica reaches it through a proxy of its
// own, so that a fault can befall one and spare the others.
type saboteur struct {
	random  *rand.Rand
	redis   *testenv.RedisServer
	client  *redis.Client // of it, past the proxies
	proxies []*testenv.Proxy
	done    map[string]int // faults by name
}

// nextIn is when the next fault begins after the last one began.
func (s *saboteur) nextIn() time.Duration { return s.between(10*time.Second, 20*time.Second) }

func (s *saboteur) between(low, high time.Duration) time.Duration {
	return low + time.Duration(s.random.Int64N(int64(high-low)))
}

// A fault is something that happens to Redis, or to the way of some replicas to it.
type fault struct {
	name string
	// One of these does it for d: to Redis, or by each to the victims' proxies, and returns more about it.
	redis func(s *saboteur, d time.Duration) error
	way   func(s *saboteur, d time.Duration, each func(func(*testenv.Proxy))) (detail string)
}

// faults happen equally often, but for those that are here twice.
var faults = []fault{
	{name: "stopped", redis: func(s *saboteur, d time.Duration) error {
		s.redis.Pause()
		time.Sleep(d)
		s.redis.Resume()
		return nil
	}},
	{name: "killed", redis: func(s *saboteur, d time.Duration) error {
		s.redis.Kill()
		time.Sleep(d)
		s.redis.Restart()
		return nil
	}},
	{name: "full", redis: func(s *saboteur, d time.Duration) error {
		return s.configured(d, "maxmemory", "1", "0")
	}},
	{name: "read-only", redis: func(s *saboteur, d time.Duration) error {
		return s.configured(d, "min-replicas-to-write", "1", "0")
	}},
	{name: "scripts forgotten", redis: func(s *saboteur, d time.Duration) error {
		return s.again(d, func(ctx context.Context) error { return s.client.ScriptFlush(ctx).Err() })
	}},
	{name: "clients killed", redis: func(s *saboteur, d time.Duration) error {
		return s.again(d, func(ctx context.Context) error {
			return s.client.Do(ctx, "CLIENT", "KILL", "TYPE", "normal").Err()
		})
	}},
	{name: "latency", way: slow}, {name: "latency", way: slow},
	{name: "resets", way: func(s *saboteur, d time.Duration, each func(func(*testenv.Proxy))) string {
		every := s.between(5*time.Millisecond, 200*time.Millisecond)
		for end := time.Now().Add(d); time.Now().Before(end); {
			each((*testenv.Proxy).Cut)
			time.Sleep(every)
		}
		return fmt.Sprintf(" every %v", every.Round(time.Millisecond))
	}},
	{name: "trickle", way: func(s *saboteur, d time.Duration, each func(func(*testenv.Proxy))) string {
		rate := 100 + s.random.IntN(20_000)
		each(func(p *testenv.Proxy) { p.SetRate(rate) })
		time.Sleep(d)
		each(func(p *testenv.Proxy) { p.SetRate(0) })
		return fmt.Sprintf(" of %d bytes a second", rate)
	}},
	{name: "halves late", way: func(s *saboteur, d time.Duration, each func(func(*testenv.Proxy))) string {
		late := s.between(5*time.Millisecond, time.Second)
		each(func(p *testenv.Proxy) { p.SetSplit(late) })
		time.Sleep(d)
		each(func(p *testenv.Proxy) { p.SetSplit(0) })
		return fmt.Sprintf(" by %v", late.Round(time.Millisecond))
	}},
	{name: "packets lost", way: func(_ *saboteur, d time.Duration, each func(func(*testenv.Proxy))) string {
		each((*testenv.Proxy).Freeze)
		time.Sleep(d)
		each((*testenv.Proxy).Resume)
		return ""
	}},
}

func slow(s *saboteur, d time.Duration, each func(func(*testenv.Proxy))) string {
	latency := s.between(5*time.Millisecond, time.Second)
	each(func(p *testenv.Proxy) { p.SetLatency(latency) })
	time.Sleep(d)
	each(func(p *testenv.Proxy) { p.SetLatency(0) })
	return fmt.Sprintf(" of %v", latency.Round(time.Millisecond))
}

// configured changes a parameter of Redis for d.
func (s *saboteur) configured(d time.Duration, name, during, after string) error {
	if err := s.client.ConfigSet(context.Background(), name, during).Err(); err != nil {
		return err
	}
	time.Sleep(d)
	return s.client.ConfigSet(context.Background(), name, after).Err()
}

// again calls f every 50 ms for d.
func (s *saboteur) again(d time.Duration, f func(ctx context.Context) error) error {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if err := f(context.Background()); err != nil {
			return err
		}
	}
	return nil
}

// strike has one fault happen and returns when it is over.
func (s *saboteur) strike() (what string, err error) {
	duration := s.between(2*time.Second, 5*time.Second)
	f := faults[s.random.IntN(len(faults))]
	s.done[f.name]++
	what = fmt.Sprintf("%s for %v", f.name, duration.Round(100*time.Millisecond))
	if f.redis != nil {
		return what, f.redis(s, duration)
	}
	victims := s.victims()
	what += f.way(s, duration, func(do func(*testenv.Proxy)) {
		for _, v := range victims {
			do(s.proxies[v])
		}
	})
	return what + fmt.Sprintf(" at replicas %s", strings.Trim(fmt.Sprint(victims), "[]")), nil
}

// victims are some of the replicas, one at least; all of them in half of the
// cases.
func (s *saboteur) victims() []int {
	order := s.random.Perm(len(s.proxies))
	return order[:min(len(order), 1+s.random.IntN(2*len(order)))]
}
