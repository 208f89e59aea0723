package gateway

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/pprof"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/headgate-rls/headgate/backends/redis"
	"github.com/headgate-rls/headgate/internal/kit/web"
	"github.com/headgate-rls/headgate/notify"
	"github.com/headgate-rls/headgate/notify/httpapi"
	"github.com/headgate-rls/headgate/notify/kafka"
	"github.com/headgate-rls/headgate/notify/pgstore"
	"github.com/headgate-rls/headgate/notify/rediscache"
	"github.com/headgate-rls/headgate/notify/serve"
)

// A limiter decides about messages and delivers them: the database, or Redis in front of it.
type limiter interface {
	Configure(ctx context.Context, c notify.Config) (start time.Time, err error)
	Send(ctx context.Context, m notify.Message) (notify.Accepted, error)
}

// gateway is a running notify-gateway.
type gateway struct {
	conf      *Settings
	log       *slog.Logger
	publisher *kafka.Publisher
	store     *pgstore.Store
	redis     *redis.Client     // nil without --redis
	cache     *rediscache.Cache // nil without --redis
	limiter
	draining atomic.Bool
}

// Send gives the message its name.
func (g *gateway) Send(ctx context.Context, user, text string) (notify.Accepted, error) {
	now := time.Now().UTC().Truncate(time.Microsecond)
	return g.limiter.Send(ctx, notify.Message{ID: uuid.NewString(), UserID: user, Text: text, AcceptedAt: now})
}

// Run runs notify-gateway until ctx ends, and drains then.
func Run(ctx context.Context, conf *Settings, log *slog.Logger, version string) error {
	g := &gateway{conf: conf, log: log}
	if err := g.open(); err != nil {
		return err
	}
	defer g.close()
	sends := httpapi.NewMetrics()
	metrics := serve.NewMetrics(version, &conf.Log, slices.Concat(sends.Rows(), g.cache.Rows(), g.store.Rows()))
	api, err := g.api(sends)
	if err != nil {
		return err
	}
	public, err := serve.Listen(ctx, "http", conf.HTTP, api, 10*time.Second+conf.RequestTimeout, log)
	if err != nil {
		return err
	}
	defer public.Listener.Close()
	debug, err := serve.Listen(ctx, "debug", conf.Debug, debugHandler(metrics), 2*time.Minute, log)
	if err != nil {
		return err
	}
	if debug != nil {
		defer debug.Listener.Close()
	}
	if err := g.await(ctx); err != nil {
		return err
	}
	return g.run(ctx, public, debug)
}

// relayTimeout bounds the publishing of a slice of the outbox. A slow broker is given the
// time that it needs: what it does not confirm is published again.
const relayTimeout = 8 * time.Second

// parts are what settings say of the parts of a gateway, which get what they have of each other from [gateway.open].
type parts struct {
	topic          kafka.Topic
	within, linger time.Duration // of the publisher
	store          pgstore.Config
	cache          rediscache.Config
	api            httpapi.Config
	guard          web.GuardConfig
	optional       bool // the gateway is ready without Kafka
}

func (c *Settings) parts() parts {
	outbox := c.Delivery == deliverOutbox
	p := parts{topic: c.Topic, within: c.PublishTimeout, linger: c.PublishLinger, cache: c.Cache,
		store:    pgstore.Config{Database: c.Database, Outbox: outbox, OutboxMax: int64(c.OutboxMax)},
		api:      httpapi.Config{Timeout: c.RequestTimeout, Most: c.MaxRequests},
		guard:    web.GuardConfig{Token: c.ConfigToken, Setting: "NOTIFY_GATEWAY_CONFIG_TOKEN"},
		optional: outbox}
	if outbox {
		p.within = relayTimeout // no request waits for it
	}
	return p
}

// open makes the parts, none of which connects yet.
func (g *gateway) open() (err error) {
	c, p := g.conf, g.conf.parts()
	if g.publisher, err = kafka.NewPublisher(p.topic, p.within, p.linger); err != nil {
		return err
	}
	p.store.Publisher, p.store.Database.Log = g.publisher, g.log
	if g.store, err = pgstore.Open(p.store); err != nil {
		g.publisher.Close()
		return err
	}
	g.limiter = g.store
	if c.Redis == "" {
		return nil
	}
	at, err := redis.Parse(c.Redis)
	if err == nil {
		g.redis, err = redis.NewClient(at, g.log)
	}
	if err != nil {
		g.close()
		return err
	}
	p.cache.Client, p.cache.Store, p.cache.Log = g.redis, g.store, g.log
	g.cache = rediscache.New(p.cache)
	g.limiter = g.cache
	return nil
}

func (g *gateway) close() {
	if g.redis != nil {
		_ = g.redis.Close()
	}
	_ = g.store.Close()
	g.publisher.Close()
}

// await waits for what the gateway needs, and a while for Redis, without which it starts all
// the same.
func (g *gateway) await(ctx context.Context) error {
	limit := g.conf.StartWait
	err := serve.Await(ctx, g.log, "the database", limit, func(ctx context.Context) error {
		if g.conf.Migrate {
			_, err := g.store.Migrate(ctx)
			return err
		}
		return g.store.Ping(ctx)
	})
	if err == nil {
		err = serve.Await(ctx, g.log, "Kafka", limit, g.publisher.EnsureTopic)
	}
	if err != nil || g.redis == nil {
		return err
	}
	if err := serve.Await(ctx, g.log, "Redis", min(limit, 10*time.Second), g.pingRedis); err != nil && ctx.Err() == nil {
		g.log.Warn("Redis does not answer: starting without it", "error", err)
	}
	return ctx.Err()
}

func (g *gateway) pingRedis(ctx context.Context) error { return g.redis.Ping(ctx).Err() }

// api returns the handler of the public listener.
func (g *gateway) api(sends *httpapi.Metrics) (http.Handler, error) {
	p := g.conf.parts()
	p.api.Gateway, p.api.Answer, p.api.Log = g, sends.Sent, g.log
	if p.guard.Token != "" {
		p.guard.Refusals = web.NewRefusals(g.log)
		guard, err := web.NewGuard(p.guard)
		if err != nil {
			return nil, err
		}
		p.api.Guard = guard
	}
	checks := []*serve.Check{
		{Name: "database", Log: g.log, Ping: g.store.Ping},
		{Name: "kafka", Log: g.log, Ping: g.publisher.Ping, Problem: kafka.Problem, Serving: p.optional},
	}
	if g.redis != nil {
		checks = append(checks, &serve.Check{Name: "redis", Log: g.log, Ping: g.pingRedis, Serving: true})
	}
	mux := http.NewServeMux()
	mux.Handle("/", httpapi.New(p.api))
	mux.HandleFunc("GET /healthz", serve.Healthz)
	mux.Handle("GET /readyz", web.Readiness{Draining: g.draining.Load,
		Parts: func() []web.Part { return serve.Looks(checks) }})
	return mux, nil
}

// debugHandler serves what only operators should see.
func debugHandler(metrics http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", metrics)
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	return mux
}

// run serves until ctx ends or a listener fails, and ends in good order: requests first, then
// what is behind their answers.
func (g *gateway) run(ctx context.Context, public, debug *serve.Server) (err error) {
	behind, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var background sync.WaitGroup
	background.Go(func() { g.store.Relay(behind) })
	if g.cache != nil {
		background.Go(func() { g.cache.Run(behind) })
	}
	var all serve.Servers
	all.Start(public, debug)
	debugAddress := ""
	if debug != nil {
		debugAddress = debug.Listener.Addr().String()
	}
	g.log.Info("serving", "http", public.Listener.Addr().String(), "debug", debugAddress, "database", g.store.Address(),
		"topic", g.conf.Topic.Name, "delivery", g.conf.Delivery, "redis", g.conf.Redis != "")
	select {
	case <-ctx.Done():
		g.log.Info("draining", "delay", g.conf.DrainDelay, "timeout", g.conf.DrainTimeout)
		g.draining.Store(true)
		time.Sleep(g.conf.DrainDelay)
	case err = <-all.Failed:
	}
	all.Stop(g.conf.DrainTimeout)
	stop()
	background.Wait()
	if err == nil {
		g.log.Info("drained")
	}
	return err
}
