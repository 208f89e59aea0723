package ratelimit

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/internal/kit/background"
	"github.com/headgate-rls/headgate/internal/kit/metrics"
	"github.com/headgate-rls/headgate/ratelimit/leases"
)

// A Service answers rate-limit requests. Its methods may be called
// concurrently.
type Service struct {
	engine
	readers readers
	batches sync.Pool  // *batch
	admits  bool       // see Admit
	setting sync.Mutex // held by SetRules
}

// New returns a service that answers by set. Without a set calls fail with
// UNAVAILABLE until [Service.SetRules] brings the first one, so that the caller's
// own failure mode decides.
func New(conf Config, set *descriptors.Set) (*Service, error) {
	if conf.Backend == nil || conf.Local == nil || conf.Now == nil || conf.Log == nil {
		return nil, errors.New("ratelimit: Config needs Backend, Local, Now and Log")
	}
	if conf.Charge == descriptors.ChargeDefault {
		conf.Charge = descriptors.ChargeAllOrNothing
	}
	if conf.OnBackendError == descriptors.FailDefault {
		conf.OnBackendError = defaultOnFailure(&conf.Caps)
	}
	if conf.OnOverload == descriptors.FailDefault {
		conf.OnOverload = descriptors.FailDeny
	}
	if conf.Encoder == nil {
		conf.Encoder = unsent{}
	}
	if conf.Timeout <= 0 {
		conf.Timeout = DefaultTimeout
	}
	s := &Service{engine: engine{conf: conf, coverage: NewCoverage()}, readers: readersFor(&conf), admits: admits(&conf)}
	if conf.AsReference {
		s.refused = newRefusedKeys()
	}
	s.refusals.PerSecond, s.failures.PerSecond = refusalsPerSecond, failuresPerSecond
	s.warnings.PerSecond, s.warned = warningsPerSecond, newWarnedKeys()
	if conf.LogRefusals > 0 {
		s.refusals.PerSecond = int64(conf.LogRefusals)
	}
	s.leases = leases.New(leases.Config{
		Backend: conf.Backend, ServerClock: conf.Caps.ServerClock, Local: conf.Local, Now: conf.Now, Timeout: conf.Timeout,
		Registry: conf.Registry, Signer: conf.Leases, Replica: conf.Replica, OwnerGrace: conf.OwnerGrace,
		Log: conf.Log, Metrics: conf.Metrics, Panics: conf.Panics,
		Returned:     s.conf.returned,
		Renewed:      s.renewed,
		Reservations: leases.Reservations{Grace: descriptors.ReserveGrace, Lost: s.lostCorrections},
	})
	s.batches.New = func() any { return &Batch{tally: tally{lane: metrics.NextLane()}} }
	if set == nil {
		s.rules.Store(awaitedRules())
		return s, nil
	}
	return s, s.SetRules(set)
}

// defaultOnFailure is what answers while a store fails if neither the rule nor the Config says.
func defaultOnFailure(caps *backends.Caps) descriptors.FailurePolicy {
	if caps.DenyOnFailure {
		return descriptors.FailDeny
	}
	return descriptors.FailAllow
}

// SetRules replaces the rules. Requests in flight keep the rules they started
// with, and counters keep their state. If the backend cannot keep the new rules,
// SetRules returns an error and the old rules stay.
func (s *Service) SetRules(set *descriptors.Set) error {
	s.setting.Lock()
	defer s.setting.Unlock()
	old := s.rules.Load()
	if err := checkCaps(set, old.rules(), &s.conf.Caps); err != nil {
		return err
	}
	rules, gone := newRuleset(set, old, &s.conf)
	s.rules.Store(rules)
	s.conf.Metrics.loaded(rules, gone)
	for _, sink := range s.conf.Sinks {
		if sink, ok := sink.(RulesSink); ok {
			sink.RulesLoaded(set)
		}
	}
	if old != nil && !old.awaited {
		s.noteRules(set, old.set)
	}
	s.overrides.forget()
	s.leases.SetLongest(rules.longest)
	return nil
}

// Leases returns the tracker of the service's requests in flight. The owner of
// the service has it [leases.Tracker.Join] and [leases.Tracker.Run].
func (s *Service) Leases() *leases.Tracker { return s.leases }

// Close releases leases that are queued to be released, until ctx ends. Decide
// must not be called after it.
func (s *Service) Close(ctx context.Context) { s.leases.Close(ctx) }

// Panics reports panics of those who call the service.
func (s *Service) Panics() *background.Reporter { return s.conf.Panics }

// Rules returns the rules that new requests are answered by.
func (s *Service) Rules() *descriptors.Set { return s.rules.Load().set }

// Decide answers every request of reqs in resps, which has the same length and
// whose memory is reused. It asks the backend once, for all requests. Decide
// returns before ctx's deadline: it answers by failure policy if the backend is
// late.
func (s *Service) Decide(ctx context.Context, reqs []*Request, resps []*Response) {
	b := s.batches.Get().(*Batch)
	if s.conf.Tracer != nil {
		b.times.began = time.Now()
	}
	b.start(&s.engine, reqs, resps)
	if len(b.takes) > 0 {
		if b.returns && ctx != NoTime {
			var cancel context.CancelFunc
			ctx, cancel = detach(ctx)
			defer cancel()
		}
		b.asked = s.ask(ctx, s.conf.Backend, b.takes, b.verdicts)
		if s.conf.Tracer != nil {
			b.times.answered = time.Now()
		}
	}
	for i := range b.calls {
		b.calls[i].answer(ctx, b)
	}
	s.readers.read(b)
	b.release()
	s.batches.Put(b)
}

// Local reports whether the backend does no I/O, so that Decide does not block.
func (s *Service) Local() bool { return s.conf.Caps.Local }

// Encodes reports whether the service has an [Encoder], which transports need.
func (s *Service) Encodes() bool { return s.conf.Encoder != unsent{} }

// TooLarge answers a request whose message was dropped: OVER_LIMIT. If the call failed, Envoy would
// let the request pass, and a client could cause that by a long header.
func (s *Service) TooLarge() *Response { return &Response{OverLimit: !s.conf.ShadowMode} }

// NoTime is a context whose deadline has passed. With it Decide answers by what this process knows, else by failure
// policy.
var NoTime, _ = context.WithDeadline(context.Background(), time.Unix(1, 0)) //nolint:govet // there is nothing to cancel

// detach returns a context with ctx's deadline that does not end when the caller
// cancels its call. Calls that bring leases back need it.
func detach(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	ctx = context.WithoutCancel(ctx)
	if !ok {
		return ctx, func() {}
	}
	return context.WithDeadline(ctx, deadline)
}

// QueueReturns releases the leases that a request brings back whose caller no
// longer waits for the answer. It does so in the background, and decides nothing
// else.
func (s *Service) QueueReturns(req *Request) {
	b := s.batches.Get().(*Batch)
	defer s.batches.Put(b)
	defer b.release()
	var resp Response
	b.start(&s.engine, []*Request{req}, []*Response{&resp})
	if resp.Err != nil {
		return
	}
	c := &b.calls[0]
	for i := range c.returns {
		s.leases.QueueReturn(&c.returns[i])
	}
	for i := range c.settling {
		if c.settling[i].decision < 0 {
			s.leases.QueueSettlement(&c.settling[i].Settlement)
		}
	}
	for i := range c.Ops {
		if op := &c.Ops[i]; c.views[i].inFlight != nil && op.Cost < 0 {
			op.Key.Group = strings.Clone(op.Key.Group) // it is a part of the message
			s.leases.Queue(op, strings.Clone(c.Request.Domain), c.views[i].rule)
		}
	}
}

// Undo returns a function that abandons resp's leases, for a caller that may not
// receive resp; nil if resp grants no leases. The function keeps nothing of resp, and about size bytes in memory.
func (s *Service) Undo(resp *Response) (undo func(), size int) {
	if len(resp.granted) == 0 {
		return nil, 0
	}
	list := slices.Clone(resp.granted)
	return func() {
		for i := range list {
			s.leases.Abandon(&list[i])
		}
	}, resp.undoSize()
}
