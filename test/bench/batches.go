package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// batchSizes are how many calls a client sends with one write. Envoy sends one
// to four at a time, a client that keeps many calls in flight sends dozens.
var batchSizes = []int{1, 4, 32}

// batchCases are the cases of the batch table. The first is what the others are
// compared with, batch size by batch size.
var batchCases = []string{
	"empty grpc-go handler",
	"memory fixed_window",
	"memory 3 descriptors",
	"redis fixed_window",
	"redis 3 descriptors",
	"redis denied hot key",
	"redis denied, 1 of 2 limits",
	"redis denied, 1 of 3 limits",
}

// batchTable prints the CPU time per call where each connection sends some
// calls with one write and waits for all answers. The share of waking up and of
// system calls in a call's cost falls with the size of the batch, so a ratio to
// the empty handler means little without it.
func (b *bench) batchTable(ctx context.Context) error {
	fmt.Printf("\nCPU µs per call (service + Redis, × empty), %d connections that each send a batch with one write and "+
		"wait for all answers\n\n", connections)
	fmt.Printf("%-34s", "case")
	for _, n := range batchSizes {
		fmt.Printf(" %26s", fmt.Sprintf("%d per write", n))
	}
	fmt.Println()
	empty := make([]float64, len(batchSizes))
	for i, name := range batchCases {
		c, err := findCase(name)
		if err != nil {
			return err
		}
		if (c.redis && b.redis == nil) || (i > 0 && !b.only.MatchString(name)) {
			continue
		}
		results, err := b.measureBatches(ctx, c)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		fmt.Printf("%-34s", name)
		for j, r := range results {
			sum := r.cpu(0) + r.cpu(1)
			if i == 0 {
				empty[j] = sum
			}
			fmt.Printf(" %26s", fmt.Sprintf("%.1f + %.1f  %5.2f", r.cpu(0), r.cpu(1), sum/empty[j]))
		}
		fmt.Println()
	}
	return nil
}

// measureBatches measures a case with each batch size, on one server.
func (b *bench) measureBatches(ctx context.Context, c benchCase) ([]result, error) {
	t, err := b.start(ctx, c)
	if err != nil {
		return nil, err
	}
	defer t.close()
	if _, err := t.load.run(ctx, after(b.warmUp)); err != nil {
		return nil, err
	}
	var results []result
	for _, n := range batchSizes {
		r, err := measureCPU(t.pids, func() ([]time.Duration, error) {
			return closedBatches(t.srv.addr, t.load.requests, n, b.length)
		})
		if err != nil {
			return nil, err
		}
		results = append(results, r)
	}
	return results, nil
}

// closedBatches has each connection send batches of n calls, each when all of
// the one before are answered, for some time. It returns how long each call
// took. A call that fails is an error.
func closedBatches(addr string, requests [][]byte, n int, length time.Duration) ([]time.Duration, error) {
	var wg sync.WaitGroup
	took := make([][]time.Duration, connections)
	errs := make([]error, connections)
	for i := range connections {
		w, err := dialWire(addr, rotate(requests, i*len(requests)/connections), time.Now().Add(2*length+deadline))
		if err != nil {
			return nil, err
		}
		defer w.conn.Close()
		wg.Go(func() { took[i], errs[i] = w.batches(n, after(length)) })
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return slices.Concat(took...), nil
}

// rotate returns list, beginning with element n.
func rotate[T any](list []T, n int) []T {
	return slices.Concat(list[n:], list[:n])
}

// batches sends batches of n calls as long as more says so.
func (w *wire) batches(n int, more func() bool) (took []time.Duration, err error) {
	block, others := header()
	for call := 0; more(); {
		start := time.Now()
		for range n {
			if err := w.write(call, block); err != nil {
				return nil, err
			}
			block = others
			call++
		}
		if err := w.out.Flush(); err != nil {
			return nil, err
		}
		for left := n; left > 0; {
			answered, ok, ended, err := w.next()
			switch {
			case err != nil:
				return nil, err
			case ended && !ok:
				return nil, fmt.Errorf("call %d failed", answered)
			case ended:
				took = append(took, time.Since(start))
				left--
			}
		}
	}
	return took, nil
}
