// Package config is the server's own configuration: one table of settings, each
// filled from its flag, its environment variable (HEADGATE_*), its key in a YAML
// file or its default, in this order of precedence. Rules are not
// configuration; they belong to package descriptors.
//
// A new setting is a field of [Config] and a row of the table below it.
package config

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/internal/kit/certs"
	"github.com/headgate-rls/headgate/internal/wire/accesslog"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/policies"
	"github.com/headgate-rls/headgate/ratelimit"
	"github.com/headgate-rls/headgate/ratelimit/leases"
)

// Config has every setting of `headgate serve`. What each means is in its row of
// the table.
type Config struct {
	File     string
	Warnings []string // about what was read and has no effect

	Rules          []string
	RulesErrors    string
	RulesFiles     string
	RulesEmpty     bool
	Example        bool
	MergeDomains   bool
	XDS            XDS
	BackendMigrate bool
	Backend        string

	GRPC      string
	Transport string
	Services  string
	HTTP      string
	Debug     string
	Metrics   string

	MetricsPath      string
	ReferenceMetrics bool
	NearLimitRatio   string

	Charge         string
	Overflow       string
	CalendarMonths bool
	OnBackendError string
	OnOverload     string
	Replicas       int
	BackendTimeout time.Duration
	DeadlineMargin time.Duration
	ShadowMode     bool
	QuotaMode      bool

	ResponseHeaders bool
	LimitHeader     string
	RemainingHeader string
	ResetHeader     string
	RetryHeader     string
	IETFHeaders     bool
	RuleHeader      string
	DynamicMetadata bool
	UnitMultiplier  bool

	LeaseTTL    time.Duration
	LeaseSecret string
	OwnerGrace  time.Duration
	LeaseKeys   []string
	AccessLogs  int
	// AccessLogsPerPeer is 0 for a quarter of AccessLogs.
	AccessLogsPerPeer int

	SocketMode string

	TLSCert    string
	TLSKey     string
	ClientCA   string
	ClientAuth string
	ClientSANs []string

	MaxConnectionAge      time.Duration
	MaxConnectionAgeGrace time.Duration
	Keepalive             time.Duration

	DrainDelay   time.Duration
	DrainTimeout time.Duration

	Policies Policies

	Slots Slots
	Admin Admin

	LogLevel  string
	LogFormat string
	// LogRefusals and LogKeys say what is logged of refused requests.
	LogRefusals int
	LogKeys     string
}

// Define declares a flag for every setting on fs, with its default, and
// returns the Config that they fill.
func Define(fs *pflag.FlagSet) *Config {
	c := new(Config)
	c.program().define(fs)
	return c
}

// Names returns the names of all settings, as flags have them, in order.
func Names() []string {
	names := new(Config).program().names()
	slices.Sort(names)
	return names
}

func (c *Config) program() program {
	return program{prefix: envPrefix, rows: c.table(), ignored: ignored, families: []family{{EnvName("admin-token") + "_", c.Admin.addToken}}}
}

// table returns every setting, in the order of the documentation.
func (c *Config) table() []setting {
	return slices.Concat(c.ruleSettings(), c.XDS.settings(func() bool { return c.XDS.Address == "" || len(c.Rules) == 0 && !c.Example }), c.listenerSettings(), c.decisionSettings(), c.answerSettings(), c.leaseSettings(),
		c.connectionSettings(), c.Policies.settings(), c.Slots.settings(&c.Admin), c.Admin.settings(), c.logSettings())
}

// SkipRules is the --rules-errors that starts without broken files.
const SkipRules = "skip"

// HashedKeys is the --log-keys that tells no values of requests.
const HashedKeys = "hashed"

// The --rules-files that read more than *.yaml and *.yml.
const (
	AllFiles = "all"
	DotFiles = "dot"
)

// IfGiven is the --grpc-client-auth that verifies certificates and demands none.
const IfGiven = "if-given"

func (c *Config) ruleSettings() []setting {
	noRules := func() bool { return !c.Example || len(c.Rules) == 0 }
	return []setting{
		row("config", &c.File, "", nil, "YAML `file` with settings, by the names of these flags"),
		row("rules", &c.Rules, nil, nil, "`file or directory` with rules; may be repeated (default ./rules if it exists)"),
		row("rules-errors", &c.RulesErrors, "refuse", either("refuse", SkipRules),
			"what headgate does at start if a rules file has errors: refuse to start, or skip the file's domains, whose requests are then not limited until the file is repaired").among("refuse", SkipRules),
		row("rules-files", &c.RulesFiles, "yaml", oneOf("yaml", AllFiles, DotFiles),
			"which files of the directories in --rules to read: yaml (*.yaml and *.yml), all (every name that does not begin with a dot), or dot (also names with one dot)").among("yaml", AllFiles, DotFiles),
		row("rules-empty", &c.RulesEmpty, false, nil, "accept directories in --rules without any file: they limit nothing"),
		row("example", &c.Example, false, require[bool](noRules, "serves the built-in rules and not those of --rules: give one of the two"),
			"serve the rules of a built-in example, to try headgate without --rules"),
		row("merge-domains", &c.MergeDomains, false, nil, "allow several files to have rules of the same domain"),
		row("backend", &c.Backend, "memory://", nil, "`URL` of the store that keeps the counters: memory://, redis://…, postgres://…, mysql://…, sqlite:FILE; see docs/backends.md").hiding(inURL),
		row("backend-migrate", &c.BackendMigrate, true, nil, "migrate the schema of a backend in a database at start; if disabled, run headgate migrate"),
	}
}

func (c *Config) listenerSettings() []setting {
	notEmpty := func(v string) error {
		if v == "" {
			return errors.New("must not be empty: it is the service itself")
		}
		return nil
	}
	return []setting{
		listener("grpc", &c.GRPC, ":8081", notEmpty, "`address` of the gRPC service: host:port, unix:PATH or unix:@NAME"),
		row("transport", &c.Transport, "unary", either("unary", "grpc"), "implementation that serves the gRPC address: unary (headgate's own, several times cheaper) or grpc (grpc-go)").among("unary", "grpc"),
		listener("services", &c.Services, ":8082", nil, "`address` of the gRPC services that the unary transport does not serve: access log, health Watch, reflection; empty: disabled"),
		listener("http", &c.HTTP, ":8080", nil, "`address` of /json, /healthcheck and /readyz; empty: disabled"),
		listener("debug", &c.Debug, "127.0.0.1:6070", nil, "`address` of /metrics, /rlconfig and /debug/pprof/; empty: disabled"),
		listener("metrics", &c.Metrics, "", nil, "`address` of /metrics alone; empty: the --debug address serves it"),
		row("metrics-path", &c.MetricsPath, "/metrics", metricsPath, "`path` of the metrics"),
		row("reference-metrics", &c.ReferenceMetrics, false, nil, "also serve the metrics of envoyproxy/ratelimit, by its names (docs/migrate.md), and no OpenMetrics, which would rename them"),
		row("near-limit-ratio", &c.NearLimitRatio, "0.8", ratio, "part of a limit from which hits count as near it, in the metrics of --reference-metrics"),
	}
}

func (c *Config) decisionSettings() []setting {
	return []setting{
		row("calendar-months", &c.CalendarMonths, false, nil,
			"limits per month count months of the calendar in UTC, if the rule has no calendar; else a month is 30 days"),
		row("overflow", &c.Overflow, "refuse", parsed(descriptors.ParseOverflow, "must be refuse, saturate or debt, not %q"),
			"what a limit takes of a cost that does not fit, if the rule has no overflow: refuse (nothing), saturate (what is left) or debt (more, which is paid back)").among(descriptors.Overflows()...),
		row("charge", &c.Charge, "all_or_nothing", parsed(descriptors.ParseCharge, "must be all_or_nothing or each, not %q"),
			"which limits a refused request is charged to, if the rule has no charge: all_or_nothing (none) or each (those that have room)").among("all_or_nothing", "each"),
		row("on-backend-error", &c.OnBackendError, "allow", parsed(descriptors.ParseFailurePolicy, "must be allow, deny, error or local, not %q"),
			"the answer when the backend fails, if the rule has no on_backend_error: allow, deny, error or local").among("allow", "deny", "error", "local"),
		row("on-overload", &c.OnOverload, "deny", parsed(descriptors.ParseOverloadPolicy, "must be deny, allow or error, not %q"),
			"the answer to requests above the capacity of the backend, if the rule has no on_overload: deny, allow or error").among("deny", "allow", "error"),
		row("replicas", &c.Replicas, 1, atLeastOne, "number of processes that share the backend; with on_backend_error: local each takes its share of a limit"),
		row("backend-timeout", &c.BackendTimeout, ratelimit.DefaultTimeout, positive, "longest wait for the backend when the caller sets no deadline"),
		row("deadline-margin", &c.DeadlineMargin, 2*time.Millisecond, nil, "time before the caller's deadline at which headgate answers: this, or a tenth of the deadline if that is more"),
		row("shadow-mode", &c.ShadowMode, false, nil, "refuse nothing; statuses and metrics still say what would have been refused"),
		row("quota-mode", &c.QuotaMode, false, nil, "treat every rule as if it had quota_mode"),
	}
}

func (c *Config) answerSettings() []setting {
	return []setting{
		row("response-headers", &c.ResponseHeaders, false, nil, "send the three RateLimit headers with every response"),
		row("limit-header", &c.LimitHeader, "RateLimit-Limit", headerName, "`name` of the header with the limit"),
		row("remaining-header", &c.RemainingHeader, "RateLimit-Remaining", headerName, "`name` of the header with the units that are left"),
		row("reset-header", &c.ResetHeader, "RateLimit-Reset", headerName, "`name` of the header with the seconds until the reset"),
		row("ietf-headers", &c.IETFHeaders, false, nil, "send RateLimit and RateLimit-Policy, as draft-ietf-httpapi-ratelimit-headers-10 has them, with every response"),
		row("retry-after-header", &c.RetryHeader, "Retry-After", headerName, "`name` of the header of refusals with the time to retry after; empty: disabled"),
		row("rule-header", &c.RuleHeader, "", headerName, "`name` of a header, such as x-headgate-rule, that tells clients which rule refused; empty: disabled"),
		row("dynamic-metadata", &c.DynamicMetadata, false, nil, "add domain, descriptors and hits to the response's dynamic metadata"),
		row("unit-multiplier", &c.UnitMultiplier, false, nil, "report windows other than one second, minute, hour or day by unit_multiplier; needs Envoy 1.40 everywhere"),
	}
}

func (c *Config) leaseSettings() []setting {
	ttl := func(d time.Duration) error {
		if d < limit.MinWindow || d > limit.MaxWindow {
			return fmt.Errorf("%v is outside %v to ten years", d, limit.MinWindow)
		}
		return nil
	}
	grace := func(d time.Duration) error {
		if d < 100*time.Millisecond || d > time.Hour {
			return fmt.Errorf("%v is outside 100ms to 1h", d)
		}
		return nil
	}
	perPeer := func(n int) error {
		if n < 0 || n > c.AccessLogs {
			return fmt.Errorf("%d is outside 0 to --access-logs (%d)", n, c.AccessLogs)
		}
		return nil
	}
	return []setting{
		row("lease-ttl", &c.LeaseTTL, descriptors.DefaultLeaseTTL, ttl,
			"time after which the lease of a request in flight expires if nobody reports its end, for rules without lease_ttl; IMPOSTER_RATE_LIMITER_TTL, in seconds, sets the same").
			alsoInSeconds("imposter.rate.limiter.ttl"),
		row("lease-secret", &c.LeaseSecret, "", nil, "`secret` that signs leases; replicas need the same one (default: a random one that the store keeps)").hiding(whole),
		row("lease-key", &c.LeaseKeys, []string{ratelimit.DefaultLeaseKey}, nil,
			"`name` of leases in Envoy's dynamic metadata, where the access log finds them; may be repeated: each filter of a chain needs its own"),
		row("owner-grace", &c.OwnerGrace, leases.DefaultOwnerGrace, grace, "time after which a proxy that no replica is connected to counts as gone, and its requests as ended"),
		row("access-logs", &c.AccessLogs, accesslog.DefaultMaxStreams, between(1, 1<<20), "most access logs that may be connected; each worker thread of an Envoy has one"),
		row("access-logs-per-peer", &c.AccessLogsPerPeer, 0, perPeer,
			"most access logs of one peer (a client certificate's identity, else a host) that may be connected; 0: a quarter of --access-logs"),
	}
}

func (c *Config) connectionSettings() []setting {
	keyPair := func() bool { return (c.TLSCert == "") == (c.TLSKey == "") }
	caHasCert := func() bool { return c.ClientCA == "" || c.TLSCert != "" }
	sanHasCA := func() bool { return len(c.ClientSANs) == 0 || c.ClientCA != "" }
	authHasCA := func() bool { return c.ClientAuth != IfGiven || c.ClientCA != "" }
	sans := func(names []string) error {
		_, err := certs.Parse(names)
		return err
	}
	mode := func(string) error {
		_, err := c.Permissions()
		return err
	}
	return []setting{
		row("socket-mode", &c.SocketMode, "", mode, "permissions of Unix sockets in octal, such as 0660 (default: from the umask)"),

		row("grpc-tls-cert", &c.TLSCert, "", require[string](keyPair, "needs --grpc-tls-key, and the other way round"),
			"certificate chain `file` of the gRPC service; reloaded when it changes"),
		row("grpc-tls-key", &c.TLSKey, "", nil, "private key `file` of the gRPC service"),
		row("grpc-client-ca", &c.ClientCA, "", require[string](caHasCert, "needs --grpc-tls-cert and --grpc-tls-key"),
			"`file` with the certificate authorities whose clients may call; others are rejected"),
		row("grpc-client-auth", &c.ClientAuth, "required", all(either("required", IfGiven), require[string](authHasCA, "needs --grpc-client-ca")),
			"whether clients need a certificate of --grpc-client-ca: required, or if-given: those that show one must have a good one").among("required", IfGiven),
		row("grpc-client-san", &c.ClientSANs, nil, all(require[[]string](sanHasCA, "needs --grpc-client-ca: without it clients show no certificate"), sans),
			"`name` that a client's certificate must have: a DNS name, or spiffe://DOMAIN/PATH, where * stands for one label or segment; may be repeated: one of them is enough (default: any)"),

		row("grpc-max-connection-age", &c.MaxConnectionAge, 24*time.Hour, nil, "age at which connections are asked to close"),
		row("grpc-max-connection-age-grace", &c.MaxConnectionAgeGrace, time.Hour, nil, "time that such connections then have to finish their calls"),
		row("grpc-keepalive", &c.Keepalive, time.Minute, nil, "idle time after which a connection is probed"),

		row("drain-delay", &c.DrainDelay, 5*time.Second, nil, "time between failing health checks and closing listeners on SIGTERM"),
		row("drain-timeout", &c.DrainTimeout, 15*time.Second, nil, "longest time for calls in flight to finish after that"),
	}
}

func logLevel(v string) error {
	if _, ok := levels[strings.ToLower(v)]; !ok {
		return fmt.Errorf("must be debug, info, warn or error, not %q", v)
	}
	return nil
}

func (c *Config) logSettings() []setting {
	return []setting{
		row("log-level", &c.LogLevel, "info", logLevel, "debug, info, warn or error").among("debug", "info", "warn", "error"),
		row("log-format", &c.LogFormat, "text", either("text", "json"), "text or json").among("text", "json"),
		row("log-refusals", &c.LogRefusals, 0, between(0, 1000),
			"most refused requests that are logged in a second, with the rule, the key and the caller's x-request-id; 0: none, except 10 at --log-level debug"),
		row("log-keys", &c.LogKeys, HashedKeys, either(HashedKeys, "plain"), "how keys of requests are logged: hashed, or plain").among(HashedKeys, "plain"),
	}
}

// Decisions returns what these settings say about a [ratelimit.Service].
func (c *Config) Decisions() ratelimit.Config {
	h := ratelimit.Headers{IETF: c.IETFHeaders, RetryAfter: c.RetryHeader, Rule: c.RuleHeader}
	if c.ResponseHeaders {
		h.Limit, h.Remaining, h.Reset = c.LimitHeader, c.RemainingHeader, c.ResetHeader
	}
	charge, _ := descriptors.ParseCharge(c.Charge) // checked, as the others
	overflow, _ := descriptors.ParseOverflow(c.Overflow)
	onError, _ := descriptors.ParseFailurePolicy(c.OnBackendError)
	onOverload, _ := descriptors.ParseOverloadPolicy(c.OnOverload)
	near, _ := strconv.ParseFloat(c.NearLimitRatio, 32)
	asked, _ := policies.ParsePatterns(c.Policies.Metrics)
	return ratelimit.Config{
		Charge: charge, Overflow: overflow, CalendarMonths: c.CalendarMonths, OnBackendError: onError, OnOverload: onOverload,
		Timeout: c.BackendTimeout, Margin: c.DeadlineMargin,
		Headers: h, Metadata: c.DynamicMetadata, UnitMultipliers: c.UnitMultiplier,
		ShadowMode: c.ShadowMode, QuotaMode: c.QuotaMode, OwnerGrace: c.OwnerGrace, NearLimit: float32(near),
		PolicyMetrics: asked, LogRefusals: c.LogRefusals, LogKeys: c.LogKeys != HashedKeys,
	}
}

// Permissions returns --socket-mode, zero if it is not set.
func (c *Config) Permissions() (os.FileMode, error) {
	if c.SocketMode == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(c.SocketMode, 8, 32)
	if err != nil || n == 0 || n > 0o777 {
		return 0, fmt.Errorf("%q is not a mode from 0001 to 0777 in octal", c.SocketMode)
	}
	return os.FileMode(n), nil
}
