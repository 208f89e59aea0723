// Package config is the server's own configuration: one struct, filled from
// flags, environment variables (HEADGATE_*), a YAML file and defaults, in
// this order of precedence. Rules are not configuration; they belong to
// package descriptors.
package config

import (
	"time"

	"github.com/spf13/pflag"
)

// Config has every setting of `headgate serve`.
type Config struct {
	File     string
	Warnings []string // about what was read and has no effect

	Rules        []string
	RulesErrors  string
	Example      bool
	MergeDomains bool
	Backend      string

	GRPC      string
	Transport string
	Services  string
	HTTP      string
	Debug     string
	Metrics   string

	Charge         string
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
	ClientSANs []string

	MaxConnectionAge      time.Duration
	MaxConnectionAgeGrace time.Duration
	Keepalive             time.Duration

	DrainDelay   time.Duration
	DrainTimeout time.Duration

	Slots Slots
	Admin Admin

	LogLevel  string
	LogFormat string
}

// Define declares a flag for every setting on fs, with its default, and
// returns the Config that they fill.
func Define(fs *pflag.FlagSet) *Config {
	c := new(Config)
	fs.StringVar(&c.File, "config", "", "YAML `file` with settings, by the names of these flags")

	fs.StringArrayVar(&c.Rules, "rules", nil, "rule `file or directory`; may be repeated (default ./rules if it exists)")
	fs.StringVar(&c.RulesErrors, "rules-errors", "refuse", "what a start does about files of rules with errors: refuse, or skip them: their domains are not limited until they are mended")
	fs.BoolVar(&c.Example, "example", false, "serve the rules of a built-in example, to try headgate without --rules")
	fs.BoolVar(&c.MergeDomains, "merge-domains", false, "let several files hold rules of one domain")
	fs.StringVar(&c.Backend, "backend", "memory://", "`URL` of the store that keeps the counters: memory://, redis://…; see docs/operations.md")

	fs.StringVar(&c.GRPC, "grpc", ":8081", "`address` of the gRPC service: host:port, unix:PATH or unix:@NAME")
	fs.StringVar(&c.Transport, "transport", "unary", "what serves the gRPC address: unary (several times cheaper) or grpc (grpc-go)")
	fs.StringVar(&c.Services, "services", ":8082", "`address` of the gRPC services that the unary transport does not serve: access log, health Watch, reflection; empty for none")
	fs.StringVar(&c.HTTP, "http", ":8080", "`address` of /json, /healthcheck and /readyz; empty for none")
	fs.StringVar(&c.Debug, "debug", "127.0.0.1:6070", "`address` of /metrics, /rlconfig and /debug/pprof/; empty for none")
	fs.StringVar(&c.Metrics, "metrics", "", "`address` of /metrics alone; empty: with those of --debug")

	fs.StringVar(&c.Charge, "charge", "all_or_nothing", "what a refused request is charged, where the rule says nothing: all_or_nothing or each")
	fs.StringVar(&c.OnBackendError, "on-backend-error", "allow", "the answer when the backend fails, where the rule says nothing: allow, deny, error or local")
	fs.StringVar(&c.OnOverload, "on-overload", "deny", "the answer when more requests arrive than the backend can be asked about, where the rule says nothing: deny, allow or error")
	fs.IntVar(&c.Replicas, "replicas", 1, "number of processes that share the backend; with on_backend_error: local each takes its share of a limit")
	fs.DurationVar(&c.BackendTimeout, "backend-timeout", 500*time.Millisecond, "longest wait for the backend when the caller sets no deadline")
	fs.DurationVar(&c.DeadlineMargin, "deadline-margin", 2*time.Millisecond, "time kept back from the caller's deadline to answer in: this, or a tenth of the deadline if that is more")
	fs.BoolVar(&c.ShadowMode, "shadow-mode", false, "refuse nothing; statuses and metrics still tell what would have been refused")
	fs.BoolVar(&c.QuotaMode, "quota-mode", false, "treat every rule as if it had quota_mode")

	fs.BoolVar(&c.ResponseHeaders, "response-headers", false, "send the three RateLimit headers with every response")
	fs.StringVar(&c.LimitHeader, "limit-header", "RateLimit-Limit", "`name` of the header with the limit")
	fs.StringVar(&c.RemainingHeader, "remaining-header", "RateLimit-Remaining", "`name` of the header with what is left")
	fs.StringVar(&c.ResetHeader, "reset-header", "RateLimit-Reset", "`name` of the header with the seconds until the reset")
	fs.StringVar(&c.RetryHeader, "retry-after-header", "Retry-After", "`name` of the header that refusals bring; empty for none")
	fs.StringVar(&c.RuleHeader, "rule-header", "", "`name` of a header, such as x-headgate-rule, that tells clients which rule refused; empty for none: clients need not know rules")
	fs.BoolVar(&c.DynamicMetadata, "dynamic-metadata", false, "add domain, descriptors and hits to the response's dynamic metadata")
	fs.BoolVar(&c.UnitMultiplier, "unit-multiplier", false, "report windows that are no whole unit by unit_multiplier; needs Envoy 1.40 everywhere")

	fs.DurationVar(&c.LeaseTTL, "lease-ttl", 300*time.Second, "life of the lease of a request in flight whose end is never told, where the rule says nothing; IMPOSTER_RATE_LIMITER_TTL, in seconds, says the same")
	fs.StringVar(&c.LeaseSecret, "lease-secret", "", "`secret` that signs leases; replicas need the same one (default: a random one that the store keeps)")
	fs.StringArrayVar(&c.LeaseKeys, "lease-key", []string{"lease"}, "`name` of leases in Envoy's dynamic metadata, by which the access log finds them; may be repeated, as filters of one chain need one each")
	fs.DurationVar(&c.OwnerGrace, "owner-grace", 15*time.Second, "time after which a proxy that no replica hears of counts as gone with its requests")
	fs.IntVar(&c.AccessLogs, "access-logs", 4096, "most access logs that may be connected; each worker thread of an Envoy has one")
	fs.IntVar(&c.AccessLogsPerPeer, "access-logs-per-peer", 0, "most access logs of one peer (a client certificate's identity, else a host) that may be connected; 0 for a quarter of --access-logs")

	fs.StringVar(&c.SocketMode, "socket-mode", "", "permissions of Unix sockets in octal, such as 0660 (default: what the umask leaves)")

	fs.StringVar(&c.TLSCert, "grpc-tls-cert", "", "certificate chain `file` of the gRPC service; reloaded when it changes")
	fs.StringVar(&c.TLSKey, "grpc-tls-key", "", "private key `file` of the gRPC service")
	fs.StringVar(&c.ClientCA, "grpc-client-ca", "", "`file` with the certificate authorities whose clients may call; others are refused")
	fs.StringArrayVar(&c.ClientSANs, "grpc-client-san", nil, "`name` that a client's certificate must have: a DNS name, or spiffe://DOMAIN/PATH, where * stands for one label or segment; may be repeated, one suffices (default: any)")

	fs.DurationVar(&c.MaxConnectionAge, "grpc-max-connection-age", 24*time.Hour, "age at which connections are asked to close")
	fs.DurationVar(&c.MaxConnectionAgeGrace, "grpc-max-connection-age-grace", time.Hour, "time they then have to finish their calls")
	fs.DurationVar(&c.Keepalive, "grpc-keepalive", time.Minute, "idle time after which a connection is probed")

	fs.DurationVar(&c.DrainDelay, "drain-delay", 5*time.Second, "time between failing health checks and closing listeners on SIGTERM")
	fs.DurationVar(&c.DrainTimeout, "drain-timeout", 15*time.Second, "longest time for calls in flight to finish after that")

	defineSlots(fs, &c.Slots)
	defineAdmin(fs, &c.Admin)

	fs.StringVar(&c.LogLevel, "log-level", "info", "debug, info, warn or error")
	fs.StringVar(&c.LogFormat, "log-format", "text", "text or json")
	return c
}

// Names returns the names of all settings, as flags have them.
func Names() []string {
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	Define(fs)
	var names []string
	fs.VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	return names
}
