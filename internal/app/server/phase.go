package server

import (
	"context"
	"sync/atomic"

	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// A phase is where the server is between its start and its end, and what shows it
// to callers.
type phase struct {
	health     *health.Server
	serving    atomic.Bool
	draining   atomic.Bool
	streams    context.Context // ends when streams must, while draining
	endStreams context.CancelFunc
}

func newPhase() *phase {
	p := &phase{health: health.NewServer()}
	p.streams, p.endStreams = context.WithCancel(context.Background())
	return p
}

// serviceName is what health checks of the reference service ask for.
const serviceName = "ratelimit"

// serve has health checks succeed, unless the server is draining.
func (p *phase) serve() {
	p.serving.Store(true)
	p.setServing(true)
	if p.draining.Load() { // meanwhile
		p.setServing(false)
	}
}

// setServing sets the answer to health checks.
func (p *phase) setServing(ok bool) {
	status := healthpb.HealthCheckResponse_NOT_SERVING
	if ok {
		status = healthpb.HealthCheckResponse_SERVING
	}
	p.health.SetServingStatus("", status)
	p.health.SetServingStatus(serviceName, status)
}

// drain fails health checks, so that callers go elsewhere.
func (p *phase) drain() {
	p.draining.Store(true)
	p.setServing(false)
}
