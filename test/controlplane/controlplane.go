// Package controlplane is a control plane for tests: an aggregated discovery service
// (state of the world) of rules, which behaves as Envoy Gateway's does, or as badly as a
// test wants.
package controlplane

import (
	"context"
	"net"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rlsconf "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// TypeURL is the type of the resources.
const TypeURL = "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig"

// A Plane is a running control plane. Like go-control-plane's it answers a node only
// whose id it knows, and only when there is something new; what was rejected it does not
// send again.
type Plane struct {
	Addr string
	Node string // the node that it answers

	t    testing.TB
	opts []grpc.ServerOption

	mu       sync.Mutex
	server   *grpc.Server
	listener net.Listener
	set      bool // there is something to send
	version  string
	list     []*anypb.Any
	changed  chan struct{} // closed by the next change
	requests []*discovery.DiscoveryRequest
	streams  int
	handle   func(Stream) error
}

// A Stream is one that a client has opened.
type Stream = grpc.BidiStreamingServer[discovery.DiscoveryRequest, discovery.DiscoveryResponse]

// Start starts a control plane that has no rules yet. The test's cleanup stops it.
func Start(t testing.TB, opts ...grpc.ServerOption) *Plane {
	t.Helper()
	p := &Plane{t: t, Node: "envoy-ratelimit", opts: opts, changed: make(chan struct{})}
	p.listen("127.0.0.1:0")
	t.Cleanup(p.Stop)
	return p
}

func (p *Plane) listen(addr string) {
	p.t.Helper()
	var l net.Listener
	var err error
	for range 50 { // the port of a server that has just ended
		if l, err = net.Listen("tcp", addr); err == nil {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	if err != nil {
		p.t.Fatal(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.Addr, p.listener = l.Addr().String(), l
	p.server = grpc.NewServer(p.opts...)
	discovery.RegisterAggregatedDiscoveryServiceServer(p.server, &service{plane: p})
	server := p.server
	go func() { _ = server.Serve(l) }() // ends with Stop
}

// Stop ends the control plane, and all connections to it.
func (p *Plane) Stop() {
	p.mu.Lock()
	server := p.server
	p.mu.Unlock()
	server.Stop()
}

// Restart stops the control plane and starts it again at its address, with no rules:
// versions begin again at 1.
func (p *Plane) Restart() {
	p.t.Helper()
	p.Stop()
	p.mu.Lock()
	p.set, p.version, p.list = false, "", nil
	p.mu.Unlock()
	p.listen(p.Addr)
}

// Send makes configs the rules, under the next version, which it returns.
func (p *Plane) Send(configs ...*rlsconf.RateLimitConfig) string {
	list := []*anypb.Any{}
	for _, c := range configs {
		list = append(list, Pack(c))
	}
	return p.SendAny(list...)
}

// Pack returns a resource.
func Pack(c *rlsconf.RateLimitConfig) *anypb.Any {
	b, err := proto.Marshal(c)
	if err != nil {
		panic(err)
	}
	return &anypb.Any{TypeUrl: TypeURL, Value: b}
}

// SendAny is Send for resources of any kind.
func (p *Plane) SendAny(list ...*anypb.Any) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	n, _ := strconv.Atoi(p.version)
	p.set, p.version, p.list = true, strconv.Itoa(n+1), list
	close(p.changed)
	p.changed = make(chan struct{})
	return p.version
}

// Misbehave has streams that begin from now on served by f; nil by the control plane.
func (p *Plane) Misbehave(f func(Stream) error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.handle = f
}

// Requests returns all requests so far.
func (p *Plane) Requests() []*discovery.DiscoveryRequest {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.requests)
}

// Streams returns how many streams have begun so far.
func (p *Plane) Streams() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.streams
}

// Answer waits for the first answer to a version, and returns it: an acknowledgment of
// the version, or a request with an error. It looks at requests from number from on.
func (p *Plane) Answer(from int) *discovery.DiscoveryRequest {
	p.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
		for i, r := range p.Requests() {
			if i >= from && r.ResponseNonce != "" {
				return r
			}
		}
	}
	p.t.Fatalf("no answer; requests: %v", p.Requests())
	return nil
}

type service struct {
	discovery.UnimplementedAggregatedDiscoveryServiceServer
	plane *Plane
}

func (s *service) StreamAggregatedResources(stream Stream) error {
	p := s.plane
	p.mu.Lock()
	p.streams++
	handle := p.handle
	p.mu.Unlock()
	if handle != nil {
		return handle(stream)
	}
	return p.serve(stream)
}

// serve reads requests in the background and sends what is new.
func (p *Plane) serve(stream Stream) error {
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	known := make(chan struct{})
	go func() {
		defer cancel()
		for first := true; ; first = false {
			req, err := stream.Recv()
			if err != nil {
				return
			}
			p.mu.Lock()
			p.requests = append(p.requests, req)
			node := p.Node
			p.mu.Unlock()
			if first && req.GetNode().GetId() == node && req.TypeUrl == TypeURL {
				close(known)
			}
		}
	}()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-known:
	}
	for sent, nonce := "", 0; ; {
		p.mu.Lock()
		set, version, list, changed := p.set, p.version, p.list, p.changed
		p.mu.Unlock()
		if set && version != sent {
			nonce++
			sent = version
			resp := &discovery.DiscoveryResponse{VersionInfo: version, Resources: list, TypeUrl: TypeURL,
				Nonce: strconv.Itoa(nonce)}
			if err := stream.Send(resp); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
	}
}
