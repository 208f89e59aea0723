package main

import (
	"context"
	"fmt"
)

// curveCase is a limit in a database, asked through the service.
var curveCase = benchCase{name: "fixed_window in a database", redis: true, keys: 1000, descriptors: 1, limit: roomy}

// curveShares are the shares of the rate of the closed loop at which latencies are measured.
var curveShares = []float64{0.05, 0.2, 0.4, 0.6, 0.8}

// curveTable measures the latency of calls to the service with counters in a database.
func (b *bench) curveTable(ctx context.Context) error {
	fmt.Printf("\ncalls to the service with counters in a database: %d in flight on %d connections, "+
		"then started on schedule at shares of that rate\n\n", inFlight, connections)
	fmt.Printf("%-9s %-10s %9s %8s %8s %8s %8s\n", "database", "share", "calls/s", "p50 ms", "p99 ms",
		"p99.9 ms", "errors")
	return eachLimitDB("curve", func(db *limitDB) error { return b.curveRows(ctx, db) })
}

func (b *bench) curveRows(ctx context.Context, db *limitDB) error {
	if err := db.prepare(ctx); err != nil {
		return err
	}
	t, err := startOn(ctx, curveCase, db.url)
	if err != nil {
		return err
	}
	defer t.close()
	if _, err := t.load.run(ctx, after(b.warmUp)); err != nil {
		return err
	}
	closed, err := t.measure(ctx, after(b.length))
	if err != nil {
		return err
	}
	print := func(share string, rate float64, r result, failed int) {
		fmt.Printf("%-9s %-10s %9.0f %8.2f %8.2f %8.2f %8d\n", db.name, share, rate, r.at(0.5), r.at(0.99),
			r.at(0.999), failed)
	}
	print("closed", closed.rate, closed, 0)
	for _, share := range curveShares {
		took, failed, err := b.onSchedule(t.srv.addr, t.load.requests, closed.rate*share)
		if err != nil {
			return err
		}
		print(fmt.Sprintf("%.0f%%", share*100), closed.rate*share, result{took: took}, failed)
	}
	return nil
}
