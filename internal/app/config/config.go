package config

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/internal/app/capture"
	"github.com/headgate-rls/headgate/internal/kit/certs"
	"github.com/headgate-rls/headgate/internal/kit/settings"
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
	MissingDomain  string
	RulesFiles     string
	RulesEmpty     bool
	Example        bool
	MergeDomains   bool
	XDS            XDS
	BackendMigrate bool
	Backend        string
	PerSecond      string // the URL of a second store, or empty

	GRPC      string
	Transport string
	Services  string
	HTTP      string
	Debug     string
	// DebugHosts are names by which requests may address the debug port.
	DebugHosts []string
	Metrics    string

	MetricsPath      string
	ReferenceMetrics bool
	// ReferenceLocalCache has them say which refusals this process knew before.
	ReferenceLocalCache bool
	NearLimitRatio      string
	StatsD              StatsD

	Charge         string
	Overflow       string
	OnBackendError string
	// BackendRequired: the service needs an answer of the backend before it begins.
	BackendRequired bool
	OnOverload      string
	OnLaterFormat   string
	Replicas        int
	LocalShare      string
	BackendTimeout  time.Duration
	CallTimeout     time.Duration // of a caller without a deadline; 0: BackendTimeout

	// Limits has the rest of what says how requests are answered, as the engine has it; see [Config.Decisions].
	Limits ratelimit.Config
	// ResponseHeaders has answers bring the headers of Limits about the limit, its rest and its end.
	ResponseHeaders bool
	DynamicMetadata bool
	// RuleMetadata has refusals name their rule in dynamic metadata.
	RuleMetadata bool

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

	Capture   string
	Candidate Candidate

	Slots Slots
	Admin Admin

	Log settings.Log
	// LogKeys says what is logged of the keys of refused requests.
	LogKeys string
}

// Define declares a flag for every setting on fs, with its default, and
// returns the Config that they fill.
func Define(fs *pflag.FlagSet) *Config {
	c := new(Config)
	c.program().Define(fs)
	return c
}

// Settings is the table, for what shows or describes settings.
func Settings() settings.Program { return new(Config).program() }

func (c *Config) program() settings.Program {
	named := settings.Family{Prefix: settings.EnvName(Prefix, "admin-token") + "_", Read: c.Admin.addToken}
	return settings.Program{Prefix: Prefix, Rows: c.table(), Ignored: ignored, Family: named}
}

// Resolve fills every flag of fs that the command line did not set, as [settings.Program.Resolve]
// does, last by a source of values unless that is nil, and checks the result. What has no effect is added to
// c.Warnings.
func Resolve(fs *pflag.FlagSet, c *Config, environ []string, last settings.Source) error {
	warnings, err := c.program().Resolve(fs, environ, last)
	err = errors.Join(err, checkForeign(settings.Environment(environ), c.Backend))
	// Ports that let callers around a guard of others.
	if c.ClientCA != "" && c.ClientAuth != IfGiven && settings.Reachable(c.HTTP) {
		warnings = append(warnings, "--grpc-client-ca guards the gRPC ports, but /json at --http "+c.HTTP+
			" decides for every caller without a certificate: bind it to 127.0.0.1, or close it with --http ''")
	}
	c.Warnings = append(c.Warnings, warnings...)
	return err
}

// Logger returns a logger as configured that writes to w, and logs c.Warnings.
func (c *Config) Logger(w io.Writer) *slog.Logger { return c.Log.Logger(w, c.Warnings) }

// table returns every setting, in the order of the documentation.
func (c *Config) table() []settings.Setting {
	return slices.Concat(
		settings.Group("Rules and their store", c.ruleSettings()),
		settings.Group("Rules by xDS", c.xdsSettings()),
		settings.Group("Addresses", c.listenerSettings(), c.StatsD.settings(&c.ReferenceMetrics)),
		settings.Group("What is decided", c.decisionSettings()),
		settings.Group("What answers have", c.answerSettings()),
		settings.Group("Requests in flight", c.leaseSettings()),
		settings.Group("Connections and the end", c.connectionSettings()),
		settings.Group("Policies", built(c.Policies.settings())),
		settings.Group("Slots", built(c.Slots.settings(&c.Admin))),
		settings.Group("Admin API", c.Admin.settings(), built(c.Admin.jwtSettings())),
		settings.Group("Log", c.Log.Rows(), c.refusalSettings()),
		settings.Group("Changes of rules", c.captureSettings(), built(c.candidateSettings())))
}

// DefaultRules is what is served where no setting names rules.
const DefaultRules = "rules"

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

func (c *Config) ruleSettings() []settings.Setting {
	noRules := func() bool { return !c.Example || len(c.Rules) == 0 }
	return []settings.Setting{
		settings.Config(&c.File),
		settings.Row("rules", &c.Rules, nil,
			"`file or directory` with rules; may be repeated (default ./rules if it exists). Files of DIR=shop,shop-* may "+
				"have these domains only, and no other file may have them"),
		settings.Row("rules-errors", &c.RulesErrors, "refuse",
			"what headgate does at start if a rules file has errors: refuse to start, or skip the file's domains until "+
				"the file is repaired (see --missing-domain)", settings.OneOf("refuse", SkipRules)),
		settings.Row("missing-domain", &c.MissingDomain, "",
			"requests of a domain that has no rules because of errors in a file: allow does not limit them, deny refuses "+
				"them; empty: deny where --rules lists the domains of the file, else allow. deny refuses all domains without "+
				"rules while the domain of a file cannot be read", settings.OneOf("", "allow", "deny")),
		settings.Row("rules-files", &c.RulesFiles, "yaml",
			"which files of the directories in --rules to read: yaml (*.yaml and *.yml), all (every name that does "+
				"not begin with a dot), or dot (also names with one dot)", settings.OneOf("yaml", AllFiles, DotFiles)),
		settings.Row("rules-empty", &c.RulesEmpty, false,
			"accept directories in --rules without any file: they limit nothing"),
		settings.Row("example", &c.Example, false,
			"serve the rules of a built-in example, to try headgate without --rules",
			settings.Want(noRules, "serves the built-in rules and not those of --rules: give one of the two")),
		settings.Row("merge-domains", &c.MergeDomains, false, "allow several files to have rules of the same domain"),
		settings.Row("backend", &c.Backend, "memory://",
			"`URL` of the store that keeps the counters: memory://, redis://…, postgres://…, mysql://…, "+
				"sqlite:FILE; see docs/backends.md", settings.URLWithSecret),
		settings.Row("backend-per-second", &c.PerSecond, "",
			"`URL` of a second store of the same kind as --backend, which keeps fixed windows of one second; empty: "+
				"--backend keeps them", settings.URLWithSecret),
		settings.Row("backend-migrate", &c.BackendMigrate, true,
			"migrate the schema of a backend in a database at start; if disabled, run headgate migrate"),
	}
}

func (c *Config) xdsSettings() []settings.Setting {
	alone := func() bool { return c.XDS.Address == "" || len(c.Rules) == 0 && !c.Example }
	return c.XDS.settings(settings.Want(alone, "rules come from one place: give --xds, or --rules, or --example"))
}

func (c *Config) listenerSettings() []settings.Setting {
	given := func() bool { return c.GRPC != "" }
	return []settings.Setting{
		settings.Row("grpc", &c.GRPC, ":8081",
			"`address` of the gRPC service: host:port, unix:PATH or unix:@NAME", settings.Listens,
			settings.Want(given, "must not be empty: it is the service itself")),
		settings.Row("transport", &c.Transport, "unary",
			"implementation that serves the gRPC address: unary (headgate's own, several times cheaper) or grpc "+
				"(grpc-go)", settings.OneOf("unary", "grpc")),
		settings.Row("services", &c.Services, ":8082",
			"`address` of the gRPC services that the unary transport does not serve: access log, "+
				"reflection; empty: disabled", settings.Listens),
		settings.Row("http", &c.HTTP, ":8080",
			"`address` of /json, /healthcheck and /readyz; empty: disabled", settings.Listens),
		settings.Row("debug", &c.Debug, "127.0.0.1:6070",
			"`address` of /metrics, /rlconfig, /stats and /debug/pprof/, which / lists; empty: disabled",
			settings.Listens),
		settings.Row("debug-host", &c.DebugHosts, nil,
			"`name` by which requests may address the debug port, beside localhost and IP addresses; /metrics needs none; "+
				"may be repeated", settings.Check(hostNames)),
		settings.Row("metrics", &c.Metrics, "",
			"`address` of /metrics alone; empty: the --debug address serves it", settings.Listens),
		settings.Row("metrics-path", &c.MetricsPath, "/metrics", "`path` of the metrics", settings.Check(metricsPath)),
		settings.Row("reference-metrics", &c.ReferenceMetrics, false,
			"also serve the metrics of envoyproxy/ratelimit, by its names (docs/migrate.md), and no OpenMetrics, "+
				"which would rename them"),
		settings.Row("reference-local-cache", &c.ReferenceLocalCache, false,
			"also serve the metrics of the local cache of envoyproxy/ratelimit, about limits that this process knows to be "+
				"used up; needs --reference-answers"),
		settings.Row("near-limit-ratio", &c.NearLimitRatio, "0.8",
			"part of a limit from which hits count as near it, in the metrics of --reference-metrics", settings.Ratio),
	}
}

func (c *Config) decisionSettings() []settings.Setting {
	return []settings.Setting{
		settings.Row("calendar-months", &c.Limits.CalendarMonths, false,
			"limits per month count months of the calendar in UTC, if the rule has no calendar; else a month is 30 "+
				"days"),
		settings.Row("overflow", &c.Overflow, "refuse",
			"what a limit takes of a cost that does not fit, if the rule has no overflow: refuse (nothing), "+
				"saturate (what is left) or debt (more, which is paid back)", settings.OneOf(descriptors.Overflows()...)),
		settings.Row("charge", &c.Charge, "all_or_nothing",
			"which limits a refused request is charged to, if the rule has no charge: all_or_nothing (none) or "+
				"each (those that have room)", settings.OneOf("all_or_nothing", "each")),
		settings.Row("on-backend-error", &c.OnBackendError, ByStore,
			"the answer when the backend fails, if the rule has no on_backend_error: allow, deny, error, local, or "+
				"store (deny if a SQL database keeps the limits, else allow)",
			settings.OneOf(ByStore, "allow", "deny", "error", "local")),
		settings.Row("backend-required", &c.BackendRequired, false,
			"whether headgate opens the gRPC port, and health checks succeed, only after the backend has answered once"),
		settings.Row("on-overload", &c.OnOverload, "deny",
			"the answer to requests above the capacity of the backend, if the rule has no on_overload: deny, allow "+
				"or error", settings.OneOf("deny", "allow", "error")),
		settings.Row("on-later-format", &c.OnLaterFormat, "deny",
			"the answer where a later version of headgate has written a counter in a format that this one cannot read: "+
				"deny, or that of on_backend_error", settings.OneOf("deny", LaterByRule)),
		settings.Row("replicas", &c.Replicas, 1,
			"number of processes that share the backend; with on_backend_error: local each takes its share of a "+
				"limit", settings.AtLeast(1)),
		settings.Row("local-share", &c.LocalShare, "none",
			"how many units replicas take ahead from the backend, if the limit has no local_share: none, or auto (as "+
				"many as each key's traffic needs, 1 % of what is left at most)", settings.OneOf("none", "auto")),
		settings.Row("backend-timeout", &c.BackendTimeout, ratelimit.DefaultTimeout,
			"longest wait for the backend when the caller sets no deadline", settings.Positive),
		settings.Row("call-timeout", &c.CallTimeout, 0,
			"longest wait of a caller that sets no deadline, if it may be longer than --backend-timeout; 0: as that"),
		settings.Row("deadline-margin", &c.Limits.Margin, 2*time.Millisecond,
			"time before the caller's deadline at which headgate answers: this, or a tenth of the deadline if that "+
				"is more"),
		settings.Row("shadow-mode", &c.Limits.ShadowMode, false,
			"refuse nothing; statuses and metrics still say what would have been refused"),
		settings.Row("quota-mode", &c.Limits.QuotaMode, false, "treat every rule as if it had quota_mode"),
		settings.Row("reference-answers", &c.Limits.AsReference, false,
			"answer as envoyproxy/ratelimit does where headgate does otherwise by itself (docs/compatibility.md)"),
	}
}

func (c *Config) answerSettings() []settings.Setting {
	return []settings.Setting{
		settings.Row("response-headers", &c.ResponseHeaders, false,
			"send the three RateLimit headers with every response"),
		settings.Row("limit-header", &c.Limits.Headers.Limit, "RateLimit-Limit",
			"`name` of the header with the limit", settings.HeaderName),
		settings.Row("remaining-header", &c.Limits.Headers.Remaining, "RateLimit-Remaining",
			"`name` of the header with the units that are left", settings.HeaderName),
		settings.Row("reset-header", &c.Limits.Headers.Reset, "RateLimit-Reset",
			"`name` of the header with the seconds until the reset", settings.HeaderName),
		settings.Row("ietf-headers", &c.Limits.Headers.IETF, false,
			"send RateLimit and RateLimit-Policy, as draft-ietf-httpapi-ratelimit-headers-10 has them, with every "+
				"response"),
		settings.Row("retry-after-header", &c.Limits.Headers.RetryAfter, "Retry-After",
			"`name` of the header of refusals with the time to retry after; empty: disabled", settings.HeaderName),
		settings.Row("rule-header", &c.Limits.Headers.Rule, "",
			"`name` of a header, such as x-headgate-rule, that tells clients which rule refused; empty: disabled",
			settings.HeaderName),
		settings.Row("rule-metadata", &c.RuleMetadata, true,
			"say in the dynamic metadata of a refusal which rule refuses, as rule"),
		settings.Row("dynamic-metadata", &c.DynamicMetadata, false,
			"add domain, descriptors and hits to the response's dynamic metadata"),
		settings.Row("unit-multiplier", &c.Limits.UnitMultipliers, false,
			"report windows other than one second, minute, hour or day by unit_multiplier; needs Envoy 1.40 "+
				"everywhere"),
	}
}

// hostNames checks --debug-host.
func hostNames(names []string) error {
	for _, name := range names {
		if !hostName.MatchString(name) {
			return fmt.Errorf("%q is no host name, such as headgate.internal; a port does not belong to it", name)
		}
	}
	return nil
}

var hostName = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9_])?$`)

// leaseSecrets checks --lease-secret, whose parts are secrets.
func leaseSecrets(v string) error {
	secrets := strings.Fields(v)
	if len(secrets) > 2 || len(secrets) == 0 && v != "" {
		return fmt.Errorf("has %d secrets with spaces between them, want one, or two while it is replaced", len(secrets))
	}
	for _, s := range secrets {
		if err := settings.CheckToken(s); err != nil {
			return err
		}
	}
	return nil
}

func (c *Config) leaseSettings() []settings.Setting {
	ttl := func(d time.Duration) error {
		if d < limit.MinWindow || d > limit.MaxWindow {
			return fmt.Errorf("%v is outside %v to ten years", d, limit.MinWindow)
		}
		return nil
	}
	perPeer := func(n int) error {
		if n < 0 || n > c.AccessLogs {
			return fmt.Errorf("%d is outside 0 to --access-logs (%d)", n, c.AccessLogs)
		}
		return nil
	}
	return []settings.Setting{
		settings.Row("lease-ttl", &c.LeaseTTL, descriptors.DefaultLeaseTTL,
			"time after which the lease of a request in flight expires if nobody reports its end, for rules "+
				"without lease_ttl; IMPOSTER_RATE_LIMITER_TTL, in seconds, sets the same", settings.Check(ttl),
			settings.AlsoInSeconds("imposter.rate.limiter.ttl")),
		settings.Row("lease-secret", &c.LeaseSecret, "",
			"`secret` that signs leases, of at least 16 characters; replicas need the same one (default: a random one that "+
				"the store keeps); while it is replaced, two with a space between them: the first signs",
			settings.Secret, settings.Check(leaseSecrets)),
		settings.Row("lease-key", &c.LeaseKeys, []string{ratelimit.DefaultLeaseKey},
			"`name` of leases in Envoy's dynamic metadata, where the access log finds them; may be repeated: each "+
				"filter of a chain needs its own"),
		settings.Row("owner-grace", &c.OwnerGrace, leases.DefaultOwnerGrace,
			"time after which a proxy that no replica is connected to counts as gone, and its requests as ended",
			settings.Between(100*time.Millisecond, time.Hour)),
		settings.Row("access-logs", &c.AccessLogs, accesslog.DefaultMaxStreams,
			"most access logs that may be connected; each worker thread of an Envoy has one",
			settings.Between(1, 1<<20)),
		settings.Row("access-logs-per-peer", &c.AccessLogsPerPeer, 0,
			"most access logs of one peer (a client certificate's identity, else a host) that may be connected; 0: "+
				"a quarter of --access-logs", settings.Check(perPeer)),
	}
}

func (c *Config) connectionSettings() []settings.Setting {
	hasCert := func() bool { return c.TLSCert != "" }
	hasCA := func() bool { return c.ClientCA != "" }
	authHasCA := func() bool { return c.ClientAuth != IfGiven || c.ClientCA != "" }
	sans := func(names []string) error {
		_, err := certs.Parse(names)
		return err
	}
	mode := func(string) error {
		_, err := c.Permissions()
		return err
	}
	return []settings.Setting{
		settings.Row("socket-mode", &c.SocketMode, "",
			"permissions of Unix sockets in octal, such as 0660 (default: from the umask)", settings.Check(mode)),

		settings.Row("grpc-tls-cert", &c.TLSCert, "",
			"certificate chain `file` of the gRPC service; reloaded when it changes",
			settings.Pair(&c.TLSCert, &c.TLSKey, "--grpc-tls-key")),
		settings.Row("grpc-tls-key", &c.TLSKey, "", "private key `file` of the gRPC service"),
		settings.Row("grpc-client-ca", &c.ClientCA, "",
			"`file` with the certificate authorities whose clients may call; others are rejected",
			settings.Needs(hasCert, "needs --grpc-tls-cert and --grpc-tls-key")),
		settings.Row("grpc-client-auth", &c.ClientAuth, "required",
			"whether clients need a certificate of --grpc-client-ca: required, or if-given: those that show one "+
				"must have a good one", settings.OneOf("required", IfGiven),
			settings.Want(authHasCA, "needs --grpc-client-ca")),
		settings.Row("grpc-client-san", &c.ClientSANs, nil,
			"`name` that a client's certificate must have: a DNS name, or spiffe://DOMAIN/PATH, where * stands for "+
				"one label or segment; may be repeated: one of them is enough (default: any)",
			settings.Needs(hasCA, "needs --grpc-client-ca: without it clients show no certificate"),
			settings.Check(sans)),

		settings.Row("grpc-max-connection-age", &c.MaxConnectionAge, 24*time.Hour,
			"age at which connections are asked to close"),
		settings.Row("grpc-max-connection-age-grace", &c.MaxConnectionAgeGrace, time.Hour,
			"time that such connections then have to finish their calls"),
		settings.Row("grpc-keepalive", &c.Keepalive, time.Minute, "idle time after which a connection is probed"),

		settings.Row("drain-delay", &c.DrainDelay, 5*time.Second,
			"time between failing health checks and closing listeners on SIGTERM"),
		settings.Row("drain-timeout", &c.DrainTimeout, 15*time.Second,
			"longest time for calls in flight to finish after that"),
	}
}

func (c *Config) refusalSettings() []settings.Setting {
	return []settings.Setting{
		settings.Row("log-refusals", &c.Limits.LogRefusals, 0,
			"most refused requests that are logged in a second, with the rule, the key and the caller's "+
				"x-request-id; 0: none, except 10 at --log-level debug", settings.Between(0, 1000)),
		settings.Row("log-keys", &c.LogKeys, HashedKeys,
			"how keys of requests are logged: hashed, or plain", settings.OneOf(HashedKeys, "plain")),
	}
}

// A Candidate has the settings of rules on trial.
type Candidate struct {
	Rules  []string
	Sample string
	Store  string
}

// Part returns the part of the keys that are decided by rules on trial.
func (c *Candidate) Part() float64 {
	part, _ := strconv.ParseFloat(c.Sample, 64) // checked
	return part
}

// The --candidate-store for counters in the process, and that for counters in the backend.
const (
	MemoryStore  = "memory"
	BackendStore = "backend"
)

// captureSettings are about what headgate replay reads.
func (c *Config) captureSettings() []settings.Setting {
	captures := func(text string) error {
		if text == "" {
			return nil
		}
		_, err := capture.Parse(text)
		return err
	}
	return []settings.Setting{
		settings.Row("capture", &c.Capture, "",
			"`FILE` that gets each request that is decided, for headgate replay; FILE?sample=0.1&max=1GiB&hash=KEY,… has "+
				"a part of the keys, bounds the size of FILE and FILE.1 together, and hashes the values of entries (* for "+
				"all); empty: disabled", settings.Check(captures)),
	}
}

// candidateSettings are about what a change of rules would do.
func (c *Config) candidateSettings() []settings.Setting {
	return []settings.Setting{
		settings.Row("candidate", &c.Candidate.Rules, nil,
			"`file or directory` with rules on trial: they decide the same requests on counters of their own, change no "+
				"answer, and headgate diff shows what they would; may be repeated"),
		settings.Row("candidate-sample", &c.Candidate.Sample, "1",
			"part of the keys that the rules of --candidate decide, such as 0.1", settings.Ratio),
		settings.Row("candidate-store", &c.Candidate.Store, BackendStore,
			"where the rules of --candidate count: backend (in --backend, under keys of their own) or memory (in each "+
				"process by itself, which then sees its part of the requests only)", settings.OneOf(BackendStore, MemoryStore)),
	}
}

// LaterByRule is the --on-later-format that has rules decide.
const LaterByRule = "on_backend_error"

// ByStore is the setting with which the store says what answers when it fails.
const ByStore = "store"

// Decisions returns what these settings say about a [ratelimit.Service].
func (c *Config) Decisions() ratelimit.Config {
	d := c.Limits
	if !c.ResponseHeaders {
		d.Headers.Limit, d.Headers.Remaining, d.Headers.Reset = "", "", ""
	}
	d.Charge, _ = descriptors.ParseCharge(c.Charge) // checked, as the others
	d.Overflow, _ = descriptors.ParseOverflow(c.Overflow)
	d.OnBackendError, _ = descriptors.ParseFailurePolicy(c.OnBackendError) // the default for ByStore
	d.OnOverload, _ = descriptors.ParseOverloadPolicy(c.OnOverload)
	d.LaterByRule = c.OnLaterFormat == LaterByRule
	d.ShareAuto = c.LocalShare == "auto"
	d.PolicyMetrics, _ = policies.ParsePatterns(c.Policies.Metrics)
	d.Timeout, d.Metadata, d.OwnerGrace = max(c.BackendTimeout, c.CallTimeout), c.DynamicMetadata, c.OwnerGrace
	d.LogKeys = c.LogKeys != HashedKeys
	d.HideRule = !c.RuleMetadata
	return d
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

// metricsPath is the check of the path of metrics, which must not hide others.
func metricsPath(path string) error {
	if !strings.HasPrefix(path, "/") || strings.ContainsAny(path, "{}?# ") ||
		path == "/rlconfig" || strings.HasPrefix(path, "/debug/") {
		return fmt.Errorf("%q cannot be the path of metrics; want for example /metrics", path)
	}
	return nil
}
