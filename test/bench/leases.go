package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/backends/dynamodb"
	"github.com/headgate-rls/headgate/backends/memory"
	"github.com/headgate-rls/headgate/limit"
)

// The lease table measures acquire and release beside so many others under
// the same key, in slices as they come under load, and the first acquire after
// many have expired at once.
const leaseSlice = 64

func (b *bench) leaseTable(ctx context.Context) error {
	fmt.Printf("\nrequests in flight: CPU µs per acquire and per release, in slices of %d, "+
		"beside others under the same key\n\n", leaseSlice)
	fmt.Printf("%-10s %10s %9s %9s %9s %9s\n", "backend", "in flight", "acquire", "+ Redis", "release", "+ Redis")
	err := b.eachLeaseStore(ctx, func(s *leaseStore) error {
		for _, others := range []int{10, 1_000, 10_000} {
			if err := s.pairs(ctx, others); err != nil {
				return err
			}
		}
		return s.expire(ctx)
	})
	if err != nil {
		return err
	}
	return b.storedLeases(ctx)
}

// storedLeases measures acquire and release in databases and in DynamoDB Local. Their slices take turns at one key.
func (b *bench) storedLeases(ctx context.Context) error {
	fmt.Printf("\nthe same in databases: ms per slice of %d, and µs of headgate's CPU per request\n\n", leaseSlice)
	fmt.Printf("%-10s %10s %9s %9s %9s\n", "backend", "in flight", "acquire", "release", "CPU")
	measure := func(name string, be backends.Backend) error {
		s := &leaseStore{effort: b.effort, name: name, be: be, pids: []int{os.Getpid()},
			at: func() limit.Instant { return limit.InstantOf(time.Now()) }}
		s.leaseTakes = max(s.leaseTakes/20, 1)
		return errors.Join(s.stored(ctx, 10), s.stored(ctx, storedMost-leaseSlice))
	}
	err := eachLimitDB("leases", func(db *limitDB) error {
		if err := db.prepare(ctx); err != nil {
			return err
		}
		store, err := db.open("")
		if err != nil {
			return err
		}
		defer store.Close()
		return measure(db.name, store)
	})
	if err != nil {
		return err
	}
	return withDynamo(ctx, "leases", func(store *dynamodb.Backend, _ string) error { return measure("dynamodb", store) })
}

// stored measures acquire and release beside others by the time that they take.
func (s *leaseStore) stored(ctx context.Context, others int) error {
	l := limit.MustNew(limit.Spec{Algorithm: limit.Concurrency, Max: storedMost, Window: time.Hour})
	op := limit.Op{Key: limit.Key{Group: "leases beside " + strconv.Itoa(others), Limit: "c"}, Limit: l, Cost: 1}
	if _, err := s.do(ctx, op, "other", others); err != nil {
		return err
	}
	var took [2]time.Duration
	before, err := cpuTimes(s.pids)
	if err != nil {
		return err
	}
	for range s.leaseTakes {
		for i, cost := range []int64{1, -1} {
			start := time.Now()
			op.Cost = cost
			if _, err := s.do(ctx, op, "mine", leaseSlice); err != nil {
				return err
			}
			took[i] += time.Since(start)
		}
	}
	after, err := cpuTimes(s.pids)
	if err != nil {
		return err
	}
	each := func(d time.Duration) float64 { return float64(d.Microseconds()) / float64(s.leaseTakes) }
	fmt.Printf("%-10s %10d %9.2f %9.2f %9.1f\n", s.name, others, each(took[0])/1000, each(took[1])/1000,
		each(after[0]-before[0])/leaseSlice)
	return nil
}

// storedMost is how many requests in flight a limit in a database may allow.
const storedMost = 256

// A leaseStore is a backend with leases, and whose CPU time it takes.
type leaseStore struct {
	effort
	name string
	be   backends.Backend
	pids []int
	at   func() limit.Instant // of requests
}

func (b *bench) eachLeaseStore(ctx context.Context, f func(*leaseStore) error) error {
	inMemory := &leaseStore{effort: b.effort, name: "memory", be: memory.New(memory.Config{}), pids: []int{os.Getpid()},
		at: func() limit.Instant { return limit.InstantOf(time.Now()) }}
	defer inMemory.be.Close()
	if err := f(inMemory); err != nil || b.redis == nil {
		return err
	}
	if err := b.redis.client.FlushAll(ctx).Err(); err != nil {
		return err
	}
	driver, err := b.openBackend(ctx, 1)
	if err != nil {
		return err
	}
	defer driver.Close()
	return f(&leaseStore{effort: b.effort, name: "redis", be: driver, pids: []int{os.Getpid(), b.redis.pid},
		at: func() limit.Instant { return 0 }})
}

// pairs measures acquire and release beside others.
func (s *leaseStore) pairs(ctx context.Context, others int) error {
	l := limit.MustNew(limit.Spec{Algorithm: limit.Concurrency, Max: limit.MaxInFlight, Window: time.Hour})
	key := limit.Key{Group: "leases beside " + strconv.Itoa(others), Limit: "c"}
	if _, err := s.do(ctx, limit.Op{Key: key, Limit: l, Cost: 1}, "other", others); err != nil {
		return err
	}
	acquire, err := s.measure(ctx, limit.Op{Key: key, Limit: l, Cost: 1})
	if err != nil {
		return err
	}
	release, err := s.measure(ctx, limit.Op{Key: key, Limit: l, Cost: -1})
	if err != nil {
		return err
	}
	fmt.Printf("%-10s %10d", s.name, others)
	for _, cpu := range [][]time.Duration{acquire, release} {
		for i := range 2 {
			if i < len(cpu) {
				fmt.Printf(" %9.1f", float64(cpu[i].Nanoseconds())/1000/float64(leaseSlice*s.leaseTakes))
			} else {
				fmt.Printf(" %9s", "")
			}
		}
	}
	fmt.Println()
	return nil
}

// measure does op for many holders and returns the CPU time it took.
func (s *leaseStore) measure(ctx context.Context, op limit.Op) ([]time.Duration, error) {
	return s.measureAll(ctx, ofHolder(op, "mine"))
}

// measureAll does what ops says and returns the CPU time it took.
func (s *leaseStore) measureAll(ctx context.Context, ops func(i int) []limit.Op) ([]time.Duration, error) {
	before, err := cpuTimes(s.pids)
	if err != nil {
		return nil, err
	}
	if _, err := s.doAll(ctx, ops, leaseSlice*s.leaseTakes); err != nil {
		return nil, err
	}
	after, err := cpuTimes(s.pids)
	if err != nil {
		return nil, err
	}
	for i := range after {
		after[i] -= before[i]
	}
	return after, nil
}

// do does op for n holders, and returns the last outcome.
func (s *leaseStore) do(ctx context.Context, op limit.Op, holder string, n int) (last limit.Outcome, err error) {
	return s.doAll(ctx, ofHolder(op, holder), n)
}

// ofHolder returns op for each of many holders.
func ofHolder(op limit.Op, holder string) func(i int) []limit.Op {
	return func(i int) []limit.Op {
		op := op
		op.Holder = holder + strconv.Itoa(i)
		return []limit.Op{op}
	}
}

// doAll does n requests, and returns the first outcome of the last.
func (s *leaseStore) doAll(ctx context.Context, ops func(i int) []limit.Op, n int) (last limit.Outcome, err error) {
	reqs, out := make([]limit.Request, leaseSlice), make([]limit.Verdict, leaseSlice)
	for from := 0; from < n; from += leaseSlice {
		some := min(leaseSlice, n-from)
		at := s.at()
		for i := range some {
			reqs[i] = limit.Request{Ops: ops(from + i), At: at}
		}
		s.be.Take(ctx, reqs[:some], out)
		for i := range some {
			if out[i].Err != nil {
				return last, out[i].Err
			}
			if !out[i].Admitted {
				return last, errors.New("a lease was refused")
			}
		}
		last = out[some-1].Outcomes[0]
	}
	return last, nil
}

// expire measures what is left to do when many leases expire at once.
func (s *leaseStore) expire(ctx context.Context) error {
	life := s.leaseLife
	l := limit.MustNew(limit.Spec{Algorithm: limit.Concurrency, Max: limit.MaxInFlight, Window: life})
	op := limit.Op{Key: limit.Key{Group: "leases that expire", Limit: "c"}, Limit: l, Cost: 1}
	start := time.Now()
	if _, err := s.do(ctx, op, "expiring", s.leasesAtOnce); err != nil {
		return err
	}
	taken := time.Since(start)
	select {
	case <-time.After(time.Until(start.Add(life + taken + 100*time.Millisecond))):
	case <-ctx.Done():
		return ctx.Err()
	}
	before, err := cpuTimes(s.pids)
	if err != nil {
		return err
	}
	start = time.Now()
	if out, err := s.do(ctx, op, "next", 1); err != nil || out.InFlight != 1 {
		return fmt.Errorf("after the leases had expired: %+v, %w", out, err)
	}
	first := time.Since(start)
	if _, err := s.do(ctx, op, "next", 2*leaseSlice); err != nil {
		return err
	}
	after, err := cpuTimes(s.pids)
	if err != nil {
		return err
	}
	var cpu time.Duration
	for i := range after {
		cpu += after[i] - before[i]
	}
	fmt.Printf("%-10s %d leases expired at once: the next acquire took %v, and it with %d more %v of CPU time, "+
		"1 trip per slice\n",
		s.name, s.leasesAtOnce, first.Round(time.Microsecond), 2*leaseSlice, cpu.Round(time.Millisecond))
	return nil
}
