package headgate

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/internal/kit/metrics"
	"github.com/headgate-rls/headgate/policies"
	"github.com/headgate-rls/headgate/ratelimit"
)

// Options say how a [Limiter] decides. Rules are required; the zero value of every other
// field is usable.
type Options struct {
	// Backend is the URL of the store that keeps the counters, as --backend has it:
	// memory:// (the default), redis://host:6379, postgres://host/db and others. See
	// docs/backends.md in the repository. The program imports the store's package, unless it is memory:
	// backends/redis, backends/sqlstore or backends/dynamodb.
	Backend string
	// Rules are those in force from the start, all together.
	Rules []Rules
	// Follow reads the rules again when their files change. All Rules must be [Files]. A
	// domain whose files have errors stays as it was. The program imports descriptors/watch.
	Follow bool
	// Policies is the URL of a database whose policies take the place of the limits of rules
	// that ask for them (policy: in a rule), and change while the program runs, as --policies
	// has it: sqlite:FILE, postgres://host/db and others. Empty: rules have their own limits.
	// The program imports policies/sqlstore.
	Policies string
	// PolicyMetrics are keys of policies that have series of their own in the metrics, such as
	// "user:bigcustomer", or beginnings of keys with * after them, as --policy-metrics has them.
	// Each rule has series for 100 keys at most.
	PolicyMetrics []string
	// LeaseTTL is the lease_ttl of rules that have none: 5 minutes if zero. A lease of a
	// process that dies counts for so long. Living processes renew theirs.
	LeaseTTL time.Duration

	// Timeout bounds each call: 500 ms if zero.
	Timeout time.Duration
	// Replicas is how many processes share the store. While the store fails, each
	// decides by its share of the limits with on_backend_error: local.
	Replicas int
	// OnBackendError answers for rules that do not say, if the store fails: "allow", "deny", "error" or
	// "local". The default is "deny" if the store is a SQL database, else "allow".
	OnBackendError string
	// OnOverload answers for rules that do not say, if more arrives than the store can be
	// asked about: "deny" (the default), "allow" or "error".
	OnOverload string
	// LaterByRule has on_backend_error answer also where a later version of headgate has written a counter in a format
	// that this one cannot read, as may happen while both run. By default such requests are refused.
	LaterByRule bool
	// Charge says for rules that do not when they are charged: "all_or_nothing" (the
	// default) or "each".
	Charge string
	// ShadowMode counts everything and refuses nothing.
	ShadowMode bool
	// NoMigrate leaves the schemas of databases as they are. By default Open brings them up
	// to date, as serve does.
	NoMigrate bool

	// Log gets what operators should know; nil discards it.
	Log *slog.Logger
	// Metrics publishes the metrics of the service about decisions and stores; nil counts
	// nothing. metrics.Prometheus of package metrics makes it of a registry.
	Metrics Metrics
	// Tracer makes a span of each decision and one of its call to the store, below the span in the
	// context of the call; nil: there are none. tracing.OpenTelemetry of package tracing makes it of a
	// tracer of OpenTelemetry.
	Tracer ratelimit.Tracer
}

// Metrics publishes what a limiter measures. Package metrics has it for Prometheus.
type Metrics interface {
	// Register publishes rows until unregister is called.
	Register(rows ...metrics.Row) (unregister func(), err error)
}

// settings returns the options as the engine has them, checked.
func (o *Options) settings() (ratelimit.Config, error) {
	c := ratelimit.Config{Timeout: cmp.Or(o.Timeout, ratelimit.DefaultTimeout), Margin: margin,
		ShadowMode: o.ShadowMode, LaterByRule: o.LaterByRule, Log: cmp.Or(o.Log, slog.New(slog.DiscardHandler)),
		Tracer: o.Tracer}
	var wrong []error
	check := func(field string, bad bool, want string) {
		if bad {
			wrong = append(wrong, fmt.Errorf("headgate: Options.%s %s", field, want))
		}
	}
	check("Timeout", o.Timeout < 0, "is negative")
	check("LeaseTTL", o.LeaseTTL < 0, "is negative")
	check("Replicas", o.Replicas < 0, "is negative")
	check("PolicyMetrics", len(o.PolicyMetrics) > 0 && o.Policies == "", "needs Options.Policies")
	asked, err := policies.ParsePatterns(o.PolicyMetrics)
	check("PolicyMetrics", err != nil, fmt.Sprint("has ", err))
	c.PolicyMetrics = asked
	c.OnBackendError = choice(o.OnBackendError, "OnBackendError", descriptors.FailurePolicies(),
		descriptors.ParseFailurePolicy, check)
	c.OnOverload = choice(o.OnOverload, "OnOverload", descriptors.OverloadPolicies(),
		descriptors.ParseOverloadPolicy, check)
	c.Charge = choice(o.Charge, "Charge", descriptors.Charges(), descriptors.ParseCharge, check)
	return c, errors.Join(wrong...)
}

// margin is kept back of a caller's deadline to answer in.
const margin = 2 * time.Millisecond

// choice returns what a name stands for; the zero value means none.
func choice[T any](name, field string, names []string, parse func(string) (T, bool),
	check func(string, bool, string)) (value T) {
	if name == "" {
		return value
	}
	value, ok := parse(name)
	check(field, !ok, fmt.Sprintf("is %q; want one of %s", name, strings.Join(names, ", ")))
	return value
}
