package attack

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/headgate-rls/headgate/test/testenv"
)

// sightings are what a bystander saw.
type sightings struct {
	calls     int
	took      []time.Duration // of calls without an error, sorted
	errors    int
	degraded  int // answered by failure policy
	unhealthy int // health checks that failed
	first     error
}

// lost is the share of calls and health checks that went wrong.
func (s *sightings) lost() float64 {
	return float64(s.errors+s.degraded+s.unhealthy) / float64(max(s.calls, 1))
}

func (s *sightings) quantile(q float64) time.Duration {
	if len(s.took) == 0 {
		return 0
	}
	return s.took[int(q*float64(len(s.took)-1))].Round(10 * time.Microsecond)
}

// A bystander calls on a connection of its own, at a modest rate.
type bystander struct {
	calls, late atomic.Int64 // so far; late: not answered in time, or by policy

	quit chan struct{}
	done sync.WaitGroup
	seen sightings
}

const (
	bystanderPause = 4 * time.Millisecond
	// bystanderPatience is more than Envoy's, as this machine has other work.
	bystanderPatience = time.Second
	healthEvery       = 25 // calls
)

// watch starts a bystander.
func watch(t *testing.T, hg *testenv.Headgate) *bystander {
	conn, err := grpc.NewClient(hg.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	b := &bystander{quit: make(chan struct{})}
	b.done.Go(func() { b.run(conn) })
	t.Cleanup(func() { b.stop() })
	return b
}

func (b *bystander) run(conn *grpc.ClientConn) {
	client, health := rls.NewRateLimitServiceClient(conn), healthpb.NewHealthClient(conn)
	req := &rls.RateLimitRequest{Domain: "attack", Descriptors: []*common.RateLimitDescriptor{
		{Entries: []*common.RateLimitDescriptor_Entry{{Key: "free", Value: "bystander"}}},
	}}
	for {
		select {
		case <-b.quit:
			return
		case <-time.After(bystanderPause):
		}
		ctx, cancel := context.WithTimeout(context.Background(), bystanderPatience)
		began := time.Now()
		resp, err := client.ShouldRateLimit(ctx, req)
		took := time.Since(began)
		b.saw(took, resp, err)
		b.calls.Add(1)
		if err != nil || took > late || resp.DynamicMetadata.GetFields()["degraded"] != nil {
			b.late.Add(1)
		}
		if b.seen.calls%healthEvery == 0 {
			if h, err := health.Check(ctx, &healthpb.HealthCheckRequest{}); err != nil ||
				h.Status != healthpb.HealthCheckResponse_SERVING {
				b.seen.unhealthy++
				b.failed(err)
			}
		}
		cancel()
	}
}

func (b *bystander) saw(took time.Duration, resp *rls.RateLimitResponse, err error) {
	b.seen.calls++
	switch {
	case err != nil:
		b.seen.errors++
		b.failed(err)
		return
	case resp.DynamicMetadata.GetFields()["degraded"] != nil:
		b.seen.degraded++
	}
	b.seen.took = append(b.seen.took, took)
}

func (b *bystander) failed(err error) {
	if b.seen.first == nil {
		b.seen.first = err
	}
}

// stop ends the calls and returns what was seen. It may be called again.
func (b *bystander) stop() sightings {
	select {
	case <-b.quit:
	default:
		close(b.quit)
	}
	b.done.Wait()
	slices.Sort(b.seen.took)
	return b.seen
}
