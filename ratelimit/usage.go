package ratelimit

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/limit"
)

// A Usage is what one limit has counted for a descriptor.
type Usage struct {
	Limit *limit.Limit
	Rule  string // where the limit is: "domain/path" or "domain/path:name"
	// Remaining is how many units are left.
	Remaining int64
	// Limited: a request of one unit has no room now, and Retry is how long to wait until it has, if nobody takes any
	// more: limit.Never if no wait helps.
	Limited bool
	Retry   time.Duration
	// Shadow: the limit refuses nobody.
	Shadow bool
}

// Counted reports whether there is a difference to a limit that nobody has used.
func (u *Usage) Counted() bool { return u.Remaining != u.Limit.Capacity() || u.Limited }

// Usages is the usage of the limits that apply to one descriptor.
type Usages struct {
	Limits []Usage // empty if no limit applies
	Err    error   // the store's error about this descriptor; Limits is then empty
}

// Usage asks what is counted for each descriptor, and charges nothing. Policies are those in force. The error is the
// backend's if it answers about no descriptor, or an [Error] while there are no rules.
func (s *Service) Usage(ctx context.Context, domains []string, list [][]descriptors.Entry) ([]Usages, error) {
	usages, failed, said := make([]Usages, len(list)), error(nil), false
	err := s.peek(ctx, domains, list, func(i int, c *Call, v *limit.Verdict) error {
		u := &usages[i]
		u.Limits, u.Err = c.usages(v)
		failed, said = cmp.Or(failed, u.Err), said || v != nil && (u.Err == nil || errors.Is(u.Err, backends.ErrCorrupt))
		return nil
	})
	if err == nil && !said {
		err = failed
	}
	return usages, err
}

// peek has requests of no units decided, one for each descriptor. see gets the call, and the verdict about it: nil if
// no limit applies.
func (s *Service) peek(ctx context.Context, domains []string, list [][]descriptors.Entry,
	see func(i int, c *Call, v *limit.Verdict) error) error {
	reqs, resps := make([]*Request, len(list)), make([]*Response, len(list))
	for i, entries := range list {
		reqs[i], resps[i] = &Request{Domain: domains[i], InProcess: true, NoLease: true}, new(Response)
		if len(entries) > 0 && entries[0].Key == OpKey {
			continue // which brings a lease back, and has no counters
		}
		reqs[i].Descriptors = []Descriptor{{Entries: entries, HasHits: true}}
	}
	b := s.batches.Get().(*Batch)
	defer s.batches.Put(b)
	defer b.release()
	b.start(&s.engine, reqs, resps)
	if len(b.takes) > 0 {
		s.ask(ctx, s.conf.Backend, b.takes, b.verdicts)
	}
	for i := range b.calls {
		c := &b.calls[i]
		if err := c.Response.Err; err != nil && err.Code == codeUnavailable {
			return err
		}
		var v *limit.Verdict
		if c.takeIndex >= 0 {
			v = &b.verdicts[c.takeIndex]
		}
		if err := see(i, c, v); err != nil {
			return err
		}
	}
	return nil
}

// usages returns what a verdict about no units says of each limit.
func (c *Call) usages(v *limit.Verdict) (list []Usage, err error) {
	if v == nil {
		return nil, nil
	}
	if v.Err != nil {
		return nil, v.Err
	}
	for j, view := range c.views {
		out := &v.Outcomes[j]
		list = append(list, Usage{Limit: view.Limit, Rule: view.Name, Remaining: out.Remaining,
			Limited: !out.Admitted, Retry: out.Retry, Shadow: c.Ops[j].Shadow})
	}
	return list, nil
}
