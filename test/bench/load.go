package main

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	"github.com/headgate-rls/headgate/test/rawcodec"
)

const (
	connections = 2
	inFlight    = 64
	deadline    = 5 * time.Second // of a call
)

// A load keeps calls in flight against a server.
type load struct {
	conns    []*grpc.ClientConn
	requests [][]byte
	next     atomic.Int64
	check    func(response []byte) error // or nil
}

func newLoad(addr string, c benchCase) (*load, error) {
	l := new(load)
	for _, r := range c.requests() {
		b, err := proto.Marshal(r)
		if err != nil {
			return nil, err
		}
		l.requests = append(l.requests, b)
	}
	for range connections {
		conn, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithDefaultCallOptions(grpc.ForceCodecV2(rawcodec.Codec{})))
		if err != nil {
			return nil, err
		}
		l.conns = append(l.conns, conn)
	}
	return l, nil
}

func (l *load) close() {
	for _, c := range l.conns {
		_ = c.Close()
	}
}

// after returns a function that is true for d from now.
func after(d time.Duration) func() bool {
	end := time.Now().Add(d)
	return func() bool { return time.Now().Before(end) }
}

// times returns a function that is true n times.
func times(n int) func() bool {
	var count atomic.Int64
	return func() bool { return count.Add(1) <= int64(n) }
}

// run keeps calls in flight as long as more says so and returns how long each
// took.
func (l *load) run(ctx context.Context, more func() bool) ([]time.Duration, error) {
	return loop(inFlight, more, func(i int, start time.Time) error { return l.call(ctx, i, start) })
}

// loop has n callers call, each as soon as its call before is done, as long as
// more says so. It returns how long each call took. A caller ends with an error.
func loop(n int, more func() bool, call func(caller int, start time.Time) error) ([]time.Duration, error) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	var all []time.Duration
	var failed error
	for i := range n {
		wg.Go(func() {
			var mine []time.Duration
			var err error
			for err == nil && more() {
				start := time.Now()
				err = call(i, start)
				mine = append(mine, time.Since(start))
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, mine...)
			if err != nil {
				failed = err
			}
		})
	}
	wg.Wait()
	return all, failed
}

// call makes one call on connection i.
func (l *load) call(ctx context.Context, i int, start time.Time) error {
	ctx, cancel := context.WithDeadline(ctx, start.Add(deadline))
	defer cancel()
	req := l.requests[l.next.Add(1)%int64(len(l.requests))]
	var resp []byte
	err := l.conns[i%connections].Invoke(ctx, rls.RateLimitService_ShouldRateLimit_FullMethodName, &req, &resp)
	if err == nil && l.check != nil {
		err = l.check(resp)
	}
	return err
}
