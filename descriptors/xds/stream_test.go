package xds

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
)

// A deafStream is one whose control plane neither reads nor sends.
type deafStream struct {
	grpc.ClientStream
	ctx context.Context
}

func (d deafStream) SendMsg(any) error {
	<-d.ctx.Done()
	return d.ctx.Err()
}

func (d deafStream) RecvMsg(any) error {
	<-d.ctx.Done()
	return d.ctx.Err()
}

func newDeafStream(t *testing.T) *stream {
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	return &stream{calls: deafStream{ctx: ctx}, cancel: cancel, received: make(chan received), node: (&Options{}).node()}
}

// TestAControlPlaneThatDoesNotReadIsGivenUp in half a minute.
func TestAControlPlaneThatDoesNotReadIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, began := newDeafStream(t), time.Now()
		if err := s.send(&discovery.DiscoveryRequest{}); err == nil || time.Since(began) != sendWithin {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

// TestAControlPlaneThatSendsNoRulesIsLogged, and again every ten minutes: it may not know this node.
func TestAControlPlaneThatSendsNoRulesIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &followed{log: new(strings.Builder)}
		c, err := New(Options{Address: "plane:1", NodeID: "n", Log: slog.New(slog.NewTextHandler(log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		go c.listen(t.Context(), newDeafStream(t))
		for _, step := range []struct {
			after time.Duration
			lines int
		}{{silentFor - time.Second, 0}, {2 * time.Second, 1}, {silentRepeat - 2*time.Second, 1}, {2 * time.Second, 2}} {
			time.Sleep(step.after)
			synctest.Wait()
			log.mu.Lock()
			if n := strings.Count(log.log.String(), "does it know this node?"); n != step.lines {
				t.Errorf("%v later: %d lines, want %d:\n%s", step.after, n, step.lines, log.log)
			}
			log.mu.Unlock()
		}
	})
}
