package xds

import (
	"context"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/headgate-rls/headgate/descriptors/overlay"
)

// A Client gets rules from a control plane. Make it by [New], and have it [Client.Run].
type Client struct {
	opt    Options
	status atomic.Pointer[Status]
	first  chan struct{} // closed when rules are in force
	relaid chan *overlay.Overlay

	// Of Run's goroutine.
	state  state
	now    Status
	retry  retry
	pacer  pacer
	grace  *time.Timer // when domains that are not sent are removed
	until  time.Time   // when grace ends
	unsure bool        // the last response had resources of unknown domains
	cached *cacheWriter
}

// New returns a client, with the rules of the cache file in force if there is one that
// can be used. Errors: the files of TLS cannot be read.
func New(opt Options) (*Client, error) {
	opt.fill()
	if _, err := opt.credentials(); err != nil {
		return nil, err
	}
	c := &Client{
		opt: opt, first: make(chan struct{}), relaid: make(chan *overlay.Overlay, 1),
		state: state{overlay: opt.Overlay, overflow: opt.Overflow, check: opt.Check, maxBytes: opt.MaxMessage},
		retry: retry{span: opt.backoff},
		grace: time.NewTimer(time.Hour),
	}
	c.grace.Stop()
	c.publish()
	return c, nil
}

// Status returns what is known now.
func (c *Client) Status() *Status { return c.status.Load() }

// First is closed when the first rules are in force.
func (c *Client) First() <-chan struct{} { return c.first }

// Lay has another overlay laid over the rules. It is called by one goroutine.
func (c *Client) Lay(o *overlay.Overlay) {
	select {
	case <-c.relaid: // nobody has seen that one
	default:
	}
	c.relaid <- o
}

// publish makes what is known visible to others.
func (c *Client) publish() {
	s := c.now
	s.Domains, s.Kept = len(c.state.inForce), slices.Clone(c.state.missing)
	s.Rejected, s.Problems = maps.Clone(s.Rejected), slices.Clone(s.Problems)
	c.status.Store(&s)
}

// Restore puts the rules of the cache file in force, if there are any, before Run. What is wrong
// with the file is logged.
func (c *Client) Restore() {
	if c.opt.Cache == "" {
		return
	}
	resp, err := readCache(c.opt.Cache, c.opt.NodeID, c.opt.MaxMessage)
	if err != nil {
		c.opt.Log.Error("could not read the file of last known rules; waiting for the control plane", "file", c.opt.Cache,
			"error", err)
	}
	if resp == nil {
		return
	}
	list, bad := c.open(resp)
	o := c.state.consider(list, bad, true)
	if c.install(o) {
		c.now.Cached, c.now.Version = true, ""
		c.publish()
	}
	c.log(o, "rules of the cache file")
}

// Run follows the control plane until ctx ends, and then returns. It leaves no goroutine
// behind, except one that a file system does not answer.
func (c *Client) Run(ctx context.Context) {
	c.cached = newCacheWriter(&c.opt)
	defer c.cached.close()
	for ctx.Err() == nil {
		began := time.Now()
		answered, err := c.follow(ctx)
		if ctx.Err() != nil {
			return
		}
		c.grace.Stop() // nothing is removed while nobody says what there is
		lived := time.Duration(0)
		if answered {
			lived = time.Since(began)
		}
		wait := c.retry.next(lived)
		c.now.Connected, c.now.Error = false, cut(err.Error(), 500)
		c.now.Failures++
		c.publish()
		c.opt.Log.Warn("not connected to the control plane; keeping the current rules", "xds", c.opt.Address,
			"error", c.now.Error,
			"retry", wait.Round(time.Millisecond), "rules", c.now.Rules)
		c.sleep(ctx, wait)
	}
}

// sleep waits, and goes on to follow what does not need the control plane.
func (c *Client) sleep(ctx context.Context, d time.Duration) {
	over := time.After(d)
	for {
		select {
		case <-ctx.Done():
			return
		case <-over:
			return
		case o := <-c.relaid:
			c.relay(o)
		}
	}
}

// How long a control plane may be silent at first before the log says so, and how often
// it is repeated. It is silent for good if it knows no such node.
const (
	silentFor    = 30 * time.Second
	silentRepeat = 10 * time.Minute
)

// follow opens a stream and reads it until it fails. It reports whether the control plane answered.
func (c *Client) follow(ctx context.Context) (answered bool, err error) {
	s, err := c.opt.dial(ctx)
	if err != nil {
		return false, err
	}
	defer s.close()
	return c.listen(ctx, s)
}

// listen installs the rules that arrive on a stream, until the stream fails. It reports whether the control plane
// answered.
func (c *Client) listen(ctx context.Context, s *stream) (answered bool, err error) {
	silent := time.NewTimer(silentFor)
	defer silent.Stop()
	accepted := "" // on this stream
	for {
		select {
		case <-ctx.Done():
			return answered, ctx.Err()
		case o := <-c.relaid:
			c.relay(o)
		case <-c.grace.C:
			c.remove()
		case <-silent.C:
			c.opt.Log.Warn("connected, but the control plane has sent no rules; does it know this node?", "xds", c.opt.Address,
				"node", c.opt.NodeID, "rules", c.now.Rules)
			silent.Reset(silentRepeat)
		case r := <-s.received:
			if r.err != nil {
				return answered, r.err
			}
			silent.Stop()
			began := time.Now()
			resp, err := parse(r.message)
			if err != nil {
				return answered, err
			}
			if !answered {
				answered = true
				c.until = began.Add(c.opt.RemovalGrace)
				c.grace.Reset(c.opt.RemovalGrace)
			}
			if err := c.receive(s, resp, &accepted, began); err != nil {
				return answered, err
			}
			if pause := c.pacer.pause(began, time.Since(began)); pause > 0 {
				c.sleep(ctx, pause)
			}
		}
	}
}

// receive puts a response in force and then answers it.
func (c *Client) receive(s *stream, resp *response, accepted *string, began time.Time) error {
	list, bad := c.open(resp)
	o := c.state.consider(list, bad, began.Before(c.until))
	c.unsure = len(bad) > 0
	same := o.set != nil && c.now.Rules && maps.Equal(o.domains, c.state.inForce)
	installed := same || c.install(o)
	if same {
		c.state.take(o)
	}
	ok := installed && len(o.problems) == 0
	if ok {
		*accepted, c.now.Version = resp.version, resp.version
		c.now.Accepted++
	} else {
		c.now.Refused++
	}
	if installed {
		c.now.Cached = false
	}
	c.now.Connected, c.now.Error, c.now.Answered = true, "", began
	c.note(o)
	c.publish()
	c.report(o, resp, same, time.Since(began))
	if c.opt.OnUpdate != nil {
		c.opt.OnUpdate(ok)
	}
	if installed && !same {
		c.keep()
	}
	var wrong []string
	for i := range o.problems {
		wrong = append(wrong, o.problems[i].String())
	}
	return s.answer(resp, *accepted, wrong)
}
