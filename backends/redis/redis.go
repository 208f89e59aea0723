package redis

import (
	"context"
	crand "crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/internal/safego"
	"github.com/headgate-rls/headgate/limit"
)

// A Backend is one or more Redis servers.
type Backend struct {
	cfg     Config
	caps    backends.Caps
	log     *slog.Logger
	client  redis.UniversalClient
	cluster *redis.ClusterClient // nil unless client is one
	step    limit.Instant        // precision

	saltStart [6]byte
	salts     atomic.Uint64
	scratch   sync.Pool // of *scratch

	refunds    refunds
	looked     atomic.Bool // whether Warnings was logged
	background sync.WaitGroup
	closing    context.Context
	close      context.CancelFunc

	awayMu sync.Mutex
	away   map[*node]struct{} // nodes of a Cluster whose circuit breaker is open

	calls, noScript, retries, nodeOpened, nodeRefused atomic.Int64
}

var (
	_ backends.Backend   = (*Backend)(nil)
	_ backends.Registrar = (*Backend)(nil)
)

// scratch is what a Take needs and the next one can use again.
type scratch struct {
	calls []*call
	used  int
	where []int32 // per request: the call that has it, or unplaced
}

const unplaced = -1

func (s *scratch) call(b *Backend) *call {
	if s.used == len(s.calls) {
		s.calls = append(s.calls, &call{})
	}
	c := s.calls[s.used]
	s.used++
	c.reset(b.cfg.Layout)
	if b.cfg.Layout == ZSet {
		c.salt = append(c.salt, b.saltStart[:]...)
		c.salt = binary.LittleEndian.AppendUint64(c.salt, b.salts.Add(1))[:11]
	}
	return c
}

// Open makes a backend from c. It connects when it is first used, so a server
// that is away now is no error; a configuration that cannot work is.
func Open(_ context.Context, c Config, log *slog.Logger) (*Backend, error) {
	b := &Backend{cfg: c, caps: c.Caps(), log: log, away: map[*node]struct{}{}}
	if log == nil {
		b.log = slog.New(slog.DiscardHandler)
	}
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("redis: %w", err)
	}
	if c.Panics == nil {
		b.cfg.Panics = &safego.Reporter{Log: b.log}
	}
	if _, err := crand.Read(b.saltStart[:]); err != nil {
		return nil, fmt.Errorf("redis: %w", err)
	}
	b.step = limit.Instant(b.caps.Precision.Microseconds())
	b.refunds.b = b
	b.scratch.New = func() any { return &scratch{} }
	quietDriver()
	b.closing, b.close = context.WithCancel(context.Background())
	if err := b.connect(); err != nil {
		b.close()
		return nil, fmt.Errorf("redis: %w", err)
	}
	return b, nil
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
//     that are known to have had no effect are sent again by [Backend.run].
//   - One dial per try: the driver's default of five takes 400 ms to say that
//     a connection is refused.
//   - RESP2, no maintenance notifications, no CLIENT SETINFO: nothing here needs
//     them, and a user may lack the permission.
//   - No pool of its own for pipelines, so that PoolSize means what it says.
func (b *Backend) connect() error {
	c := &b.cfg
	tlsConfig, err := c.tlsConfig()
	if err != nil {
		return err
	}
	if _, err := c.password(); err != nil {
		return err
	}
	sentinelPassword, err := c.sentinelPassword()
	if err != nil {
		return err
	}
	credentials := func(context.Context) (string, string, error) {
		password, err := c.password()
		return c.Username, password, err
	}
	const idle = 4 * time.Minute // below the 300 s after which servers are often configured to hang up
	off := &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	switch c.Mode {
	case Cluster:
		b.cluster = redis.NewClusterClient(&redis.ClusterOptions{
			Addrs: c.Addrs, CredentialsProviderContext: credentials, TLSConfig: tlsConfig,
			Protocol: 2, MaintNotificationsConfig: off, DisableRoutingPolicies: true,
			MaxRetries: -1, DialerRetries: 1, DialTimeout: c.DialTimeout,
			MinRetryBackoff: time.Millisecond, MaxRetryBackoff: 16 * time.Millisecond,
			ReadTimeout: c.Timeout, WriteTimeout: c.Timeout, PoolTimeout: c.Timeout, ContextTimeoutEnabled: true,
			PoolSize: c.PoolSize, PipelinePoolSize: -1, ConnMaxIdleTime: idle, DisableIdentity: true,
			ClusterStateReloadInterval: 10 * time.Second,
		})
		b.cluster.OnNewNode(b.addNode)
		b.client = b.cluster
		return nil
	case Sentinel:
		b.client = redis.NewFailoverClient(&redis.FailoverOptions{
			SentinelAddrs: c.Addrs, MasterName: c.Master,
			SentinelUsername: c.SentinelUsername, SentinelPassword: sentinelPassword,
			CredentialsProviderContext: credentials, TLSConfig: tlsConfig, DB: c.DB,
			Protocol: 2, MaxRetries: -1, DialerRetries: 1, DialTimeout: c.DialTimeout,
			ReadTimeout: c.Timeout, WriteTimeout: c.Timeout, PoolTimeout: c.Timeout, ContextTimeoutEnabled: true,
			PoolSize: c.PoolSize, PipelinePoolSize: -1, ConnMaxIdleTime: idle, DisableIdentity: true,
		})
	default:
		o := &redis.Options{
			Network: "unix", Addr: c.Unix,
			CredentialsProviderContext: credentials, TLSConfig: tlsConfig, DB: c.DB,
			Protocol: 2, MaintNotificationsConfig: off,
			MaxRetries: -1, DialerRetries: 1, DialTimeout: c.DialTimeout,
			ReadTimeout: c.Timeout, WriteTimeout: c.Timeout, PoolTimeout: c.Timeout, ContextTimeoutEnabled: true,
			PoolSize: c.PoolSize, PipelinePoolSize: -1, ConnMaxIdleTime: idle, DisableIdentity: true,
		}
		if c.Unix == "" {
			o.Network, o.Addr = "tcp", c.Addrs[0]
		}
		b.client = redis.NewClient(o)
	}
	b.client.AddHook(dialHook{})
	return nil
}

// dialHook marks errors of dialling.
type dialHook struct{}

func (dialHook) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := next(ctx, network, addr)
		if err != nil {
			return nil, &dialError{err}
		}
		return conn, nil
	}
}

func (dialHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (dialHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// Caps returns what b promises.
func (b *Backend) Caps() backends.Caps { return b.caps }

// bounded returns ctx with the configured timeout, if that ends first.
func (b *Backend) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if d, ok := ctx.Deadline(); ok && time.Until(d) <= b.cfg.Timeout {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, b.cfg.Timeout)
}

// Take implements [backends.Backend].
func (b *Backend) Take(ctx context.Context, reqs []limit.Request, out []limit.Verdict) {
	out = out[:len(reqs)]
	if err := ctx.Err(); err != nil {
		_, err := mapError(err, false)
		backends.Fail(out, err)
		return
	}
	ctx, cancel := b.bounded(ctx)
	defer cancel()
	s := b.scratch.Get().(*scratch)
	defer b.scratch.Put(s)
	s.used = 0
	if b.cluster != nil {
		b.takeCluster(ctx, s, reqs, out)
		return
	}
	b.place(s, reqs, out, nil)
	b.run(ctx, s.calls[:s.used])
	b.collect(s, reqs, out)
}

// place puts each valid request into a call, and says in s.where which.
// slotOf, for a Cluster, names the slot of a request or unplaced.
func (b *Backend) place(s *scratch, reqs []limit.Request, out []limit.Verdict, slotOf func(req *limit.Request) int) {
	s.where = s.where[:0]
	for i := range reqs {
		req := &reqs[i]
		s.where = append(s.where, unplaced)
		out[i].Reset(len(req.Ops))
		if err := b.caps.CheckRequest(req); err != nil {
			out[i].Reset(0)
			out[i].Err = err
			continue
		}
		slot := 0
		if slotOf != nil {
			if slot = slotOf(req); slot == unplaced {
				continue
			}
		}
		at, c := b.callFor(s, slot, b.weight(req))
		s.where[i] = int32(at)
		c.add(b.told(req.At), len(req.Ops))
		for j := range req.Ops {
			c.addOp(b, &req.Ops[j], len(req.Ops))
		}
	}
}

func mod(at, step limit.Instant) limit.Instant { return (at%step + step) % step }

// callFor returns the call for slot that has room for n more weight. Calls are
// bounded, because Redis does nothing else while one is decided.
func (b *Backend) callFor(s *scratch, slot, n int) (int, *call) {
	for i := s.used - 1; i >= 0; i-- {
		c := s.calls[i]
		if c.slot != slot {
			continue
		}
		if c.requests < b.cfg.MaxSlice && c.weight+n <= max(4*b.cfg.MaxSlice, maxOps) {
			c.weight += n
			return i, c
		}
		break
	}
	c := s.call(b)
	c.slot, c.weight = slot, n
	return s.used - 1, c
}

// weight says how much work req is, in ops. A unit of a zset is a member.
func (b *Backend) weight(req *limit.Request) int {
	n := len(req.Ops)
	if b.cfg.Layout != ZSet {
		return n
	}
	for i := range req.Ops {
		if op := &req.Ops[i]; op.Limit.Algorithm() == limit.SlidingLog {
			n += int(min(max(op.Cost, 0), op.Limit.Capacity()) / 8)
		}
	}
	return n
}

// collect takes the replies apart. Requests were placed in order, so each
// call's reply is read from front to back.
func (b *Backend) collect(s *scratch, reqs []limit.Request, out []limit.Verdict) {
	for at, c := range s.calls[:s.used] {
		r := c.read()
		for i, where := range s.where {
			if where != int32(at) {
				continue
			}
			v := &out[i]
			if c.err != nil {
				v.Reset(0)
				v.Err = c.err
				continue
			}
			if v.At = reqs[i].At - mod(reqs[i].At, b.step); reqs[i].At == 0 {
				v.At = c.clock
			}
			ops := reqs[i].Ops
			c.verdict(&r, v, nil, func(j int) bool { return ops[j].Limit.Algorithm() == limit.Concurrency })
		}
	}
}

// read begins to take the reply apart.
func (c *call) read() reader {
	r := reader{s: c.reply, ok: true}
	if c.err == nil {
		c.clock = limit.Instant(r.number())
	}
	return r
}

// tries bounds how often a call is sent that is known to have had no effect yet.
const tries = 3

// run sends calls and fills in their replies and errors. It repeats calls that
// are known to have had no effect: the script was missing, the server was still
// loading or no longer the master, the connection was refused. It never repeats
// one after a timeout or a broken connection.
func (b *Backend) run(ctx context.Context, calls []*call) {
	for try := 1; ; try++ {
		b.send(ctx, calls)
		var again []*call
		wait := false
		for _, c := range calls {
			if c.err == nil {
				continue
			}
			var rem remedy
			rem, c.err = mapError(c.err, b.cluster != nil && len(calls) > 1)
			if b.cluster != nil && rem != resend && !isAway(c.err) {
				b.cluster.ReloadState(ctx) // who is master may have changed
			}
			if rem == none {
				continue
			}
			if rem == resend {
				b.noScript.Add(1)
				c.withText = true
			}
			wait = wait || rem == tryLater
			again = append(again, c)
		}
		if len(again) == 0 {
			if len(calls) > 0 && calls[0].err == nil {
				b.look()
			}
			return
		}
		if try == tries || wait && !sleep(ctx, time.Duration(2*try*try)*time.Millisecond) {
			return
		}
		b.retries.Add(int64(len(again)))
		calls = again
	}
}

// sleep waits for d unless ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// A scriptCall is a command that the driver's Cluster client does not repeat
// by itself, except where it is redirected.
type scriptCall struct{ *redis.StringCmd }

func (scriptCall) NoRetry() bool { return true }

// send sends each call once: alone, or all in one pipeline per server.
func (b *Backend) send(ctx context.Context, calls []*call) {
	b.calls.Add(int64(len(calls)))
	if len(calls) == 0 {
		return
	}
	if len(calls) == 1 {
		c := calls[0]
		c.cmd = redis.NewStringCmd(ctx, c.arguments()...)
		c.cmd.SetFirstKeyPos(3)
		_ = b.client.Process(ctx, scriptCall{c.cmd})
		c.reply, c.err = c.cmd.Result()
		return
	}
	pipe := b.client.Pipeline()
	for _, c := range calls {
		c.cmd = redis.NewStringCmd(ctx, c.arguments()...)
		c.cmd.SetFirstKeyPos(3)
		_ = pipe.Process(ctx, scriptCall{c.cmd})
	}
	_, _ = pipe.Exec(ctx)
	for _, c := range calls {
		c.reply, c.err = c.cmd.Result()
	}
}

// Forget implements [backends.Backend].
func (b *Backend) Forget(ctx context.Context, keys []limit.Key) error {
	if err := ctx.Err(); err != nil {
		_, err = mapError(err, false)
		return err
	}
	ctx, cancel := b.bounded(ctx)
	defer cancel()
	const most = 256 // commands in a pipeline
	for len(keys) > 0 {
		n := min(len(keys), most)
		if err := b.forget(ctx, keys[:n]); err != nil {
			_, err = mapError(err, true)
			return err
		}
		keys = keys[n:]
	}
	return nil
}

func (b *Backend) forget(ctx context.Context, keys []limit.Key) error {
	pipe := b.client.Pipeline()
	for _, k := range keys {
		pipe.Unlink(ctx, b.ownKey(k))
		if group, ok := strings.CutPrefix(k.Group, "="); ok && b.cfg.Layout == ZSet {
			pipe.Unlink(ctx, sharedPrefix+group)
		}
	}
	_, err := pipe.Exec(ctx)
	return err
}

// pingLimit is a bucket that a Ping fills up: it writes, so it finds a server
// that is loading, read-only, out of memory or lacks permissions.
var pingLimit = limit.MustNew(limit.Spec{Algorithm: limit.TokenBucket, Max: 1, Window: time.Second})

// Ping implements [backends.Backend] by a Take on a key of its own, for each
// master of a Cluster.
func (b *Backend) Ping(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		_, err = mapError(err, false)
		return err
	}
	ctx, cancel := b.bounded(ctx)
	defer cancel()
	groups := []string{"ping"}
	if b.cluster != nil {
		var err error
		if groups, err = b.groupsOfMasters(ctx); err != nil {
			return err
		}
	}
	reqs := make([]limit.Request, len(groups))
	out := make([]limit.Verdict, len(groups))
	for i, g := range groups {
		reqs[i].Ops = []limit.Op{{Key: limit.Key{Group: g, Limit: "ping"}, Limit: pingLimit, Cost: -1}}
	}
	b.Take(ctx, reqs, out)
	for i := range out {
		if out[i].Err != nil {
			return out[i].Err
		}
	}
	return nil
}

// Close implements [backends.Backend]. It waits until refunds are done, but no
// longer than for a call.
func (b *Backend) Close() error {
	b.refunds.close(b.cfg.Timeout)
	b.close()
	wait := b.stopNodes()
	b.background.Wait()
	err := b.client.Close() // ends what the nodes still wait for
	wait()
	return err
}

// Stats are figures for metrics. All but the pool's state only grow.
type Stats struct {
	Calls    int64 // of the script
	NoScript int64 // of them that had to send its text
	Retries  int64 // calls sent again because they are known to have had no effect
	// Refunds counts parts of refused requests over several slots of a Cluster
	// that were given back, RefundsLate those of which nothing or not all was
	// worth anything any more, and RefundsLost those that could not be.
	Refunds, RefundsLate, RefundsLost int64
	// RefundsPending are those that are still to be given back, RefundBytes
	// their memory.
	RefundsPending, RefundBytes int

	// NodesAway are the addresses of the nodes of a Cluster that are left
	// alone because they failed. NodeOpened counts how often that began,
	// NodeRefused the calls that failed at once.
	NodesAway               []string
	NodeOpened, NodeRefused int64

	PoolHits, PoolMisses, PoolTimeouts, PoolStale uint32
	Connections, IdleConnections                  uint32
}

// Stats returns the figures so far.
func (b *Backend) Stats() Stats {
	p := b.client.PoolStats()
	pending, size := b.refunds.waiting()
	return Stats{
		Calls: b.calls.Load(), NoScript: b.noScript.Load(), Retries: b.retries.Load(),
		Refunds: b.refunds.done.Load(), RefundsLate: b.refunds.late.Load(), RefundsLost: b.refunds.lost.Load(),
		RefundsPending: pending, RefundBytes: size,
		NodesAway: b.awayNodes(), NodeOpened: b.nodeOpened.Load(), NodeRefused: b.nodeRefused.Load(),
		PoolHits: p.Hits, PoolMisses: p.Misses, PoolTimeouts: p.Timeouts, PoolStale: p.StaleConns,
		Connections: p.TotalConns, IdleConnections: p.IdleConns,
	}
}

// inBackground runs f in a goroutine that Close waits for.
func (b *Backend) inBackground(where string, f func()) {
	b.background.Add(1)
	b.cfg.Panics.Go(where, func() {
		defer b.background.Done()
		f()
	})
}

// look logs what is wrong with the server once it has first answered.
func (b *Backend) look() {
	if b.looked.Load() || b.looked.Swap(true) {
		return
	}
	b.inBackground("look", func() {
		ctx, cancel := context.WithTimeout(b.closing, 5*time.Second)
		defer cancel()
		for _, w := range b.Warnings(ctx) {
			b.log.Warn(w, "redis", b.cfg)
		}
	})
}

// Warnings asks the servers about settings under which limits would not hold
// and returns a sentence for each. A server that does not tell, because it may
// not or is away, gives none.
func (b *Backend) Warnings(ctx context.Context) []string {
	var mu sync.Mutex
	var list []string
	ask := func(ctx context.Context, node *redis.Client) error {
		info, err := node.Info(ctx).Result()
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		for _, w := range warningsOf(parseInfo(info)) {
			list = append(list, "Redis at "+node.Options().Addr+": "+w)
		}
		return nil
	}
	if b.cluster != nil {
		_ = b.cluster.ForEachMaster(ctx, ask)
	} else if node, ok := b.client.(*redis.Client); ok {
		_ = ask(ctx, node)
	}
	return list
}

func parseInfo(info string) map[string]string {
	m := map[string]string{}
	for line := range strings.Lines(info) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			m[name] = value
		}
	}
	return m
}

func warningsOf(info map[string]string) []string {
	var list []string
	if v := info["redis_version"]; olderThan62(v) {
		list = append(list, "version "+v+" is too old, 6.2 is the oldest that works")
	}
	if info["role"] == "slave" {
		list = append(list, "it is a replica and takes no writes")
	}
	if policy := info["maxmemory_policy"]; info["maxmemory"] != "0" && policy != "" && policy != "noeviction" {
		list = append(list, "with maxmemory-policy "+policy+" it may evict counters in use, which resets their limits; use noeviction")
	}
	return list
}

func olderThan62(version string) bool {
	major, rest, _ := strings.Cut(version, ".")
	minor, _, _ := strings.Cut(rest, ".")
	x, err1 := strconv.Atoi(major)
	y, err2 := strconv.Atoi(minor)
	return errors.Join(err1, err2) == nil && (x < 6 || x == 6 && y < 2)
}
