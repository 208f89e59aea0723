package redis

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/internal/kit/background"
	"github.com/headgate-rls/headgate/limit"
)

// servers are the Redis servers that calls go to, and what runs in the background
// for them.
type servers struct {
	cfg     Config
	log     *slog.Logger
	client  redis.UniversalClient
	cluster *redis.ClusterClient // nil unless client is one
	nodes   nodes

	greeting greeting
	dials    atomic.Int64 // connections made, or tried
	probed   atomic.Pointer[probed]
	probing  chan struct{} // has one while somebody probes

	looked     atomic.Bool // whether they were asked how they are
	vitals     vitals
	compared   atomic.Bool // whether clocks were
	background sync.WaitGroup
	closing    context.Context
	close      context.CancelFunc

	calls, noScript atomic.Int64 // of the script, and those of them that had to send its text
	retries         atomic.Int64 // calls sent again because they are known to have had no effect
	counted         atomic.Int64 // slices that were decided without it

	// clock is what a server's clock showed that was asked about windows of a
	// calendar.
	clock atomic.Int64
}

// newServers checks c and makes the driver's client, which connects when it is
// first used.
func newServers(c Config, log *slog.Logger) (*servers, error) {
	s := &servers{cfg: c, log: cmp.Or(log, slog.New(slog.DiscardHandler)), probing: make(chan struct{}, 1)}
	if err := c.check(); err != nil {
		return nil, err
	}
	s.cfg.Panics = cmp.Or(c.Panics, &background.Reporter{Log: s.log})
	quietDriver()
	s.closing, s.close = context.WithCancel(context.Background())
	s.nodes = nodes{cfg: &s.cfg, log: s.log, closing: s.closing, reload: s.reload, away: map[*node]struct{}{}}
	if err := s.connect(); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// reload makes the driver ask a Cluster who is master, which may have changed.
func (s *servers) reload(ctx context.Context) { s.cluster.ReloadState(ctx) }

// stop ends what runs in the background and closes the driver's client.
func (s *servers) stop() error {
	s.close()
	wait := s.nodes.stop()
	s.background.Wait()
	err := s.client.Close() // ends what the nodes still wait for
	wait()
	return err
}

// quietDriver keeps the driver from writing to standard error: what it says
// there, the errors it returns say as well.
var quietDriver = sync.OnceFunc(func() { redis.SetLogger(silence{}) })

type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}

// connect makes the driver's client. Settings that matter:
//
//   - No retries by the driver: it would send a script again after a broken
//     connection, when it is unknown whether the first one was executed. Calls
//     that are known to have had no effect are sent again by [servers.run].
//   - One dial per try: the driver's default of five takes 400 ms to say that
//     a connection is refused.
//   - RESP2, no maintenance notifications, no CLIENT SETINFO: nothing here needs
//     them, and a user may lack the permission.
//   - No pool of its own for pipelines, so that PoolSize means what it says.
func (s *servers) connect() error {
	c := &s.cfg
	if _, err := c.tlsConfig(); err != nil {
		return err
	}
	if _, err := c.password(); err != nil {
		return err
	}
	sentinelPassword, err := c.sentinelPassword()
	if err != nil {
		return err
	}
	o := &redis.UniversalOptions{
		Addrs: c.Addrs, MasterName: c.Master, DB: c.DB, Dialer: s.dial,
		CredentialsProviderContext: func(context.Context) (user, password string, err error) {
			password, err = c.password()
			return c.Username, password, err
		},
		SentinelUsername: c.SentinelUsername, SentinelPassword: sentinelPassword,
		Protocol: 2, MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		MaxRetries: -1, DialerRetries: 1, DialTimeout: c.DialTimeout,
		ReadTimeout: c.Timeout, WriteTimeout: c.Timeout, PoolTimeout: c.Timeout, ContextTimeoutEnabled: true,
		PoolSize: c.PoolSize, PipelinePoolSize: -1, DisableIdentity: true,
		ConnMaxIdleTime: 4 * time.Minute, // below the 300 s after which servers are often configured to hang up
	}
	switch c.Mode {
	case Cluster:
		of := o.Cluster()
		of.DisableRoutingPolicies, of.ClusterStateReloadInterval = true, 10*time.Second
		of.MinRetryBackoff, of.MaxRetryBackoff = time.Millisecond, 16*time.Millisecond
		s.cluster = redis.NewClusterClient(of)
		s.nodes.owners = &owners{}
		s.cluster.OnNewNode(s.nodes.add)
		s.client = s.cluster
		return nil
	case Sentinel:
		s.client = redis.NewFailoverClient(o.Failover())
		return nil
	}
	if c.Unix != "" {
		o.Addrs = []string{c.Unix}
	}
	s.client = redis.NewClient(o.Simple())
	return nil
}

// bounded returns ctx with the configured timeout, if that ends first.
func (s *servers) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if d, ok := ctx.Deadline(); ok && time.Until(d) <= s.cfg.Timeout {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, s.cfg.Timeout)
}

// decide sends the calls of s, and once more what was declined, each request by itself: of a Redis that
// is full or takes no writes, those are decided that need none.
func (s *servers) decide(ctx context.Context, p *packer, of *scratch, reqs []limit.Request) {
	s.run(ctx, of.calls[:of.used])
	if again := p.again(of, reqs); len(again) > 0 {
		s.run(ctx, again)
	}
}

// tries bounds how often a call is sent that is known to have had no effect yet.
const tries = 3

// run sends calls and fills in their replies and errors. It repeats calls that
// are known to have had no effect: the script was missing, the server was still
// loading or no longer the master, the connection was refused, its clock is in
// another window of a calendar. It never repeats one after a timeout or a broken
// connection. A call that one script passes on to the other is no repetition.
func (s *servers) run(ctx context.Context, calls []*call) {
	for _, c := range calls {
		if c.calendars {
			c.guess = limit.Instant(s.clock.Load())
		}
	}
	for try := 1; ; try++ {
		s.send(ctx, calls)
		var again []*call
		wait, passed := false, false
		for _, c := range calls {
			if c.err == nil {
				if c.passedOn() {
					c.err, passed = errPassedOn, true
					again = append(again, c)
				} else if c.calendars {
					if c.misjudged() {
						c.err = errOtherWindow
						again = append(again, c)
					}
					s.clock.Store(int64(c.guess))
				}
				continue
			}
			var rem remedy
			rem, c.err = mapError(located(c.err, c.script), s.cluster != nil && len(calls) > 1)
			moved := rem == tryLater || rem == none && !errors.Is(c.err, backends.ErrDeclined)
			if s.cluster != nil && moved && !isAway(c.err) {
				s.cluster.ReloadState(ctx) // who is master may have changed
			}
			if rem == none {
				continue
			}
			if rem == resend {
				s.noScript.Add(1)
				c.withText = true
			}
			wait = wait || rem == tryLater
			again = append(again, c)
		}
		if len(again) == 0 {
			if len(calls) > 0 && calls[0].err == nil {
				s.lookOnce()
				s.compareClocks(calls[0])
			}
			return
		}
		if passed { // each call at most once
			try--
		}
		if try == tries || wait && s.pause(ctx, try) != nil {
			return
		}
		s.retries.Add(int64(len(again)))
		calls = again
	}
}

// pause waits before a call is sent again that was tried so many times.
func (s *servers) pause(ctx context.Context, tried int) error {
	return background.Sleep(ctx, time.Duration(2*tried*tried)*time.Millisecond)
}

// send sends each call once: alone, or all in one pipeline per server.
func (s *servers) send(ctx context.Context, calls []*call) {
	s.calls.Add(int64(len(calls)))
	if len(calls) == 0 {
		return
	}
	if len(calls) == 1 {
		c := calls[0]
		c.cmd = redis.NewStringCmd(ctx, c.arguments()...)
		c.cmd.SetFirstKeyPos(3)
		_ = s.client.Process(ctx, scriptCall{c.cmd, c.slot})
		c.reply, c.err = c.cmd.Result()
		return
	}
	pipe := s.client.Pipeline()
	for _, c := range calls {
		c.cmd = redis.NewStringCmd(ctx, c.arguments()...)
		c.cmd.SetFirstKeyPos(3)
		_ = pipe.Process(ctx, scriptCall{c.cmd, c.slot})
	}
	_, _ = pipe.Exec(ctx)
	for _, c := range calls {
		c.reply, c.err = c.cmd.Result()
	}
}

// inBackground runs f in a goroutine that Close waits for.
func (s *servers) inBackground(where string, f func()) {
	s.background.Add(1)
	s.cfg.Panics.Go(where, func() {
		defer s.background.Done()
		f()
	})
}

// lookOnce asks the servers how they are once one has first answered.
func (s *servers) lookOnce() {
	if !s.looked.Load() && !s.looked.Swap(true) {
		s.look()
	}
}

// mostApart is how far clocks may be apart that are asked one after the other, one of them
// in whole seconds.
const mostApart = 2 * time.Second

// compareClocks warns, once it has a call with an instant, of a clock by which windows are
// not those of others.
func (s *servers) compareClocks(c *call) {
	if !layouts[s.cfg.Layout].windows || c.at <= 0 || s.compared.Load() || s.compared.Swap(true) {
		return
	}
	c.read()
	if c.at.Sub(c.clock).Abs() > mostApart {
		s.log.Warn(
			"the clock here and that of Redis differ: with layout=envoy this replica counts in other windows than the rest",
			"here", c.at.Time(), "redis", c.clock.Time())
	}
}
