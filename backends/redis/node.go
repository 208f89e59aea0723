package redis

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate-rls/headgate/backends/internal/circuit"
)

// One node of a Cluster may hang while the others work. Without a guard every
// call for its slots, and every slice with such a call in it, would wait until
// its timeout. So each node has a circuit breaker: after some failures
// in a row its calls fail at once, and pings find out when it is back. It goes
// by the node and not by the slot: a replica that is promoted has its own.

// Of a circuit: see Config for the rest.
const (
	nodeDelay = 100 * time.Millisecond // first
	// minBudget is how long a call must be able to wait for its timeout to
	// count: a call with less time says nothing about the node.
	minBudget = 2 * time.Millisecond
)

// A scriptCall is a command that the driver's Cluster client does not repeat
// by itself, except where it is redirected.
type scriptCall struct {
	*redis.StringCmd
	slot int
}

func (scriptCall) NoRetry() bool { return true }

// nodes are those of a Cluster.
type nodes struct {
	cfg     *Config
	log     *slog.Logger
	closing context.Context
	reload  func(ctx context.Context) // asks the Cluster who is master
	owners  *owners

	mu   sync.Mutex
	away map[*node]struct{} // whose circuit breaker is open

	opened, refused atomic.Int64
}

// A node is a hook of the driver's client for one node.
type node struct {
	of      *nodes
	number  atomic.Uint32 // see owners
	client  *redis.Client
	circuit *circuit.Circuit // nil: it has none
}

// add prepares the driver's client for a node that it met.
func (l *nodes) add(client *redis.Client) {
	n := &node{of: l, client: client}
	if l.cfg.NodeFailures > 0 {
		n.circuit = circuit.New(circuit.Config{
			Failures: l.cfg.NodeFailures, Window: 1,
			Delay: min(nodeDelay, l.cfg.NodeDelay), MaxDelay: l.cfg.NodeDelay, Timeout: l.cfg.Timeout,
			Ping: n.ping, OnChange: n.changed, Rand: rand.Float64, Panics: l.cfg.Panics,
		})
	}
	client.AddHook(n)
}

func (n *node) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook guards the calls of the script. What the driver sends by itself,
// such as questions about slots, is in nobody's way.
func (n *node) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		call, ok := cmd.(scriptCall)
		if !ok {
			return next(ctx, cmd)
		}
		n.of.owners.note(call.slot, n)
		return n.guard(ctx, func() error { return next(ctx, cmd) })
	}
}

// ProcessPipelineHook is ProcessHook for several calls, or one after ASKING.
func (n *node) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if _, ok := cmds[len(cmds)-1].(scriptCall); !ok {
			return next(ctx, cmds)
		}
		for _, cmd := range cmds {
			if call, ok := cmd.(scriptCall); ok {
				n.of.owners.note(call.slot, n)
			}
		}
		return n.guard(ctx, func() error { return next(ctx, cmds) })
	}
}

// guard makes calls unless the node's circuit breaker is open, and judges the
// node by their error.
func (n *node) guard(ctx context.Context, calls func() error) error {
	if n.circuit == nil {
		return calls()
	}
	p := n.circuit.Period()
	if p.State() != circuit.Closed {
		n.of.refused.Add(1)
		return &awayError{n.client.Options().Addr, n.circuit.Refusal()}
	}
	d, ok := ctx.Deadline()
	hurried := ok && time.Until(d) < minBudget
	err := calls()
	switch {
	case answers(err):
		n.circuit.Settle(p, circuit.Succeeded, nil)
	case hurried, errors.Is(ctx.Err(), context.Canceled):
		n.circuit.Settle(p, circuit.Nothing, nil)
	default:
		n.circuit.Settle(p, circuit.Failed, err)
	}
	return err
}

// answers reports whether err is an answer of the node, be it a refusal.
func answers(err error) bool { return err == nil || errors.As(err, new(redis.Error)) }

// ping is the circuit's probe. While it fails, another node may have become
// the master.
func (n *node) ping(ctx context.Context) error {
	err := n.client.Ping(ctx).Err()
	switch {
	case answers(err):
		return nil
	case errors.Is(err, redis.ErrClosed): // by the driver, once the node has left the Cluster
		n.circuit.Stop()
		n.of.setAway(n, false)
	default:
		n.of.reload(ctx)
	}
	return err
}

// changed reports a change of the circuit.
func (n *node) changed(from, to circuit.State, why error) {
	addr := n.client.Options().Addr
	switch {
	case to == circuit.Closed:
		n.of.log.Info("Redis Cluster node answers again", "node", addr)
		n.of.setAway(n, false) // last: Close does not wait for it any more
	case from == circuit.Closed:
		n.of.opened.Add(1)
		n.of.setAway(n, true)
		n.of.log.Warn("Redis Cluster node failing; calls for its slots fail at once until it answers pings", "node", addr,
			"error", why)
	}
}

// setAway notes whether n's circuit breaker is open. A closed one has nothing
// running that Close would have to stop.
func (l *nodes) setAway(n *node, away bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !away {
		delete(l.away, n)
		return
	}
	l.away[n] = struct{}{}
	if l.closing.Err() != nil {
		n.circuit.Stop()
	}
}

// addresses returns the addresses of the nodes whose circuit breaker is open.
func (l *nodes) addresses() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var list []string
	for n := range l.away {
		list = append(list, n.client.Options().Addr)
	}
	slices.Sort(list)
	return list
}

// stop ends what runs for nodes; the function it returns waits for it.
func (l *nodes) stop() (wait func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var list []*node
	for n := range l.away {
		n.circuit.Stop()
		list = append(list, n)
	}
	return func() {
		for _, n := range list {
			n.circuit.Wait()
		}
	}
}
