package main

import (
	"context"
	"fmt"
	"time"

	"github.com/headgate-rls/headgate/internal/wire/unary"
	"github.com/headgate-rls/headgate/test/testenv"
)

// distances are how much longer a trip to Redis takes than on this machine.
var distances = []time.Duration{0, time.Millisecond, 5 * time.Millisecond}

// distanceCases compare how the trip to Redis is made: by workers, as in
// `headgate serve`, or by the goroutine that reads the connection.
var distanceCases = []benchCase{
	{name: "redis by workers", redis: true, descriptors: 1, limit: roomy},
	{name: "redis in the read loop", redis: true, descriptors: 1, limit: roomy, readLoop: true},
}

// inReadLoop has the goroutine that reads a connection answer its calls.
func inReadLoop(h unary.Handler) unary.Handler {
	serve := h.Serve
	h.Serve, h.Inline = nil, func(ctx context.Context, calls []*unary.Call) []*unary.Call {
		serve(ctx, calls)
		return nil
	}
	return h
}

// distanceTable puts a proxy before Redis that holds what is sent to it.
func (b *bench) distanceTable(ctx context.Context) error {
	if b.redis == nil {
		return nil
	}
	fmt.Printf("\nRedis behind a proxy that makes a trip longer, %d calls in flight on %d connections\n\n",
		inFlight, connections)
	fmt.Printf("%-34s %9s %9s %9s %9s %8s %8s %8s\n", "case", "+ ms", "calls/s", "CPU µs", "+ Redis", "p50 ms",
		"p99 ms", "p99.9 ms")
	skipped, err := withServers("distance", func(tb *benchTB) error {
		far := *b
		proxy := testenv.StartProxy(tb, b.redis.addr)
		far.redis = &redisServer{addr: proxy.Addr, url: "redis://" + proxy.Addr, pid: b.redis.pid}
		for _, d := range distances {
			proxy.SetLatency(d)
			for _, c := range distanceCases {
				far.closed = map[string]result{}
				r, err := far.measure(ctx, c)
				if err != nil {
					return fmt.Errorf("%s: %w", c.name, err)
				}
				fmt.Printf("%-34s %9.0f %9.0f %9.1f %9.1f %8.2f %8.2f %8.2f\n", c.name, float64(d)/1e6, r.rate, r.cpu(0), r.cpu(1),
					r.at(0.5), r.at(0.99), r.at(0.999))
			}
		}
		return nil
	})
	if skipped != "" {
		fmt.Println("table distance is not run:", skipped)
	}
	return err
}
