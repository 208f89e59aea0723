package ratelimit

import (
	"context"
	"strings"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/limit"
)

// Most requests of a program have one descriptor, to which a rule with one limit applies, and pass. Admit decides them
// by themselves, in a third of the time: nothing is prepared for slices, several limits, stores elsewhere and
// refusals. All others go the way of Decide, with what is known of them.

// An Admission is what a caller gets to know of a request that passes: see [Inside].
type Admission struct {
	Limit      *limit.Limit
	Name, Rule string
	Remaining  int64
	Reset      int64
}

// A Begun is what is known of a request that Admit did not answer, and the memory for it.
type Begun struct {
	rules *ruleset // nil: nothing is known
	match descriptors.Match
	group []byte // the memory of match.Group
	asked bool   // the store has answered

	ops      [1]limit.Op
	takes    [1]limit.Request
	verdicts [1]limit.Verdict
	recall   Recall

	Lane int // where what it counts is counted: see [metrics.NextLane]
}

// Forget makes o ready for the next request.
func (o *Begun) Forget() {
	o.rules = nil
	if cap(o.group) > smallMessage {
		o.group = nil
	}
}

// admits reports whether a service with this Config decides any requests by themselves.
func admits(conf *Config) bool {
	return conf.Caps.Local && !conf.Caps.ServerClock && !conf.Caps.PlainWindows && served(conf) && !conf.Metadata &&
		!conf.ShadowMode && !conf.QuotaMode && conf.Headers == (Headers{}) && conf.Policies == nil &&
		conf.Tracer == nil && len(conf.Taps)+len(conf.Sinks) == 0
}

// isAlone reports whether requests are decided by themselves that no other rule applies to.
func (v *ruleView) isAlone() bool {
	return len(v.limits) == 1 && v.limits[0].inFlight == nil && v.reserve == nil && v.keys == nil && !v.quota &&
		!v.warns && v.rule.Choose == "" && !v.rule.Unlimited && len(v.rule.Replaces) == 0
}

// Admit answers a request of one descriptor without a cost of its own, by a caller in this process, if it passes.
// Otherwise it returns false, and [Service.Finish] is to answer.
func (s *Service) Admit(ctx context.Context, o *Begun, domain string, entries []descriptors.Entry, a *Admission) bool {
	rules := s.rules.Load()
	if !s.admits || rules.awaited || len(entries) == 0 || entries[0].Key == OpKey {
		return false
	}
	for i := range entries {
		if entries[i].Key == "" {
			return false
		}
	}
	ok := false
	if o.group, ok = rules.set.MatchIn(o.group, domain, entries, &o.match); !ok {
		return false
	}
	o.rules, o.asked = rules, false
	if o.match.Rule == nil || !rules.views[o.match.Rule.ID].alone {
		return false
	}
	v := rules.views[o.match.Rule.ID]
	lv := &v.limits[0]
	s.conf.setOp(&o.ops[0], v, lv, o.match.Group, 1, false)
	o.takes[0] = limit.Request{Ops: o.ops[:], At: s.conf.Now()}
	s.ask(ctx, s.conf.Backend, o.takes[:], o.verdicts[:])
	o.asked = true
	if o.verdicts[0].Err != nil {
		return false
	}
	out := &o.verdicts[0].Outcomes[0]
	if !out.Admitted {
		return false
	}
	a.Limit, a.Name, a.Rule = lv.Limit, lv.label, lv.Name
	a.Remaining, a.Reset = max(out.Remaining, 0), ceilSeconds(out.Reset)
	s.countAdmitted(o, v, domain, entries)
	return true
}

// countAdmitted counts a request that passes, as the sinks do.
func (s *Service) countAdmitted(o *Begun, v *ruleView, domain string, entries []descriptors.Entry) {
	now := int64(o.takes[0].At)
	if s.conf.Metrics != nil {
		v.counter(s.conf.Metrics, o.rules.set, entries, OutcomeOK).AddIn(o.Lane, 1)
	}
	shape := s.shapeOf(v.rule, o.rules, domain, entries, now)
	shape.Seen(now)
	shape.alone.AddIn(o.Lane, 1)
}

// Finish is [Service.Decide] for one request, with what o knows of it if [Service.Admit] was asked.
func (s *Service) Finish(ctx context.Context, o *Begun, req *Request, resp *Response) {
	if o.rules == nil {
		s.Decide(ctx, []*Request{req}, []*Response{resp})
		return
	}
	o.match.Group = strings.Clone(o.match.Group) // what is kept of it must not change
	if o.asked {
		s.conclude(ctx, o, req, resp)
	} else {
		o.recall.of[0], req.Recall = matched{o.rules.set, []descriptors.Match{o.match}}, &o.recall
		s.Decide(ctx, []*Request{req}, []*Response{resp})
		req.Recall, o.recall = nil, Recall{}
	}
}

// conclude answers a request as Decide does after it has asked the store.
func (s *Service) conclude(ctx context.Context, o *Begun, req *Request, resp *Response) {
	v := o.rules.views[o.match.Rule.ID]
	b := s.batches.Get().(*Batch)
	b.engine, b.rules, b.returns, b.at = &s.engine, o.rules, false, int64(o.takes[0].At)
	b.calls, b.takes, b.verdicts = grow(b.calls, 1), append(b.takes[:0], o.takes[0]), grow(b.verdicts, 1)
	b.verdicts[0], o.verdicts[0] = o.verdicts[0], b.verdicts[0]

	c := &b.calls[0]
	c.begin(req, resp)
	o.ops[0].Key.Group = o.match.Group
	c.takeIndex, c.Ops, c.views = 0, append(c.Ops, o.ops[0]), append(c.views, &v.limits[0])
	b.takes[0].Ops = c.Ops
	c.Decisions = append(grow(c.Decisions, 0), Decision{Entries: req.Descriptors[0].Entries, match: o.match, view: v,
		Cost: 1, n: 1, status: &resp.Statuses[0]})
	c.answer(ctx, b)
	s.readers.read(b)
	b.release()
	s.batches.Put(b)
}
