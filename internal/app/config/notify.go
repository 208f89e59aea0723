package config

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/spf13/pflag"
)

// NotifyGateway has the settings of notify-gateway, which stands beside headgate.
type NotifyGateway struct {
	File     string
	Warnings []string

	HTTP  string
	Debug string

	Database string
	Username string
	Password string
	PoolMin  int
	PoolMax  int
	Migrate  bool

	Kafka NotifyKafka

	Delivery       string
	OutboxMax      int
	PublishTimeout time.Duration
	PublishLinger  time.Duration

	Redis        string
	RedisTimeout time.Duration
	RedisMaxTTL  time.Duration
	SyncDelay    time.Duration

	ConfigToken    string
	RequestTimeout time.Duration
	MaxRequests    int
	StartWait      time.Duration
	DrainDelay     time.Duration
	DrainTimeout   time.Duration

	Log Log
}

// NotifySender has the settings of notify-sender.
type NotifySender struct {
	File     string
	Warnings []string

	HTTP string

	Kafka      NotifyKafka
	Group      string
	DeadLetter string

	Webhook         string
	WebhookToken    string
	WebhookTimeout  time.Duration
	WebhookAttempts int
	WebhookBackoff  time.Duration

	StartWait time.Duration

	Log Log
}

// NotifyKafka says where the topic is.
type NotifyKafka struct {
	Brokers    []string
	Topic      string
	Partitions int
	Replicas   int

	TLS        bool
	TLSCA      string
	TLSCert    string
	TLSKey     string
	ServerName string

	SASL         string // plain, scram-sha-256, scram-sha-512; empty: none
	Username     string
	Password     string
	PasswordFile string
}

// Log says what is logged, and how.
type Log struct{ Level, Format string }

// The ways in which accepted messages get to Kafka.
const (
	DeliverDirect = "direct"
	DeliverOutbox = "outbox"
)

// DefineNotifyGateway declares a flag for every setting of notify-gateway.
func DefineNotifyGateway(fs *pflag.FlagSet) *NotifyGateway {
	c := new(NotifyGateway)
	c.program().define(fs)
	return c
}

// DefineNotifySender declares a flag for every setting of notify-sender.
func DefineNotifySender(fs *pflag.FlagSet) *NotifySender {
	c := new(NotifySender)
	c.program().define(fs)
	return c
}

// Resolve is [Resolve] for notify-gateway.
func (c *NotifyGateway) Resolve(fs *pflag.FlagSet, environ []string) error {
	err := c.program().resolve(fs, environ, &c.File, &c.Warnings, nil)
	if c.ConfigToken == "" && reachable(c.HTTP) {
		c.Warnings = append(c.Warnings, "other machines can reach --http "+c.HTTP+
			", and without --config-token everybody who does can change every user's limit")
	}
	c.Warnings = append(c.Warnings, c.Kafka.warnings()...)
	return err
}

// Resolve is [Resolve] for notify-sender.
func (c *NotifySender) Resolve(fs *pflag.FlagSet, environ []string) error {
	err := c.program().resolve(fs, environ, &c.File, &c.Warnings, nil)
	c.Warnings = append(c.Warnings, c.Kafka.warnings()...)
	return err
}

// NotifyTables renders the settings of both programs as Markdown tables.
func NotifyTables() (gateway, sender string) {
	return new(NotifyGateway).program().markdown(), new(NotifySender).program().markdown()
}

// Logger returns the log of notify-gateway.
func (c *NotifyGateway) Logger(out io.Writer) *slog.Logger { return c.Log.Logger(out, c.Warnings) }

// Logger returns the log of notify-sender.
func (c *NotifySender) Logger(out io.Writer) *slog.Logger { return c.Log.Logger(out, c.Warnings) }

func (c *NotifyGateway) program() program {
	token := func(v string) error {
		if v != "" && len(v) < minToken {
			return fmt.Errorf("has %d characters, want at least %d; `openssl rand -hex 32` makes one", len(v), minToken)
		}
		return nil
	}
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
	rows := []setting{
		row("config", &c.File, "", nil, "YAML `file` with settings, by the names of these flags"),
		listener("http", &c.HTTP, ":8080", required, "`address` of /api/config, /api/send, /openapi.json, /healthz and /readyz"),
		listener("debug", &c.Debug, "127.0.0.1:6071", nil, "`address` of /metrics and /debug/pprof/; empty: disabled"),

		row("database", &c.Database, "", required, "`URL` of the PostgreSQL database: postgres://user:password@host:5432/name; required"),
		row("database-username", &c.Username, "", nil, "`name` to log into the database with, if the URL has none"),
		row("database-password", &c.Password, "", nil, "`secret` that goes with it"),
		row("pool-min", &c.PoolMin, defaultPoolMin, nil, "connections to the database that are kept open"),
		row("pool-max", &c.PoolMax, defaultPoolMax, checkPool(&c.PoolMin, &c.PoolMax, "--pool-min"), "most connections to the database"),
		row("migrate", &c.Migrate, true, nil, "migrate the database's schema at start"),
	}
	rows = append(rows, c.Kafka.settings()...)
	rows = append(rows,
		row("delivery", &c.Delivery, DeliverDirect, oneOf(DeliverDirect, DeliverOutbox),
			"how accepted messages get to Kafka: direct (published before the answer) or outbox (written to the database with the count, and published afterwards)"),
		row("publish-timeout", &c.PublishTimeout, 2*time.Second, all(positive, publish), "longest wait for Kafka to confirm a message"),
		row("publish-linger", &c.PublishLinger, 2*time.Millisecond, linger,
			"how long a message waits for others, to be sent to Kafka together with them; 0: not at all"),
		row("outbox-max", &c.OutboxMax, 1_000_000, atLeastOne, "most messages that may wait in the outbox; beyond it sends get 503"),

		row("redis", &c.Redis, "", nil, "`URL` of the Redis in front of the database: redis://…, rediss://…, redis+sentinel://…, redis+cluster://…; empty: the database decides each send"),
		row("redis-timeout", &c.RedisTimeout, 200*time.Millisecond, positive, "longest wait for Redis, after which the database decides"),
		row("redis-max-ttl", &c.RedisMaxTTL, 24*time.Hour, atLeastSecond, "longest time that a user's hash may stay in Redis; at most the rest of the window"),
		row("sync-delay", &c.SyncDelay, 100*time.Millisecond, atMostMinute, "longest time after which current_count in the database follows the count in Redis"),

		row("config-token", &c.ConfigToken, "", token, "`secret` that requests for /api/config send as Authorization: Bearer; empty: none is needed"),
		row("request-timeout", &c.RequestTimeout, 5*time.Second, positive, "longest time to answer a request"),
		row("max-requests", &c.MaxRequests, 2000, atLeastOne, "most requests that are answered at the same time; beyond it they get 503"),
		row("start-wait", &c.StartWait, time.Minute, nil, "longest wait at start for the database, Kafka and Redis; without Redis the gateway starts all the same"),
		row("drain-delay", &c.DrainDelay, 0, nil, "time between failing /readyz and closing listeners on SIGTERM"),
		row("drain-timeout", &c.DrainTimeout, 15*time.Second, nil, "longest time for requests in flight to finish after that"),
	)
	return program{prefix: "NOTIFY_GATEWAY", rows: append(rows, c.Log.settings()...)}
}

func (c *NotifySender) program() program {
	differs := func(v string) error {
		if v != "" && v == c.Kafka.Topic {
			return errors.New("is the --topic itself: skipped messages would come back for ever")
		}
		return nil
	}
	rows := []setting{
		row("config", &c.File, "", nil, "YAML `file` with settings, by the names of these flags"),
		listener("http", &c.HTTP, ":8081", nil, "`address` of /healthz, /readyz and /metrics; empty: disabled"),
	}
	rows = append(rows, c.Kafka.settings()...)
	rows = append(rows,
		row("group", &c.Group, "notify-sender", required, "`name` of the consumer group; senders with the same one share the messages"),
		row("dead-letter-topic", &c.DeadLetter, "", differs, "`topic` that gets the messages that are skipped; empty: they are only logged"),

		row("webhook", &c.Webhook, "", httpURL, "`URL` that every message is posted to; empty: messages are only logged"),
		row("webhook-token", &c.WebhookToken, "", nil, "`secret` to send with it as Authorization: Bearer"),
		row("webhook-timeout", &c.WebhookTimeout, 5*time.Second, positive, "longest wait for an answer of the webhook"),
		row("webhook-attempts", &c.WebhookAttempts, 5, atLeastOne,
			"attempts per message; then it goes to --dead-letter-topic or, without one, is tried again until it succeeds"),
		row("webhook-backoff", &c.WebhookBackoff, 200*time.Millisecond, positive, "wait before the second attempt; it doubles, up to 5 s"),

		row("start-wait", &c.StartWait, time.Minute, nil, "longest wait at start for Kafka"),
	)
	return program{prefix: "NOTIFY_SENDER", rows: append(rows, c.Log.settings()...)}
}

// SASLPlain is the --kafka-sasl that sends the password itself.
const SASLPlain = "plain"

// warnings name what is allowed and unwise.
func (c *NotifyKafka) warnings() []string {
	if c.SASL == SASLPlain && !c.TLS {
		return []string{"--kafka-sasl plain without --kafka-tls: everybody on the way to the brokers can read the password"}
	}
	return nil
}

func (c *NotifyKafka) settings() []setting {
	brokers := func(list []string) error {
		for _, b := range list {
			if err := CheckAddress(b); err != nil {
				return err
			}
		}
		return nil
	}
	byTLS := require[string](func() bool { return c.TLS || c.TLSCert+c.TLSKey+c.TLSCA+c.ServerName == "" }, "needs --kafka-tls: without it nothing is encrypted")
	keyPair := require[string](func() bool { return (c.TLSCert == "") == (c.TLSKey == "") }, "needs --kafka-tls-key, and the other way round")
	bySASL := require[string](func() bool { return c.SASL != "" || c.Username+c.Password+c.PasswordFile == "" }, "needs --kafka-sasl: without it nobody logs in")
	login := func(v string) error {
		if v == "" {
			return nil
		}
		if err := oneOf(SASLPlain, "scram-sha-256", "scram-sha-512")(v); err != nil {
			return err
		}
		if c.Username == "" || (c.Password == "") == (c.PasswordFile == "") {
			return errors.New("needs --kafka-username, and either --kafka-password or --kafka-password-file")
		}
		return nil
	}
	return []setting{
		row("kafka", &c.Brokers, []string{"localhost:9092"}, brokers, "`host:port` of a Kafka broker; may be repeated"),
		row("kafka-tls", &c.TLS, false, nil, "talk TLS to the brokers"),
		row("kafka-tls-ca", &c.TLSCA, "", byTLS, "`file` with the certificate authorities that are trusted for the brokers (default: the system's); read again for each connection, as the next two are"),
		row("kafka-tls-cert", &c.TLSCert, "", all(byTLS, keyPair), "certificate chain `file` to show to the brokers"),
		row("kafka-tls-key", &c.TLSKey, "", byTLS, "private key `file` of --kafka-tls-cert"),
		row("kafka-tls-server-name", &c.ServerName, "", byTLS, "`name` that the brokers' certificates must have (default: the host of each)"),
		row("kafka-sasl", &c.SASL, "", login, "how to log in to the brokers: plain, scram-sha-256 or scram-sha-512; empty: not at all"),
		row("kafka-username", &c.Username, "", bySASL, "`name` to log in with"),
		row("kafka-password", &c.Password, "", bySASL, "`secret` that goes with it; better in the environment than in a flag, which other users of the machine can see").hiding(whole),
		row("kafka-password-file", &c.PasswordFile, "", bySASL, "`file` with the password instead; read again for each connection"),
		row("topic", &c.Topic, "sms-outbound", required, "`name` of the topic with the messages; made at start if it does not exist"),
		row("topic-partitions", &c.Partitions, 4, between(1, 1000), "partitions of the topic if it is made"),
		row("topic-replicas", &c.Replicas, 1, between(1, 10), "replicas of the topic if it is made"),
	}
}

func (c *Log) settings() []setting {
	return []setting{
		row("log-level", &c.Level, "info", logLevel, "debug, info, warn or error"),
		row("log-format", &c.Format, "text", either("text", "json"), "text or json"),
	}
}

// Logger returns a logger as configured that writes to w, and logs the warnings.
func (c *Log) Logger(w io.Writer, warnings []string) *slog.Logger {
	return (&Config{LogLevel: c.Level, LogFormat: c.Format, Warnings: warnings}).Logger(w)
}
