package ratelimit

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/internal/safego"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/ratelimit/lease"
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
	// Now is the clock for backends that have none.
	Now func() limit.Instant
	// Log gets one record per event that an operator acts on.
	Log *slog.Logger
	// Panics below the service are reported to it; nil means to the default
	// logger. The calls concerned are answered by failure policy.
	Panics *safego.Reporter
	// Metrics counts decisions; nil counts nothing.
	Metrics Metrics

	// Charge is the default for rules that name none.
	Charge descriptors.Charge
	// OnBackendError is the default for rules that name none.
	OnBackendError descriptors.FailurePolicy
	// OnOverload is the default for rules that name none. It answers what
	// fails with backends.ErrOverloaded.
	OnOverload descriptors.FailurePolicy
	// Registry is what replicas share beside the counters. Without one,
	// replicas know nothing of each other's proxies, and no leases end before
	// they expire because a proxy is gone.
	Registry backends.Registry
	// Leases signs the tokens of requests in flight. Replicas need the same
	// secret; nil takes one that the Registry keeps, or without a Registry one
	// that only this process knows.
	Leases *lease.Signer
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

	Headers  Headers
	Metadata bool // add domain, descriptors and hits to dynamic_metadata
	// UnitMultipliers sends windows that are no whole unit with
	// unit_multiplier. Envoy before 1.40 ignores it and reports a wrong window.
	UnitMultipliers bool
	// ShadowMode answers OK to everything; statuses stay what they are.
	ShadowMode bool
	// QuotaMode treats every descriptor as if its rule had quota_mode.
	QuotaMode bool
}

// A Service answers rate-limit requests. Its methods may be called
// concurrently.
type Service struct {
	conf      Config
	rules     atomic.Pointer[ruleset]
	overrides overrideCache
	batches   sync.Pool // *batch
	refusals  sampler
	failures  samplers

	returns    *returns
	owners     owners
	places     places
	presence   presence
	sharing    sampler
	wall       func() time.Time // for durations; that of tests
	localUntil atomic.Int64     // Unix ns until which leases may be held locally
}

// New returns a service that answers by set.
func New(conf Config, set *descriptors.Set) (*Service, error) {
	if conf.Backend == nil || conf.Local == nil || conf.Now == nil || conf.Log == nil {
		return nil, errors.New("ratelimit: Config needs Backend, Local, Now and Log")
	}
	if conf.Metrics == nil {
		conf.Metrics = noMetrics{}
	}
	if conf.Charge == descriptors.ChargeDefault {
		conf.Charge = descriptors.ChargeAllOrNothing
	}
	if conf.OnBackendError == descriptors.FailDefault {
		conf.OnBackendError = descriptors.FailAllow
	}
	if conf.OnOverload == descriptors.FailDefault {
		conf.OnOverload = descriptors.FailDeny
	}
	if conf.Timeout <= 0 {
		conf.Timeout = 500 * time.Millisecond
	}
	s := &Service{conf: conf, refusals: sampler{perSecond: refusalsPerSecond}, failures: samplers{perSecond: failuresPerSecond}}
	if conf.OwnerGrace <= 0 {
		conf.OwnerGrace = 15 * time.Second
	}
	s.wall, s.sharing.perSecond, s.presence.id = time.Now, 1, rand.Text()
	if conf.Leases == nil {
		s.presence.secret = rand.Text()
		conf.Leases = lease.NewSigner([]byte(s.presence.secret))
	}
	s.conf = conf
	s.returns = newReturns(s)
	s.batches.New = func() any { return new(batch) }
	return s, s.SetRules(set)
}

// SetRules replaces the rules. Requests in flight keep the ones they started
// with; counters keep their state. Rules that the backend cannot keep are an
// error, and the old rules stay.
func (s *Service) SetRules(set *descriptors.Set) error {
	if err := CheckCaps(set, &s.conf.Caps); err != nil {
		return err
	}
	s.rules.Store(newRuleset(set, &s.conf))
	return nil
}

// Rules returns the rules that new requests are answered by.
func (s *Service) Rules() *descriptors.Set { return s.rules.Load().set }

// CheckCaps reports every limit of set that a backend with caps cannot keep.
func CheckCaps(set *descriptors.Set, caps *backends.Caps) error {
	var errs []error
	for _, p := range CapProblems(set, caps) {
		errs = append(errs, errors.New(p.String()))
	}
	return errors.Join(errs...)
}

// CapProblems is CheckCaps with the places of the rules.
func CapProblems(set *descriptors.Set, caps *backends.Caps) []descriptors.Problem {
	var list []descriptors.Problem
	var shared sharedLimit
	for _, r := range set.Rules() {
		file, line := r.Place()
		report := func(err error) {
			if err != nil {
				list = append(list, descriptors.Problem{File: file, Line: line, Path: r.Domain + "/" + r.Path,
					Message: fmt.Sprintf("the backend %s cannot keep this limit: %v", caps.Name, err)})
			}
		}
		for i := range r.Limits {
			report(caps.Check(r.Limits[i].Limit))
		}
		if r.Concurrency != nil {
			report(caps.Check(r.Concurrency.Limit))
		}
		if r.Raw() {
			report(shared.check(r, caps))
		}
	}
	return list
}

// A sharedLimit is the first that counts in a log which other limits share.
type sharedLimit struct {
	limit *limit.Limit
	rule  *descriptors.Rule
}

// check reports why the limits of r, whose counters are called by a value alone,
// cannot be kept. Limits of different rules meet under one value, so all must
// agree; two of one rule would charge each request twice.
func (f *sharedLimit) check(r *descriptors.Rule, caps *backends.Caps) error {
	n := 0
	for i := range r.Limits {
		l := r.Limits[i].Limit
		if !caps.Shared(l) {
			continue
		}
		if n++; n > 1 {
			return fmt.Errorf("%w: it keeps one log for each value of counter: value, so a rule can have one limit with %v, not more",
				backends.ErrUnsupported, l.Algorithm())
		}
		if f.limit == nil {
			f.limit, f.rule = l, r
		}
		if err := caps.CheckShared(l, f.limit); err != nil {
			file, line := f.rule.Place()
			return fmt.Errorf("%w; the other one is that of %s/%s (%s:%d)", err, f.rule.Domain, f.rule.Path, file, line)
		}
	}
	return nil
}

// Decide answers every request of reqs in resps, which has the same length and
// whose memory is reused. The backend is asked once, for all of them. Decide
// returns before ctx's deadline, by failure policy if need be.
func (s *Service) Decide(ctx context.Context, reqs []*Request, resps []*Response) {
	s.decide(ctx, reqs, resps)
}

// DecideNow answers every request as Decide does when no time is left to wait
// for the backend: by what is known in this process, else by policy.
func (s *Service) DecideNow(reqs []*Request, resps []*Response) {
	s.decide(noTime, reqs, resps)
}

// noTime is a context whose deadline has passed.
var noTime, _ = context.WithDeadline(context.Background(), time.Unix(1, 0)) //nolint:govet // there is nothing to cancel

func (s *Service) decide(ctx context.Context, reqs []*Request, resps []*Response) {
	b := s.batches.Get().(*batch)
	b.start(s, reqs, resps)
	if len(b.takes) > 0 {
		if b.ending && ctx != noTime {
			var cancel context.CancelFunc
			ctx, cancel = detach(ctx)
			defer cancel()
		}
		b.asked = s.take(ctx, s.conf.Backend, b.takes, b.verdicts)
	}
	for i := range b.calls {
		b.calls[i].answer(ctx, b)
	}
	b.release()
	s.batches.Put(b)
}

// take asks a backend, within the caller's deadline less a margin. It returns when
// it asked, but for a local one.
func (s *Service) take(ctx context.Context, be backends.Backend, takes []limit.Request, out []limit.Verdict) (now time.Time) {
	if s.conf.Caps.Local {
		s.guard(ctx, be, takes, out)
		return now
	}
	now = time.Now()
	deadline, ok := ctx.Deadline()
	if ok {
		deadline = deadline.Add(-max(s.conf.Margin, deadline.Sub(now)/10))
	} else {
		deadline = now.Add(s.conf.Timeout)
	}
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	s.guard(ctx, be, takes, out)
	return now
}

// guard makes a failure of the backend of a panic below.
func (s *Service) guard(ctx context.Context, be backends.Backend, takes []limit.Request, out []limit.Verdict) {
	if err := s.conf.Panics.Do("backend", func() { be.Take(ctx, takes, out) }); err != nil {
		backends.Fail(out, fmt.Errorf("%w: %w", backends.ErrUnavailable, err))
	}
}
