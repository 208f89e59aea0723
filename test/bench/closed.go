package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"
)

// A result is one line's figures.
type result struct {
	rate float64         // calls per second
	took []time.Duration // sorted
	cpus []float64       // µs per call, of each process that takes part
}

// cpu returns the CPU time per call of process i, 0 if it takes no part.
func (r result) cpu(i int) float64 {
	if i >= len(r.cpus) {
		return 0
	}
	return r.cpus[i]
}

// at returns the latency in ms that a share of the calls did not exceed.
func (r result) at(share float64) float64 { return quantile(r.took, share).Seconds() * 1e3 }

func quantile(sorted []time.Duration, share float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(int(float64(len(sorted))*share), len(sorted)-1)]
}

func (b *bench) closedTable(ctx context.Context) error {
	fmt.Printf("\n%d calls in flight on %d connections\n\n", inFlight, connections)
	fmt.Printf("%-34s %9s %9s %9s %9s %7s %8s %8s %8s\n", "case", "calls/s", "CPU µs", "+ Redis", "sum", "× empty",
		"p50 ms", "p99 ms", "p99.9 ms")
	empty := 0.0
	for _, c := range cases {
		if (c.redis && b.redis == nil) || (c.name != cases[0].name && !b.only.MatchString(c.name)) {
			continue
		}
		r, err := b.measure(ctx, c)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		if empty == 0 {
			empty = r.cpu(0)
		}
		fmt.Printf("%-34s %9.0f %9.1f %9.1f %9.1f %7.2f %8.2f %8.2f %8.2f\n", c.name, r.rate, r.cpu(0), r.cpu(1),
			r.cpu(0)+r.cpu(1), (r.cpu(0)+r.cpu(1))/empty, r.at(0.5), r.at(0.99), r.at(0.999))
	}
	return nil
}

// measure runs one case in a closed loop, once in a run of the program.
func (b *bench) measure(ctx context.Context, c benchCase) (result, error) {
	if r, ok := b.closed[c.name]; ok {
		return r, nil
	}
	t, err := b.start(ctx, c)
	if err != nil {
		return result{}, err
	}
	defer t.close()
	if _, err := t.load.run(ctx, after(b.warmUp)); err != nil {
		return result{}, err
	}
	r, err := t.measure(ctx, after(b.length))
	if err != nil {
		return result{}, err
	}
	b.closed[c.name] = r
	return r, nil
}

// A target is the server of a case and a load for it.
type target struct {
	srv  *serverProcess
	load *load
	pids []int // of the server, and of Redis if it takes part
}

func (b *bench) start(ctx context.Context, c benchCase) (*target, error) {
	if !c.redis {
		return startOn(ctx, c, "")
	}
	return startOn(ctx, c, b.redis.url+"?layout="+cmp.Or(c.layout, "list"), b.redis.pid)
}

// startOn starts a case on a store, whose processes take part.
func startOn(ctx context.Context, c benchCase, storeURL string, pids ...int) (*target, error) {
	srv, err := startServer(ctx, []string{"-serve", c.name, "-store", storeURL})
	if err != nil {
		return nil, err
	}
	t := &target{srv: srv, pids: append([]int{srv.pid}, pids...)}
	if t.load, err = newLoad(srv.addr, c); err != nil {
		srv.stop()
		return nil, err
	}
	return t, nil
}

func (t *target) close() {
	t.load.close()
	t.srv.stop()
}

// measure runs the load. The server's CPU time comes first, then that of Redis.
func (t *target) measure(ctx context.Context, more func() bool) (result, error) {
	return measureCPU(t.pids, func() ([]time.Duration, error) { return t.load.run(ctx, more) })
}

// measureCPU reads the processes' clocks around run, which returns how long
// each call took.
func measureCPU(pids []int, run func() ([]time.Duration, error)) (result, error) {
	before, err := cpuTimes(pids)
	if err != nil {
		return result{}, err
	}
	start := time.Now()
	took, err := run()
	if err != nil {
		return result{}, err
	}
	elapsed := time.Since(start)
	cpu, err := cpuTimes(pids)
	if err != nil {
		return result{}, err
	}
	n := float64(max(len(took), 1))
	slices.Sort(took)
	r := result{rate: n / elapsed.Seconds(), took: took}
	for i := range cpu {
		r.cpus = append(r.cpus, (cpu[i]-before[i]).Seconds()*1e6/n)
	}
	return r, nil
}
