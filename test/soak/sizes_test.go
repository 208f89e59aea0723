//go:build soak

package soak

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate-rls/headgate/test/testenv"
)

// sampleEvery is how often sizes are looked at.
const sampleEvery = 2 * time.Second

// A series is what one figure was over time.
type series struct {
	what string
	// more is by how much the greatest of a quarter may exceed that of an
	// earlier one, beside a fifth of it, and leastMore the same for the
	// smallest. The greatest depends on which faults there were; what leaks
	// raises the smallest.
	more, leastMore float64
	at              []time.Time
	values          []float64
}

func (s *series) add(at time.Time, v float64) {
	s.at, s.values = append(s.at, at), append(s.values, v)
}

func (s *series) last() float64 {
	if len(s.values) == 0 {
		return 0
	}
	return s.values[len(s.values)-1]
}

// quarter returns the smallest and the greatest value in a quarter, from 1 to 4,
// of the time from begin to end.
func (s *series) quarter(n int, begin, end time.Time) (least, most float64, err error) {
	part := end.Sub(begin) / 4
	from, to := begin.Add(time.Duration(n-1)*part), begin.Add(time.Duration(n)*part)
	found := false
	for i, at := range s.at {
		if at.Before(from) || at.After(to) {
			continue
		}
		v := s.values[i]
		if !found {
			least, most, found = v, v, true
		} else {
			least, most = min(least, v), max(most, v)
		}
	}
	if !found {
		return 0, 0, fmt.Errorf("%s was never seen in quarter %d", s.what, n)
	}
	return least, most, nil
}

// wantFlat compares the last quarter with the second: in the first one things
// are still filling up.
func (s *series) wantFlat(t *testing.T, begin, end time.Time) {
	t.Helper()
	least2, most2, err2 := s.quarter(2, begin, end)
	least4, most4, err4 := s.quarter(4, begin, end)
	if err := errors.Join(err2, err4); err != nil {
		t.Error(err)
		return
	}
	t.Logf("  %-28s second quarter %7.1f to %7.1f, last quarter %7.1f to %7.1f", s.what, least2, most2, least4, most4)
	if bound := 1.2*most2 + s.more; most4 > bound {
		t.Errorf("%s grows: at most %.1f in the second quarter, %.1f in the last, want at most %.1f", s.what, most2,
			most4, bound)
	}
	if bound := 1.2*least2 + s.leastMore; least4 > bound {
		t.Errorf("%s grows: at least %.1f in the second quarter, %.1f in the last, want at most %.1f", s.what, least2,
			least4, bound)
	}
}

// A gauge takes the sizes of all processes.
type gauge struct {
	services []*testenv.Headgate
	client   *redis.Client // of Redis itself

	mu                         sync.Mutex
	goroutines, heap, resident [replicas]series
	memory                     series // of Redis
	keys                       series
	err                        error // the first of a service
}

func newGauge(services []*testenv.Headgate, client *redis.Client) *gauge {
	g := &gauge{services: services, client: client}
	for i := range services {
		// Calls that wait for Redis hold a goroutine each where grpc-go serves.
		g.goroutines[i] = series{what: fmt.Sprintf("replica %d, goroutines", i), more: inFlight, leastMore: 10}
		g.heap[i] = series{what: fmt.Sprintf("replica %d, heap MiB", i), more: 16, leastMore: 8}
		g.resident[i] = series{what: fmt.Sprintf("replica %d, resident MiB", i), more: 16, leastMore: 8}
	}
	// How full Redis is depends on when it was last restarted.
	g.memory = series{what: "Redis, used memory MiB", more: 16, leastMore: 16}
	g.keys = series{what: "Redis, keys", more: 40_000, leastMore: 40_000}
	return g
}

// run samples until ctx ends.
func (g *gauge) run(ctx context.Context) {
	ticker := time.NewTicker(sampleEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			g.sample(ctx)
		}
	}
}

func (g *gauge) sample(ctx context.Context) {
	for i, s := range g.services {
		size, err := s.Size()
		g.mu.Lock()
		if err == nil {
			now := time.Now()
			g.goroutines[i].add(now, float64(size.Goroutines))
			g.heap[i].add(now, float64(size.HeapMiB))
			g.resident[i].add(now, float64(size.RSSMiB))
		} else if g.err == nil {
			g.err = fmt.Errorf("replica %d: %w", i, err)
		}
		g.mu.Unlock()
	}
	ctx, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
	defer cancel()
	info, err := g.client.Info(ctx, "memory").Result()
	m := usedMemory.FindStringSubmatch(info)
	if err != nil || m == nil {
		return // stopped, or away
	}
	used, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		return
	}
	keys, err := g.client.DBSize(ctx).Result()
	if err != nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	g.memory.add(now, used/(1<<20))
	g.keys.add(now, float64(keys))
}

var usedMemory = regexp.MustCompile(`(?m)^used_memory:(\d+)`)

// String is the state of now, for the line of a minute.
func (g *gauge) String() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := ""
	for i := range g.services {
		out += fmt.Sprintf("%d: %.0f goroutines, heap %.0f, resident %.0f MiB; ", i, g.goroutines[i].last(), g.heap[i].last(),
			g.resident[i].last())
	}
	return out + fmt.Sprintf("Redis: %.1f MiB, %.0f keys", g.memory.last(), g.keys.last())
}

// wantFlat looks at everything that was measured between begin and end.
func (g *gauge) wantFlat(t *testing.T, begin, end time.Time) {
	t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.err != nil {
		t.Errorf("the size of a service is unknown: %v", g.err)
	}
	for i := range g.services {
		for _, s := range []*series{&g.goroutines[i], &g.heap[i], &g.resident[i]} {
			s.wantFlat(t, begin, end)
		}
	}
	g.memory.wantFlat(t, begin, end)
	g.keys.wantFlat(t, begin, end)
}

// wantExpiry looks at every key in Redis: each must go away by itself, soon
// after it last mattered.
func wantExpiry(t *testing.T, client *redis.Client) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	const most = 2*longestWindow + 5*time.Second
	total, eternal := 0, 0
	var long []string
	var longest time.Duration
	for cursor := uint64(0); ; {
		keys, next, err := client.Scan(ctx, cursor, "", 1000).Result()
		if err != nil {
			t.Errorf("SCAN: %v", err)
			return
		}
		ttls := make([]*redis.DurationCmd, len(keys))
		if _, err := client.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i, k := range keys {
				ttls[i] = p.PTTL(ctx, k)
			}
			return nil
		}); err != nil {
			t.Errorf("PTTL: %v", err)
			return
		}
		for i, ttl := range ttls {
			switch d := ttl.Val(); {
			case d == -1: // no time to live; -2 would be a key that is gone
				if eternal++; eternal <= 3 {
					t.Errorf("the key %q never expires", keys[i])
				}
			case strings.Contains(keys[i], "{registry/"): // what replicas agree on, and who they are
			case d > most:
				long = append(long, keys[i])
			default:
				longest = max(longest, d)
			}
		}
		total += len(keys)
		if cursor = next; cursor == 0 {
			break
		}
	}
	t.Logf("  %d keys in Redis, %d of them without an end, %d of the hour's limit, the others gone in %v at most", total,
		eternal, len(long), longest)
	if eternal > 0 || len(long) > freeValues {
		t.Errorf("%d keys never expire, and %d live longer than %v, want 0 and at most %d: %.20q", eternal, len(long), most,
			freeValues, long)
	}
}
