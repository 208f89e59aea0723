package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/headgate-rls/headgate/limit"
)

// sliceSizes are how many requests one call of the script decides.
var sliceSizes = []int{1, 8, 64}

// sliceCallers keep Redis busy, so that its CPU time per request has no waiting
// in it.
const sliceCallers = 4

// sliceTable prints what a decision costs in package redis and in Redis, by the
// number of requests in one call and of counters in one request.
func (b *bench) sliceTable(ctx context.Context) error {
	if b.redis == nil {
		return nil
	}
	fmt.Printf("\npackage redis alone, %d callers: CPU µs per request, this process + Redis\n\n%-34s",
		sliceCallers, "case")
	for _, n := range sliceSizes {
		fmt.Printf(" %16s", fmt.Sprintf("slice of %d", n))
	}
	fmt.Println()
	for _, c := range sliceCases() {
		if !b.only.MatchString(c.name) {
			continue
		}
		fmt.Printf("%-34s", c.name)
		for _, n := range sliceSizes {
			r, err := b.measureSlice(ctx, n, c)
			if err != nil {
				return err
			}
			fmt.Printf(" %16s", fmt.Sprintf("%.1f + %.1f", r.cpu(0), r.cpu(1)))
		}
		fmt.Println()
	}
	return nil
}

// A sliceCase is some limits of a kind in each request.
type sliceCase struct {
	name string
	spec limit.Spec
	ops  int
}

func sliceCases() (list []sliceCase) {
	for _, a := range []limit.Algorithm{limit.FixedWindow, limit.SlidingWindow, limit.TokenBucket} {
		for _, ops := range []int{1, 3} {
			list = append(list, sliceCase{fmt.Sprintf("%v, %d per request", a, ops),
				limit.Spec{Algorithm: a, Max: 1 << 30, Window: time.Hour}, ops})
		}
	}
	return list
}

func (b *bench) measureSlice(ctx context.Context, slice int, c sliceCase) (result, error) {
	be, err := b.openBackend(ctx, 20)
	if err != nil {
		return result{}, err
	}
	defer be.Close()
	list := c.takes()
	takers := make([]taker, sliceCallers)
	for i := range takers {
		takers[i] = taker{list: list, next: i * len(list) / len(takers), reqs: make([]limit.Request, slice),
			out: make([]limit.Verdict, slice)}
	}
	run := func(more func() bool) ([]time.Duration, error) {
		took, err := loop(len(takers), more, func(i int, _ time.Time) error { return takers[i].take(ctx, be) })
		return make([]time.Duration, len(took)*slice), err // one for each request
	}
	if _, err := run(after(b.warmUp)); err != nil {
		return result{}, err
	}
	return measureCPU([]int{os.Getpid(), b.redis.pid}, func() ([]time.Duration, error) { return run(after(b.length)) })
}

// takes returns requests to decide.
func (c sliceCase) takes() []limit.Request {
	l := limit.MustNew(c.spec)
	list := make([]limit.Request, keys)
	for i := range list {
		group := limit.RawGroup(clientName(i))
		for j := range c.ops {
			list[i].Ops = append(list[i].Ops, limit.Op{
				Key: limit.Key{Group: group, Limit: "bench" + c.spec.Algorithm.String() + strconv.Itoa(j)}, Limit: l, Cost: 1})
		}
	}
	return list
}
