package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/backends/combine"
	"github.com/headgate-rls/headgate/backends/denycache"
	"github.com/headgate-rls/headgate/backends/failover"
	"github.com/headgate-rls/headgate/backends/memory"
	"github.com/headgate-rls/headgate/backends/observe"
	"github.com/headgate-rls/headgate/backends/redis"
	"github.com/headgate-rls/headgate/backends/share"
	"github.com/headgate-rls/headgate/internal/safego"
	"github.com/headgate-rls/headgate/internal/telemetry"
)

// A kind is one kind of backend, by the schemes of its URLs. This list is the
// only place that knows them all.
type kind struct {
	schemes []string
	caps    func(rawURL string) (backends.Caps, error)
	open    func(ctx context.Context, c storeConfig) (backends.Backend, []telemetry.Stat, error)
}

var kinds = []kind{
	{[]string{"memory"}, memoryCaps, openMemory},
	{[]string{"redis", "rediss", "unix", "redis+unix", "redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster"}, redisCaps, openRedis},
}

func findKind(rawURL string) (kind, error) {
	scheme, _, ok := strings.Cut(rawURL, ":")
	if !ok {
		return kind{}, fmt.Errorf("want a URL such as memory:// or redis://host:6379, not a bare word")
	}
	var known []string
	for _, k := range kinds {
		for _, s := range k.schemes {
			if s == scheme {
				return k, nil
			}
			known = append(known, s)
		}
	}
	sort.Strings(known)
	return kind{}, fmt.Errorf("no backend for scheme %q; known are %s", scheme, strings.Join(known, ", "))
}

// backendCaps returns what the backend at rawURL promises, without connecting.
func backendCaps(rawURL string) (backends.Caps, error) {
	k, err := findKind(rawURL)
	if err != nil {
		return backends.Caps{}, err
	}
	return k.caps(rawURL)
}

// A store is the backend with its decorators, and what it needs beside.
type store struct {
	backend  backends.Backend
	caps     backends.Caps
	registry backends.Registry // what replicas share beside the counters
	clock    *clock
	fallback backends.Backend // for rules with on_backend_error: local

	swept   []*memory.Backend  // to be swept as time passes
	refused *denycache.Backend // known refusals; nil for a backend in this process
	shared  *share.Backend     // what is taken ahead; the same
	breaker *failover.Breaker  // the same
	local   *failover.Local    // the fallback, if it has to reconcile
}

// storeConfig is what a store is opened with.
type storeConfig struct {
	url      string
	timeout  time.Duration
	replicas int
	log      *slog.Logger
	metrics  *telemetry.Metrics
	panics   *safego.Reporter
}

// openStore opens the backend and stacks its decorators.
func openStore(ctx context.Context, c storeConfig) (*store, error) {
	k, err := findKind(c.url)
	if err != nil {
		return nil, err
	}
	s := &store{clock: newClock()}
	if s.caps, err = k.caps(c.url); err != nil {
		return nil, err
	}
	driver, stats, err := k.open(ctx, c)
	if err != nil {
		return nil, err
	}
	c.metrics.AddStats(stats)
	if be, ok := driver.(*memory.Backend); ok {
		s.swept = append(s.swept, be)
	}
	if r, ok := driver.(backends.Registrar); ok {
		s.registry = r.Registry()
	} else {
		s.registry = memory.NewRegistry(time.Now)
	}
	s.decorate(driver, c)
	return s, nil
}

// decorate stacks the decorators around the driver, the innermost first. A
// backend in this process cannot be away and has nothing to combine.
func (s *store) decorate(driver backends.Backend, c storeConfig) {
	s.backend = observe.New(driver, c.metrics.Backend(s.caps.Name), time.Now)
	inner := memory.New(memory.Config{Log: c.log})
	s.swept = append(s.swept, inner)
	s.fallback = inner
	if s.caps.Local {
		return
	}
	s.breaker = failover.New(s.backend, s.breakerConfig(c), time.Now)
	s.shared = share.New(combine.New(s.breaker, combine.Config{Timeout: c.timeout, Answers: s.breaker.Answers, Panics: c.panics}), &s.caps, share.Config{}, time.Now)
	s.refused = denycache.New(s.shared, &s.caps, denycache.Config{}, time.Now)
	s.backend = s.refused
	s.local = failover.NewLocal(inner, s.backend, failover.LocalConfig{
		Replicas: c.replicas, ServerClock: s.caps.ServerClock, Timeout: c.timeout,
		OnReconcile: func(r failover.Result, err error) { logReconciled(c.log, r, err) },
	}, s.clock.now)
	s.fallback = s.local
	c.metrics.AddStats(s.failoverStats())
}

// rulesChanged forgets what is known under the old rules.
func (s *store) rulesChanged() {
	if s.refused != nil {
		s.refused.Flush()
	}
}

func (s *store) breakerConfig(c storeConfig) failover.Config {
	conf := failover.Config{Timeout: c.timeout, Panics: c.panics}
	if s.caps.Atomicity == backends.PerPartition {
		conf.Failures = -1 // of several nodes one may be away: only a share of failures tells
	}
	conf.OnChange = func(from, to failover.State, why error) {
		switch to {
		case failover.Open:
			if from == failover.Closed {
				c.log.Error("backend fails; the circuit breaker is open and failure policies decide", "backend", s.caps.Name, "error", why)
			}
		case failover.Closed:
			c.log.Info("backend is back; decisions are by count again", "backend", s.caps.Name)
			s.local.Signal()
		}
	}
	return conf
}

func logReconciled(log *slog.Logger, r failover.Result, err error) {
	log.Info("what was admitted locally is charged to the backend", "keys", r.Keys, "units", r.Units,
		"without_room", r.Short, "ended", r.Ended, "left", r.Left, "error", err)
}

func (s *store) failoverStats() []telemetry.Stat {
	counter := func(name, help string, f func() uint64) telemetry.Stat {
		return telemetry.Stat{Name: name, Help: help, Counter: true, Value: func() float64 { return float64(f()) }}
	}
	return []telemetry.Stat{
		{Name: "headgate_breaker_open", Help: "1 while the circuit breaker is open because the backend failed, 0.5 while it probes the backend.", Value: func() float64 {
			return map[failover.State]float64{failover.Open: 1, failover.HalfOpen: 0.5}[s.breaker.State()]
		}},
		counter("headgate_denycache_hits_total", "Requests refused from what was known, without asking the backend.", func() uint64 { return s.refused.Stats().Hits }),
		{Name: "headgate_denycache_entries", Help: "Refusals that are known.", Value: func() float64 { return float64(s.refused.Stats().Entries) }},
		counter("headgate_denycache_evictions_total", "Refusals dropped because there were too many.", func() uint64 { return s.refused.Stats().Evictions }),
		counter("headgate_share_hits_total", "Requests paid from units taken ahead, without asking the backend.", func() uint64 { return s.shared.Stats().Hits }),
		{Name: "headgate_share_keys", Help: "Counters of which units are taken ahead.", Value: func() float64 { return float64(s.shared.Stats().Keys) }},
		counter("headgate_share_taken_units_total", "Units taken ahead.", func() uint64 { return s.shared.Stats().Taken }),
		counter("headgate_share_lapsed_units_total", "Units taken ahead that expired unspent.", func() uint64 { return s.shared.Stats().Lapsed }),
		counter("headgate_share_full_total", "Charges that took nothing ahead because there were too many counters.", func() uint64 { return s.shared.Stats().Full }),
		counter("headgate_breaker_openings_total", "How often the breaker opened.", func() uint64 { return s.breaker.Stats().Opened }),
		counter("headgate_breaker_refusals_total", "Calls not made because the breaker was open or too many were under way.",
			func() uint64 { st := s.breaker.Stats(); return st.Refused + st.Overloaded }),
		{Name: "headgate_local_pending_keys", Help: "Counters admitted locally that are still to be charged to the backend.",
			Value: func() float64 { return float64(s.local.Pending()) }},
		counter("headgate_local_charged_units_total", "Units admitted locally that the backend was charged.", func() uint64 { return s.local.Stats().Units }),
		counter("headgate_local_short_units_total", "Units admitted locally for which the backend had no room.", func() uint64 { return s.local.Stats().Short }),
	}
}

// run drops expired state once a second and reconciles what was decided
// locally, until ctx ends.
func (s *store) run(ctx context.Context) {
	var running tasks
	if s.local != nil {
		running.start(func() { s.local.Run(ctx) })
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			running.wait()
			return
		case <-tick.C:
			for _, m := range s.swept {
				m.Sweep(s.clock.now())
			}
		}
	}
}

func (s *store) close(log *slog.Logger) {
	if err := errors.Join(s.backend.Close(), s.fallback.Close()); err != nil {
		log.Warn("could not close the backend", "error", err)
	}
}

func memoryConfig(rawURL string) (memory.Config, error) {
	var conf memory.Config
	u, err := url.Parse(rawURL)
	if err != nil {
		return conf, fmt.Errorf("not a URL: %w", err)
	}
	bounds := map[string]*int{"max_keys": &conf.MaxKeys, "max_leases": &conf.MaxLeases, "max_records": &conf.MaxRecords}
	for name, values := range u.Query() {
		bound := bounds[name]
		n, err := strconv.Atoi(values[0])
		switch {
		case bound == nil:
			return conf, fmt.Errorf("memory has no parameter %q; it has max_keys, max_leases and max_records", name)
		case err != nil || n < 1:
			return conf, fmt.Errorf("%s=%s is not a positive number", name, values[0])
		}
		*bound = n
	}
	return conf, nil
}

func memoryCaps(rawURL string) (backends.Caps, error) {
	_, err := memoryConfig(rawURL)
	return memory.Caps(), err
}

func openMemory(_ context.Context, c storeConfig) (backends.Backend, []telemetry.Stat, error) {
	conf, err := memoryConfig(c.url)
	if err != nil {
		return nil, nil, err
	}
	conf.Log = c.log
	conf.Now = time.Now
	be := memory.New(conf)
	return be, []telemetry.Stat{
		{Name: "headgate_memory_keys", Help: "Counters kept in memory.", Value: func() float64 { return float64(be.Stats().Keys) }},
		{Name: "headgate_memory_leases", Help: "Leases of requests in flight kept in memory.", Value: func() float64 { return float64(be.Stats().Leases) }},
		{Name: "headgate_memory_log_records", Help: "Records that sliding logs kept in memory have room for, of 16 bytes each.",
			Value: func() float64 { return float64(be.Stats().Records) }},
		{Name: "headgate_memory_log_merges_total", Help: "How often a sliding log was made coarser because memory has no room for more records.", Counter: true,
			Value: func() float64 { return float64(be.Stats().Merged) }},
		{Name: "headgate_memory_evictions_total", Help: "Counters dropped before their end because memory was full.", Counter: true,
			Value: func() float64 { return float64(be.Stats().Evicted) }},
		{Name: "headgate_memory_expirations_total", Help: "Counters dropped at their end.", Counter: true,
			Value: func() float64 { return float64(be.Stats().Expired) }},
	}, nil
}

func redisCaps(rawURL string) (backends.Caps, error) {
	conf, err := redis.Parse(rawURL)
	if err != nil {
		return backends.Caps{}, err
	}
	return conf.Caps(), nil
}

func openRedis(ctx context.Context, c storeConfig) (backends.Backend, []telemetry.Stat, error) {
	conf, err := redis.Parse(c.url)
	if err != nil {
		return nil, nil, err
	}
	conf.Panics = c.panics
	be, err := redis.Open(ctx, conf, c.log)
	if err != nil {
		return nil, nil, err
	}
	gauge := func(name, help string, f func(redis.Stats) float64) telemetry.Stat {
		return telemetry.Stat{Name: name, Help: help, Value: func() float64 { return f(be.Stats()) }}
	}
	counter := func(name, help string, f func(redis.Stats) float64) telemetry.Stat {
		s := gauge(name, help, f)
		s.Counter = true
		return s
	}
	return be, []telemetry.Stat{
		gauge("headgate_redis_pool_connections", "Connections to Redis.", func(s redis.Stats) float64 { return float64(s.Connections) }),
		gauge("headgate_redis_pool_idle_connections", "Idle connections to Redis.", func(s redis.Stats) float64 { return float64(s.IdleConnections) }),
		gauge("headgate_redis_nodes_away", "Nodes of a Cluster whose circuit breaker is open.", func(s redis.Stats) float64 { return float64(len(s.NodesAway)) }),
		counter("headgate_redis_node_openings_total", "How often the circuit breaker of a Cluster's node opened.", func(s redis.Stats) float64 { return float64(s.NodeOpened) }),
		counter("headgate_redis_node_refusals_total", "Calls not made because the circuit breaker of their node was open.", func(s redis.Stats) float64 { return float64(s.NodeRefused) }),
		counter("headgate_redis_pool_timeouts_total", "Waits for a connection that ended in a timeout.", func(s redis.Stats) float64 { return float64(s.PoolTimeouts) }),
		counter("headgate_redis_script_calls_total", "Script calls.", func(s redis.Stats) float64 { return float64(s.Calls) }),
		counter("headgate_redis_script_loads_total", "Script calls that had to send the script's text.", func(s redis.Stats) float64 { return float64(s.NoScript) }),
		counter("headgate_redis_refunds_total", "Refused parts of requests over several slots of a Cluster that were given back.", func(s redis.Stats) float64 { return float64(s.Refunds) }),
		counter("headgate_redis_refunds_late_total", "The same, of which nothing or not all was worth anything any more.", func(s redis.Stats) float64 { return float64(s.RefundsLate) }),
		counter("headgate_redis_refunds_lost_total", "The same that could not be given back.", func(s redis.Stats) float64 { return float64(s.RefundsLost) }),
		gauge("headgate_redis_refunds_pending", "The same that are still to be given back.", func(s redis.Stats) float64 { return float64(s.RefundsPending) }),
		gauge("headgate_redis_refunds_pending_bytes", "Memory of those that are still to be given back.", func(s redis.Stats) float64 { return float64(s.RefundBytes) }),
		counter("headgate_redis_retries_total", "Script calls sent again because they are known to have had no effect.", func(s redis.Stats) float64 { return float64(s.Retries) }),
	}, nil
}
