package ratelimit

import (
	"log/slog"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/internal/kit/background"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/policies"
	"github.com/headgate-rls/headgate/ratelimit/leases"
)

// Config is what a Service needs and how it answers.
type Config struct {
	// Backend keeps the counters.
	Backend backends.Backend
	// Caps are the backend's; rules that it cannot keep are refused.
	Caps backends.Caps
	// Local decides for rules with on_backend_error: local. It must be a
	// backend without I/O.
	Local backends.Backend
	// Policies take the place of the limits of rules that ask for them; nil: there are none, and
	// each rule has its own limit.
	Policies *policies.Set
	// PolicyMetrics are the keys whose policies Metrics records one by one: of each rule the first
	// 100 of them that are in use.
	PolicyMetrics *policies.Patterns
	// Now is the clock for backends that have none.
	Now func() limit.Instant
	// Log gets one record per event that an operator acts on.
	Log *slog.Logger
	// LogRefusals is how many refused requests are logged in a second, at level info; 0: a few, at
	// level debug.
	LogRefusals int
	// LogKeys has refusals in the log name the descriptor as it is; else it is hashed.
	LogKeys bool
	// Panics below the service are reported to it; nil means to the default
	// logger. The calls concerned are answered by failure policy.
	Panics *background.Reporter
	// Metrics counts decisions; nil counts nothing.
	Metrics *Metrics
	// Tracer makes spans of calls; nil: there are none.
	Tracer Tracer
	// RulesChanged, if not nil, is called after a reload that changed limits, with a line for each change, at most 20.
	RulesChanged func(changes []string)
	// Sinks read all decisions, after the readers of this package.
	Sinks []Sink
	// Taps see all requests that are decided.
	Taps []Tap

	// Charge is the default for rules that name none.
	Charge descriptors.Charge
	// Overflow is the default for rules that name none, as far as the backend keeps
	// it.
	Overflow descriptors.Overflow
	// ShareAuto has replicas take units ahead of all limits that can be taken ahead and whose
	// rules do not say how many: see limit.AutoShare.
	ShareAuto bool
	// CalendarMonths has limits per month count months of the calendar, in UTC, where
	// rules do not say which months they mean.
	CalendarMonths bool
	// OnBackendError is the default for rules that name none.
	OnBackendError descriptors.FailurePolicy
	// OnOverload is the default for rules that name none. It answers what
	// fails with backends.ErrOverloaded.
	OnOverload descriptors.FailurePolicy
	// LaterByRule has OnBackendError, and that of rules, answer also where a later version of headgate has written a
	// counter in a format that this one cannot read. Else such requests are refused.
	LaterByRule bool
	// Registry is what replicas share beside the counters. Without one,
	// replicas know nothing of each other's proxies, and no leases end before
	// they expire because a proxy is gone.
	Registry backends.Registry
	// Leases signs the tokens of requests in flight. Replicas need the same
	// secret; nil takes one that the Registry keeps, or without a Registry one
	// that only this process knows.
	Leases *leases.Signer
	// Replica names this process in tokens.
	Replica uint32
	// OwnerGrace is for how long a proxy counts as alive that no replica hears
	// of; default 15 s.
	OwnerGrace time.Duration
	// Timeout bounds a call to the backend whose caller brings no deadline.
	Timeout time.Duration
	// Margin is kept back from the caller's deadline to answer in: at least
	// this, and at least a tenth of the time there is.
	Margin time.Duration

	// Dry: requests are decided to learn what the answers would be. Sinks that report what is served are left out.
	Dry bool

	// Encoder encodes parts of responses for transports; nil if all callers are in this process.
	Encoder  Encoder
	Headers  Headers
	Metadata bool // add domain, descriptors and hits to dynamic_metadata
	// UnitMultipliers sends windows that are no whole unit with
	// unit_multiplier. Envoy before 1.40 ignores it and reports a wrong window.
	UnitMultipliers bool
	// ShadowMode answers OK to everything; statuses stay what they are.
	ShadowMode bool
	// QuotaMode treats every descriptor as if its rule had quota_mode.
	QuotaMode bool
	// AsReference answers as envoyproxy/ratelimit does where this package would know better. A question of no hits is
	// over only if this process has refused somebody in the window. Limits without room do not charge others for hits
	// that are named, unless Charge says so. An unlimited rule is no quota with room, and quotas that are all spent give
	// nothing back.
	AsReference bool
	// HideRule leaves the rule that refuses out of dynamic_metadata.
	HideRule bool
}

// Headers says which headers a response brings. An empty name leaves that
// header out.
type Headers struct {
	// Limit, Remaining and Reset describe the limit closest to refusing, as
	// the reference service's LIMIT_*_HEADER do.
	Limit, Remaining, Reset string
	// IETF sends RateLimit and RateLimit-Policy about the same limit, as
	// draft-ietf-httpapi-ratelimit-headers-10 has them.
	IETF bool
	// RetryAfter is sent with refusals that waiting helps against, in seconds.
	RetryAfter string
	// Rule is sent with refusals and names the rule.
	Rule string
}
