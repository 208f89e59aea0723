package serve

import (
	"errors"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/headgate-rls/headgate/internal/kit/settings"
	"github.com/headgate-rls/headgate/notify/kafka"
)

// SenderSettings are those of notify-sender.
type SenderSettings struct {
	Common
	Group      string
	DeadLetter string

	Webhook         string
	WebhookToken    string
	WebhookTimeout  time.Duration
	WebhookAttempts int
	WebhookBackoff  time.Duration
}

// Common settings are those of both programs.
type Common struct {
	File      string
	HTTP      string
	Topic     kafka.Topic
	StartWait time.Duration
	settings.Log
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
	}, TopicRows(&c.Topic), []settings.Setting{
		settings.Row("group", &c.Group, "notify-sender",
			"`name` of the consumer group; senders with the same one share the messages", settings.Required),
		settings.Row("dead-letter-topic", &c.DeadLetter, "",
			"`topic` that gets the messages that are skipped; empty: they are only logged", settings.Check(differs)),

		settings.Row("webhook", &c.Webhook, "",
			"`URL` that every message is posted to; empty: messages are only logged", settings.Check(httpURL)),
		settings.Row("webhook-token", &c.WebhookToken, "", "`secret` to send with it as Authorization: Bearer",
			settings.Check(inHeader)),
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

// inHeader refuses what a header cannot carry, such as the line end of a file: no message could be sent.
func inHeader(v string) error {
	if strings.ContainsFunc(v, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return errors.New("must be visible ASCII without spaces or line ends")
	}
	return nil
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
func (c *Common) Unwise() []string {
	if a := c.Topic.Access; a.Mechanism == kafka.Plain && !a.TLS {
		return []string{
			"--kafka-sasl plain without --kafka-tls: everybody on the way to the brokers can read the password"}
	}
	return nil
}

// TopicRows are the settings of where messages are.
func TopicRows(c *kafka.Topic) []settings.Setting {
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
