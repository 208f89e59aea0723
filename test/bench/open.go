package main

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"
)

// maxOpen bounds the calls in flight of an open loop.
const maxOpen = 4096

// An openCase is a case at half of its own rate, or of another's.
type openCase struct{ name, rateOf string }

func openCases() []openCase {
	empty := cases[0].name
	return []openCase{
		{empty, empty},
		{"memory fixed_window", empty},
		{"memory fixed_window", "memory fixed_window"},
		{"memory, grpc-go", "memory, grpc-go"},
		{"redis fixed_window", "redis fixed_window"},
		{"redis 3 descriptors", "redis 3 descriptors"},
	}
}

func (b *bench) openTable(ctx context.Context) error {
	fmt.Print("\ncalls started on schedule, at half of a rate reached in the closed loop; latency from the scheduled " +
		"instant on\n\n")
	fmt.Printf("%-34s %9s %8s %8s %8s %8s   %s\n", "case", "calls/s", "p50 ms", "p99 ms", "p99.9 ms", "errors",
		"half the rate of")
	for _, o := range openCases() {
		if err := b.printOpen(ctx, o); err != nil {
			return fmt.Errorf("%s: %w", o.name, err)
		}
	}
	return nil
}

func (b *bench) printOpen(ctx context.Context, o openCase) error {
	c, err := findCase(o.name)
	if err != nil {
		return err
	}
	if c.redis && b.redis == nil {
		return nil
	}
	other, err := findCase(o.rateOf)
	if err != nil {
		return err
	}
	closed, err := b.measure(ctx, other)
	if err != nil {
		return err
	}
	took, failed, err := b.measureOpen(ctx, c, closed.rate/2)
	if err != nil {
		return err
	}
	r := result{took: took}
	fmt.Printf("%-34s %9.0f %8.2f %8.2f %8.2f %8d   %s\n", o.name, closed.rate/2, r.at(0.5), r.at(0.99), r.at(0.999),
		failed, o.rateOf)
	return nil
}

// reloadRate is how many calls a second the table reload makes: few enough for a machine of two
// cores to compile rules and to make the calls beside it.
const reloadRate = 2000

// reloadTable compares two cases in turns, because machines have their moods.
func (b *bench) reloadTable(ctx context.Context) error {
	fmt.Printf("\ncalls started on schedule, %d a second, with 256 rules of each of 100 routes that change, or not\n\n",
		reloadRate)
	fmt.Printf("%-34s %9s %8s %8s %8s %8s\n", "case", "calls/s", "p50 ms", "p99 ms", "p99.9 ms", "errors")
	for range b.slotRounds {
		for _, c := range reloadCases {
			took, failed, err := b.measureOpen(ctx, c, reloadRate)
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			r := result{took: took}
			fmt.Printf("%-34s %9d %8.2f %8.2f %8.2f %8d\n", c.name, reloadRate, r.at(0.5), r.at(0.99), r.at(0.999), failed)
		}
	}
	return nil
}

func (b *bench) measureOpen(ctx context.Context, c benchCase, rate float64) ([]time.Duration, int, error) {
	t, err := b.start(ctx, c)
	if err != nil {
		return nil, 0, err
	}
	defer t.close()
	if _, err := t.load.run(ctx, after(b.warmUp)); err != nil {
		return nil, 0, err
	}
	return b.onSchedule(t.srv.addr, t.load.requests, rate)
}

func (b *bench) onSchedule(addr string, requests [][]byte, rate float64) ([]time.Duration, int, error) {
	// More than there are cores: those that start the calls sleep.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(runtime.NumCPU() + connections))
	return openLoop(addr, requests, rate, b.length)
}

// openLoop starts calls at a rate, whatever becomes of those before. It returns,
// sorted, how long each took from the instant it was to start, and how many
// failed or were not answered in twice the length.
func openLoop(addr string, requests [][]byte, rate float64, length time.Duration) ([]time.Duration, int, error) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	var took []time.Duration
	n := int(rate*length.Seconds()) / connections // on each connection
	every := time.Duration(connections / rate * 1e9)
	for i := range connections {
		w, err := dialWire(addr, requests, time.Now().Add(2*length))
		if err != nil {
			return nil, 0, err
		}
		defer w.conn.Close()
		start := time.Now().Add(every * time.Duration(i) / connections)
		wg.Go(func() { w.send(start, every, n) })
		wg.Go(func() {
			mine := make([]time.Duration, 0, n)
			_ = w.receive(n, func(call int, ok bool) {
				if ok {
					mine = append(mine, time.Since(start.Add(every*time.Duration(call))))
				}
			})
			mu.Lock()
			defer mu.Unlock()
			took = append(took, mine...)
		})
	}
	wg.Wait()
	slices.Sort(took)
	return took, connections*n - len(took), nil
}
