package serve

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"time"

	"github.com/headgate-rls/headgate/internal/kit/settings"
	"github.com/headgate-rls/headgate/internal/kit/sqldb"
	"github.com/headgate-rls/headgate/notify/kafka"
	"github.com/headgate-rls/headgate/notify/rediscache"
)

// GatewaySettings are those of notify-gateway, which stands beside headgate.
type GatewaySettings struct {
	common
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

// SenderSettings are those of notify-sender.
type SenderSettings struct {
	common
	Group      string
	DeadLetter string

	Webhook         string
	WebhookToken    string
	WebhookTimeout  time.Duration
	WebhookAttempts int
	WebhookBackoff  time.Duration
}

// common settings are those of both programs.
type common struct {
	File      string
	HTTP      string
	Topic     kafka.Topic
	StartWait time.Duration
	settings.Log
}

// The ways in which accepted messages get to Kafka.
const (
	deliverDirect = "direct"
	deliverOutbox = "outbox"
)

// Program returns the table.
func (c *GatewaySettings) Program() settings.Program {
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
	}, topicRows(&c.Topic), []settings.Setting{
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
			"most requests that are answered at the same time; beyond it they get 503", settings.AtLeast(1)),
		settings.Row("start-wait", &c.StartWait, time.Minute,
			"longest wait at start for the database, Kafka and Redis; without Redis the gateway starts all the same"),
		settings.Row("drain-delay", &c.DrainDelay, 0, "time between failing /readyz and closing listeners on SIGTERM"),
		settings.Row("drain-timeout", &c.DrainTimeout, 15*time.Second,
			"longest time for requests in flight to finish after that"),
	}, c.Log.Rows())}
}

// Unwise returns warnings of what is allowed and unwise.
func (c *GatewaySettings) Unwise() (list []string) {
	if c.ConfigToken == "" && settings.Reachable(c.HTTP) {
		list = append(list, "other machines can reach --http "+c.HTTP+
			", and without --config-token everybody who does can change every user's limit")
	}
	return append(list, c.common.Unwise()...)
}

// Program returns the table.
func (c *SenderSettings) Program() settings.Program {
	differs := func(v string) error {
		if v != "" && v == c.Topic.Name {
			return errors.New("is the --topic itself: skipped messages would come back for ever")
		}
		return nil
	}
	return settings.Program{Prefix: "NOTIFY_SENDER", Rows: slices.Concat([]settings.Setting{
		settings.Config(&c.File),
		settings.Row("http", &c.HTTP, ":8081",
			"`address` of /healthz, /readyz and /metrics; empty: disabled", settings.Listens),
	}, topicRows(&c.Topic), []settings.Setting{
		settings.Row("group", &c.Group, "notify-sender",
			"`name` of the consumer group; senders with the same one share the messages", settings.Required),
		settings.Row("dead-letter-topic", &c.DeadLetter, "",
			"`topic` that gets the messages that are skipped; empty: they are only logged", settings.Check(differs)),

		settings.Row("webhook", &c.Webhook, "",
			"`URL` that every message is posted to; empty: messages are only logged", settings.Check(httpURL)),
		settings.Row("webhook-token", &c.WebhookToken, "", "`secret` to send with it as Authorization: Bearer"),
		settings.Row("webhook-timeout", &c.WebhookTimeout, 5*time.Second,
			"longest wait for an answer of the webhook", settings.Positive),
		settings.Row("webhook-attempts", &c.WebhookAttempts, 5,
			"attempts per message; then it goes to --dead-letter-topic or, without one, is tried again until it "+
				"succeeds", settings.AtLeast(1)),
		settings.Row("webhook-backoff", &c.WebhookBackoff, 200*time.Millisecond,
			"wait before the second attempt; it doubles, up to 5 s", settings.Positive),

		settings.Row("start-wait", &c.StartWait, time.Minute, "longest wait at start for Kafka"),
	}, c.Log.Rows())}
}

// httpURL refuses what is neither empty nor an http or https URL. The error does not
// quote it: there may be a secret in it.
func httpURL(v string) error {
	if v == "" {
		return nil
	}
	u, err := url.Parse(v)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return errors.New("want http://host/path or https://host/path")
	}
	return nil
}

// Unwise returns warnings of what is allowed and unwise.
func (c *common) Unwise() []string {
	if a := c.Topic.Access; a.Mechanism == kafka.Plain && !a.TLS {
		return []string{
			"--kafka-sasl plain without --kafka-tls: everybody on the way to the brokers can read the password"}
	}
	return nil
}

// topicRows are the settings of where messages are.
func topicRows(c *kafka.Topic) []settings.Setting {
	brokers := func(list []string) error {
		for _, b := range list {
			if err := settings.CheckAddress(b); err != nil {
				return err
			}
		}
		return nil
	}
	a := &c.Access
	login := func() bool {
		return a.Mechanism == "" || a.Username != "" && (a.Password == "") != (a.PasswordFile == "")
	}
	byTLS := settings.NeedsTLS(&a.TLS, "--kafka-tls")
	bySASL := settings.Needs(func() bool { return a.Mechanism != "" },
		"needs --kafka-sasl: without it nobody logs in")
	return []settings.Setting{
		settings.Row("kafka", &c.Brokers, []string{"localhost:9092"},
			"`host:port` of a Kafka broker; may be repeated", settings.Check(brokers)),
		settings.Row("kafka-tls", &a.TLS, false, "talk TLS to the brokers"),
		settings.Row("kafka-tls-ca", &a.Files.CA, "",
			"`file` with the certificate authorities that are trusted for the brokers (default: the system's); "+
				"read again for each connection, as the next two are", byTLS),
		settings.Row("kafka-tls-cert", &a.Files.Cert, "",
			"certificate chain `file` to show to the brokers", byTLS,
			settings.Pair(&a.Files.Cert, &a.Files.Key, "--kafka-tls-key")),
		settings.Row("kafka-tls-key", &a.Files.Key, "", "private key `file` of --kafka-tls-cert", byTLS),
		settings.Row("kafka-tls-server-name", &a.Files.ServerName, "",
			"`name` that the brokers' certificates must have (default: the host of each)", byTLS),
		settings.Row("kafka-sasl", &a.Mechanism, "",
			"how to log in to the brokers: plain, scram-sha-256 or scram-sha-512; empty: not at all",
			settings.OneOf("", kafka.Plain, kafka.ScramSHA256, kafka.ScramSHA512),
			settings.Want(login, "needs --kafka-username, and either --kafka-password or --kafka-password-file")),
		settings.Row("kafka-username", &a.Username, "", "`name` to log in with", bySASL),
		settings.Row("kafka-password", &a.Password, "",
			"`secret` that goes with it; better in the environment than in a flag, which other users of the "+
				"machine can see", bySASL, settings.Secret),
		settings.Row("kafka-password-file", &a.PasswordFile, "",
			"`file` with the password instead; read again for each connection", bySASL),
		settings.Row("topic", &c.Name, "sms-outbound",
			"`name` of the topic with the messages; made at start if it does not exist", settings.Required),
		settings.Row("topic-partitions", &c.Partitions, 4,
			"partitions of the topic if it is made", settings.Between(1, 1000)),
		settings.Row("topic-replicas", &c.Replicas, 1, "replicas of the topic if it is made", settings.Between(1, 10)),
	}
}
