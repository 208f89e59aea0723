package ratelimit

import (
	"context"
	"slices"
	"strings"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/limit"
)

// An Explanation is what would become of a request of one unit with one descriptor.
type Explanation struct {
	Rule *descriptors.Rule // that matches; nil if none does
	// Policies are the keys under which a policy was looked for, in order; Policy is the one whose policy has taken the
	// place of the rule's limit, or empty.
	Policies []string
	Policy   string
	Limits   []Usage
	// OnFailure is what answers while the store fails.
	OnFailure descriptors.FailurePolicy
	// Err is why what limits have counted is not known: the store's error.
	Err error
	// Passes says that no limit would refuse the request now. It means nothing if Err is set.
	Passes bool
}

// Explain says which rule matches a descriptor, which policy holds, and what limits have counted. It charges nothing,
// and asks the store once. The error is an [Error]: there are no rules yet, or the descriptor cannot be asked about.
func (s *Service) Explain(ctx context.Context, domain string, entries []descriptors.Entry) (*Explanation, error) {
	if len(entries) > 0 && entries[0].Key == OpKey {
		return nil, invalid("descriptors with %s bring leases back, and are not limited", OpKey)
	}
	x := new(Explanation)
	err := s.peek(ctx, []string{domain}, [][]descriptors.Entry{entries}, func(_ int, c *Call, v *limit.Verdict) error {
		if c.Response.Err != nil {
			return c.Response.Err
		}
		d := &c.Decisions[0]
		x.Rule = d.match.Rule
		if d.view != nil {
			x.OnFailure = d.view.onError
		}
		if d.policies != nil {
			x.Policies, x.Policy = d.policies.lookedUp(entries, int(d.decider))
		}
		x.Limits, x.Err = c.usages(v)
		x.Passes = s.conf.ShadowMode || !refusesOne(x.Limits, d.view != nil && d.view.quota)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return x, nil
}

// refusesOne reports whether a limit refuses a request of one unit. Quota mode has all limits be shadows, and refuses
// all the same if no other descriptor of the request has quota left.
func refusesOne(limits []Usage, quota bool) bool {
	return slices.ContainsFunc(limits, func(u Usage) bool { return u.Limited && (quota || !u.Shadow) })
}

// lookedUp returns the keys of policies, in the order in which they are looked for, and the one that decides.
func (p *policyViews) lookedUp(entries []descriptors.Entry, decider int) (keys []string, decides string) {
	keys = append(keys, string(p.own.rule.AppendPolicyKey(nil, entries)))
	for _, name := range p.names {
		keys = append(keys, string(name))
	}
	if decider != decidedByRule {
		decides = keys[decider+1]
	}
	return keys, strings.Clone(decides)
}
