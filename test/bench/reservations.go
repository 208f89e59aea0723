package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/headgate-rls/headgate/limit"
)

// The reservation table measures what a request costs the store whose cost is known afterwards:
// where it asks and reports its cost, and where it reserves and settles, beside so many open
// reservations of the same key.
func (b *bench) reservationTable(ctx context.Context) error {
	fmt.Printf("\nreservations: CPU µs per request, which asks and reports its cost, or reserves and settles, "+
		"in slices of %d, "+
		"beside open reservations of the same key\n\n", leaseSlice)
	fmt.Printf("%-10s %10s %9s %9s %9s %9s %9s %9s\n", "backend", "open", "report", "+ Redis", "settle",
		"+ Redis", "oldest",
		"+ Redis")
	return b.eachLeaseStore(ctx, func(s *leaseStore) error {
		for _, open := range []int{10, 1_000, s.leasesAtOnce} {
			if err := s.budget(ctx, open); err != nil {
				return err
			}
		}
		return nil
	})
}

// budget measures requests beside open reservations.
func (s *leaseStore) budget(ctx context.Context, open int) error {
	const units = 100
	l := limit.MustNew(limit.Spec{Algorithm: limit.FixedWindow, Max: limit.MaxUnits, Window: time.Hour,
		Overflow: limit.Debt})
	life := limit.MustNew(limit.Spec{Algorithm: limit.Concurrency, Max: limit.MaxInFlight, Window: time.Hour})
	group := "budget beside " + strconv.Itoa(open)
	budget := limit.Op{Key: limit.Key{Group: group, Limit: "f"}, Limit: l.Strict(), Cost: units}
	lease := limit.Op{Key: limit.Key{Group: group, Limit: limit.ReservationPart}, Limit: life, Cost: 1, Shadow: true}
	reserve := func(holder string) func(i int) []limit.Op {
		return func(i int) []limit.Op {
			lease := lease
			lease.Holder = limit.WithAmount(holder+strconv.Itoa(i), units)
			return []limit.Op{budget, lease}
		}
	}
	settle := func(holder func(i int) string) func(i int) []limit.Op {
		return func(i int) []limit.Op {
			end, correct := lease, budget
			end.Cost, end.Holder, end.Ending = -1, holder(i), limit.EndKnown
			correct.Limit, correct.Cost, correct.AsOf = l, units/2, limit.AsLeased
			return []limit.Op{end, correct}
		}
	}
	hits := func(n int64, of *limit.Limit) func(int) []limit.Op {
		return func(int) []limit.Op {
			op := budget
			op.Cost, op.Limit, op.Each = n, of, n > 0
			return []limit.Op{op}
		}
	}
	if _, err := s.doAll(ctx, reserve("other"), open); err != nil {
		return err
	}
	fmt.Printf("%-10s %10d", s.name, open)
	for _, row := range [][2]func(int) []limit.Op{
		{hits(0, l), hits(units/2, l)},
		{reserve("mine"), settle(func(i int) string { return limit.WithAmount("mine"+strconv.Itoa(i), units) })},
		{reserve("next"), settle(func(int) string { return "" })},
	} {
		var cpu [2]time.Duration
		for _, ops := range row {
			times, err := s.measureAll(ctx, ops)
			if err != nil {
				return err
			}
			for i, d := range times {
				cpu[i] += d
			}
		}
		for i := range cpu {
			if i < len(s.pids) {
				fmt.Printf(" %9.1f", float64(cpu[i].Nanoseconds())/1000/float64(leaseSlice*s.leaseTakes))
			} else {
				fmt.Printf(" %9s", "")
			}
		}
	}
	fmt.Println()
	return nil
}
