package gateway

import (
	"fmt"
	"slices"
	"time"

	"github.com/headgate-rls/headgate/internal/kit/settings"
	"github.com/headgate-rls/headgate/internal/kit/sqldb"
	"github.com/headgate-rls/headgate/notify/rediscache"
	"github.com/headgate-rls/headgate/notify/serve"
)

// Settings are those of notify-gateway, which stands beside headgate.
type Settings struct {
	serve.Common
	Debug string

	Database sqldb.Config
	Migrate  bool

	Delivery       string
	OutboxMax      int
	PublishTimeout time.Duration
	PublishLinger  time.Duration

	Redis string
	Cache rediscache.Config

	ConfigToken    string
	RequestTimeout time.Duration
	MaxRequests    int
	DrainDelay     time.Duration
	DrainTimeout   time.Duration
}

// The ways in which accepted messages get to Kafka.
const (
	deliverDirect = "direct"
	deliverOutbox = "outbox"
)

// Program returns the table.
func (c *Settings) Program() settings.Program {
	publish := func(d time.Duration) error {
		if d > c.RequestTimeout {
			return fmt.Errorf("%v is more than --request-timeout (%v)", d, c.RequestTimeout)
		}
		return nil
	}
	linger := func(d time.Duration) error {
		if d < 0 || d > c.PublishTimeout/2 {
			return fmt.Errorf("%v is not between 0 and half of --publish-timeout (%v)", d, c.PublishTimeout)
		}
		return nil
	}
	db := &c.Database
	return settings.Program{Prefix: "NOTIFY_GATEWAY", Rows: slices.Concat([]settings.Setting{
		settings.Config(&c.File),
		settings.Row("http", &c.HTTP, ":8080",
			"`address` of /api/config, /api/send, /openapi.json, /healthz and /readyz",
			settings.Required, settings.Listens),
		settings.Row("debug", &c.Debug, "127.0.0.1:6071",
			"`address` of /metrics and /debug/pprof/; empty: disabled", settings.Listens),

		settings.Row("database", &db.URL, "",
			"`URL` of the PostgreSQL database: postgres://user:password@host:5432/name; required", settings.Required),
		settings.Row("database-username", &db.Username, "", "`name` to log into the database with, if the URL has none"),
		settings.Row("database-password", &db.Password, "", "`secret` that goes with it"),
		settings.Row("pool-min", &db.PoolMin, settings.PoolMin, "connections to the database that are kept open"),
		settings.Row("pool-max", &db.PoolMax, settings.PoolMax, "most connections to the database",
			settings.Pool(&db.PoolMin, &db.PoolMax, "--pool-min")),
		settings.Row("migrate", &c.Migrate, true, "migrate the database's schema at start"),
	}, serve.TopicRows(&c.Topic), []settings.Setting{
		settings.Row("delivery", &c.Delivery, deliverDirect,
			"how accepted messages get to Kafka: direct (published before the answer) or outbox (written to the "+
				"database with the count, and published afterwards)", settings.OneOf(deliverDirect, deliverOutbox)),
		settings.Row("publish-timeout", &c.PublishTimeout, 2*time.Second,
			"longest wait for Kafka to confirm a message", settings.Positive, settings.Check(publish)),
		settings.Row("publish-linger", &c.PublishLinger, 2*time.Millisecond,
			"how long a message waits for others, to be sent to Kafka together with them; 0: not at all",
			settings.Check(linger)),
		settings.Row("outbox-max", &c.OutboxMax, 1_000_000,
			"most messages that may wait in the outbox; beyond it sends get 503", settings.AtLeast(1)),

		settings.Row("redis", &c.Redis, "",
			"`URL` of the Redis in front of the database: redis://…, rediss://…, redis+sentinel://…, "+
				"redis+cluster://…; empty: the database decides each send"),
		settings.Row("redis-timeout", &c.Cache.Timeout, 200*time.Millisecond,
			"longest wait for Redis, after which the database decides", settings.Positive),
		settings.Row("redis-max-ttl", &c.Cache.MaxTTL, 24*time.Hour,
			"longest time that a user's hash may stay in Redis; at most the rest of the window",
			settings.AtLeast(time.Second)),
		settings.Row("sync-delay", &c.Cache.SyncDelay, 100*time.Millisecond,
			"longest time after which current_count in the database follows the count in Redis",
			settings.Positive, settings.AtMost(time.Minute)),

		settings.Row("config-token", &c.ConfigToken, "",
			"`secret` that requests for /api/config send as Authorization: Bearer; empty: none is needed",
			settings.Token),
		settings.Row("request-timeout", &c.RequestTimeout, 5*time.Second,
			"longest time to answer a request", settings.Positive),
		settings.Row("max-requests", &c.MaxRequests, 2000,
			"most requests that are answered at the same time, a quarter of them for one user; beyond it they get 503",
			settings.AtLeast(1)),
		settings.Row("start-wait", &c.StartWait, time.Minute,
			"longest wait at start for the database, Kafka and Redis; without Redis the gateway starts all the same"),
		settings.Row("drain-delay", &c.DrainDelay, 0, "time between failing /readyz and closing listeners on SIGTERM"),
		settings.Row("drain-timeout", &c.DrainTimeout, 15*time.Second,
			"longest time for requests in flight to finish after that"),
	}, c.Log.Rows())}
}

// Unwise returns warnings of what is allowed and unwise.
func (c *Settings) Unwise() (list []string) {
	if c.ConfigToken == "" && settings.Reachable(c.HTTP) {
		list = append(list, "other machines can reach --http "+c.HTTP+
			", and without --config-token everybody who does can change every user's limit")
	}
	return append(list, c.Common.Unwise()...)
}
