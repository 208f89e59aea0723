package httpapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/internal/kit/spell"
	"github.com/headgate-rls/headgate/internal/kit/web"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/policies"
	"github.com/headgate-rls/headgate/ratelimit"
	"github.com/headgate-rls/headgate/ratelimit/fleet"
	"github.com/headgate-rls/headgate/ratelimit/insight"
)

// An Explained says what would become of a request with one descriptor.
type Explained struct {
	Key    string `json:"key"`
	Domain string `json:"domain"`
	// Rule is the one that matches, and Place where it is; absent if none does.
	Rule  string `json:"rule,omitempty"`
	Place string `json:"place,omitempty"`
	Why   string `json:"why,omitempty"` // no rule matches
	// UnknownDomain: no rules have the domain.
	UnknownDomain *UnknownDomainAnswer `json:"unknown_domain,omitempty"`

	Nearly []NearlyRule `json:"nearly,omitempty"` // rules that differ in one entry
	Policy *PolicyKeys  `json:"policy,omitempty"` // of a rule that asks for policies

	Limits []LimitState `json:"limits"`
	// Passes: a request of one unit would pass now; absent if that is not known.
	Passes       *bool  `json:"passes,omitempty"`
	OnStoreError string `json:"on_store_error,omitempty"` // what is answered while the store fails

	Refusals []RefusalAnswer `json:"refusals,omitempty"` // the last ones of the key, on this replica
	Replicas []Replica       `json:"replicas,omitempty"`
	Note     string          `json:"note,omitempty"`
	Problem  string          `json:"problem,omitempty"`
}

// A NearlyRule is a rule that does not match.
type NearlyRule struct {
	Rule  string `json:"rule"`
	Place string `json:"place"`
}

// PolicyKeys are the keys under which a policy is looked for, in order, and the one that holds, if any.
type PolicyKeys struct {
	InForce  string   `json:"in_force,omitempty"`
	LookedUp []string `json:"looked_up"`
}

// A LimitState is one limit of the rule.
type LimitState struct {
	Domain string `json:"domain"`
	Rule   string `json:"rule"`
	Limit  string `json:"limit"`
	Key    string `json:"key"`
	State
	InForce policies.Words `json:"in_force"` // the limit in the words of rules
	Refused int64          `json:"refused"`  // in the last 5 minutes
	Passes  bool           `json:"passes"`
	Shadow  bool           `json:"shadow,omitempty"` // it refuses nobody
}

// Explain renders what a service says of a descriptor, without what replicas have seen.
func Explain(ctx context.Context, s *ratelimit.Service, domain string, entries []descriptors.Entry) (*Explained,
	*ratelimit.Explanation, error) {
	x, err := s.Explain(ctx, domain, entries)
	if err != nil {
		return nil, nil, err
	}
	rules := s.Rules()
	e := &Explained{Key: descriptors.Name(domain, entries), Domain: domain, Why: rules.WhyNoMatch(domain, entries),
		Limits: []LimitState{}}
	e.UnknownDomain = unknownDomain(s, domain)
	if r := x.Rule; r != nil {
		e.Rule, e.Place = r.Domain+"/"+r.Path, placeOf(r)
		e.OnStoreError = x.OnFailure.String()
	}
	for _, r := range nearly(rules, domain, entries) {
		e.Nearly = append(e.Nearly, NearlyRule{r.Domain + "/" + r.Path, placeOf(r)})
	}
	if len(x.Policies) > 0 {
		e.Policy = &PolicyKeys{x.Policy, x.Policies}
	}
	for i := range x.Limits {
		u := &x.Limits[i]
		e.Limits = append(e.Limits, LimitState{Domain: domain, Rule: u.Rule, Limit: descriptors.LimitText(u.Limit),
			Key:     e.Key,
			InForce: policies.WordsOf(u.Limit.Spec()), State: stateOf(u), Passes: !u.Limited || u.Shadow, Shadow: u.Shadow})
	}
	if x.Err == nil {
		e.Passes = &x.Passes
	}
	return e, x, nil
}

func placeOf(r *descriptors.Rule) string {
	if file, line := r.Place(); file != "" {
		return fmt.Sprintf("%s:%d", file, line)
	}
	return ""
}

// explain answers why a request is refused, or would be. It charges nothing and asks the store once.
func (h *Handlers) explain(w http.ResponseWriter, r *http.Request, p web.Params) error {
	d, refusal, err := h.asked(r, p)
	if err != nil {
		return err
	}
	e, x, err := Explain(r.Context(), h.Service, d.domain, d.entries)
	var call *ratelimit.Error
	if errors.As(err, &call) && call.Invalid() {
		return web.BadRequest("%s", web.Clip(call.Message))
	}
	if err != nil {
		return err
	}
	if x.Err != nil {
		e.Problem = "what limits have counted is not known: " + h.reason(x.Err)
	}
	name := e.Key
	t := h.fleetTop(r.Context(), fleet.Refused, 5)
	var problem string
	e.Replicas, e.Note, problem = seen(&t)
	e.Problem = joined(e.Problem, problem)
	e.Key = h.shown(name)
	for i := range e.Limits {
		l := &e.Limits[i]
		l.Key = e.Key
		for _, k := range t.Keys {
			if k.Name == name && k.Rule == l.Rule {
				l.Refused = k.Figure
			}
		}
	}
	if h.HashKeys && e.Policy != nil {
		e.Policy = &PolicyKeys{InForce: h.shown(e.Policy.InForce), LookedUp: nil}
		for _, key := range x.Policies {
			e.Policy.LookedUp = append(e.Policy.LookedUp, h.shown(key))
		}
	}
	for _, one := range h.Watch.Refusals() {
		if (one.Key == name || refusal != nil && one == *refusal) && len(e.Refusals) < maxExplained {
			e.Refusals = append(e.Refusals, h.refusalAnswer(&one))
		}
	}
	web.JSON(w, http.StatusOK, e)
	return nil
}

// maxExplained is the largest number of refusals that an answer reports for one key.
const maxExplained = 20

// asked returns the descriptor that a request is about, and the refusal, if it names one: by domain and descriptor,
// key, or request_id.
func (h *Handlers) asked(r *http.Request, p web.Params) (d descriptor, refusal *insight.Refusal, err error) {
	given := 0
	for _, name := range []string{"descriptor", "key", "request_id"} {
		if p[name] != "" {
			given++
		}
	}
	switch {
	case given != 1 || (p["domain"] != "") != (p["descriptor"] != ""):
		return d, nil, web.BadRequest("give domain and descriptor, or key, or request_id")
	case len(p["descriptor"]) > maxKey || len(p["domain"]) > maxKey || len(p["request_id"]) > maxKey:
		return d, nil, web.BadRequest("a parameter has more than %d bytes", maxKey)
	case p["descriptor"] != "":
		entries, err := Entries(p["descriptor"])
		if err != nil {
			return d, nil, web.BadRequest("descriptor: %s", web.Clip(err.Error()))
		}
		return descriptor{descriptors.Name(p["domain"], entries), p["domain"], entries}, nil, nil
	case p["key"] != "":
		d, err = h.keyNamed(r.Context(), p["key"])
		return d, nil, err
	}
	list := h.Watch.Refusals()
	for i := range list {
		if list[i].RequestID == p["request_id"] {
			d, err = h.keyNamed(r.Context(), list[i].Key)
			return d, &list[i], err
		}
	}
	since := "none was refused since the start"
	if len(list) > 0 {
		since = fmt.Sprintf("they begin at %s", list[len(list)-1].At.UTC().Format(time.RFC3339))
	}
	return d, nil, web.Refuse(http.StatusNotFound, "no refusal of the request %s is among the last ones of this replica "+
		"(%s); of a flood only some are kept, and no requests that pass", web.Clip(p["request_id"]), since)
}

// keyNamed is keyOf for keys that may be hashed, as logs have them: of those that were refused or near.
func (h *Handlers) keyNamed(ctx context.Context, given string) (descriptor, error) {
	if !isHashed(given) {
		if d, err := h.ofPolicy(given); err != nil || d.name != "" {
			return d, err
		}
		return keyOf(given)
	}
	for _, one := range h.Watch.Refusals() {
		if descriptors.HashedName(one.Key) == given {
			return keyOf(one.Key)
		}
	}
	for _, by := range []fleet.By{fleet.Refused, fleet.Near} {
		for _, k := range h.fleetTop(ctx, by, fleet.Minutes).Keys {
			if descriptors.HashedName(k.Name) == given {
				return keyOf(k.Name)
			}
		}
	}
	return descriptor{}, web.Refuse(http.StatusNotFound, "no key with the hash %s was refused or near a limit lately",
		web.Clip(given))
}

// A recentAnswer is the last refusals of this replica, the newest first.
type recentAnswer struct {
	Refusals []RefusalAnswer `json:"refusals"`
	Note     string          `json:"note"`
}

// A RefusalAnswer is a request that was refused.
type RefusalAnswer struct {
	At           time.Time `json:"at"`
	Domain       string    `json:"domain"`
	Rule         string    `json:"rule"`
	Limit        string    `json:"limit"`
	Key          string    `json:"key"`
	Cut          bool      `json:"cut,omitempty"`
	Cause        string    `json:"cause"`
	Tier         string    `json:"tier,omitempty"`
	RetryAfterMS *int64    `json:"retry_after_ms,omitempty"` // absent if no wait helps
	RequestID    string    `json:"request_id,omitempty"`
}

func (h *Handlers) refusalAnswer(r *insight.Refusal) RefusalAnswer {
	a := RefusalAnswer{At: r.At.UTC(), Domain: domainOf(r.Key), Rule: r.Rule, Limit: descriptors.LimitText(r.Limit),
		Key: h.shown(r.Key), Cut: r.Cut, Cause: r.Cause, Tier: r.Tier, RequestID: r.RequestID}
	if r.Wait != limit.Never {
		wait := milliseconds(r.Wait)
		a.RetryAfterMS = &wait
	}
	return a
}

func (h *Handlers) recent(w http.ResponseWriter, _ *http.Request, p web.Params) error {
	n, err := p.Limit(defaultPage, maxPage)
	if err != nil {
		return err
	}
	if key := p["key"]; key != "" && !isHashed(key) {
		if _, err := keyOf(key); err != nil {
			return err
		}
	}
	answer := recentAnswer{Refusals: []RefusalAnswer{},
		Note: "this replica only; of a flood only some refusals are kept, but the first of each key"}
	for _, one := range h.Watch.Refusals() {
		key := cmp.Or(p["key"], one.Key)
		if len(answer.Refusals) < n && (key == one.Key || key == descriptors.HashedName(one.Key)) {
			answer.Refusals = append(answer.Refusals, h.refusalAnswer(&one))
		}
	}
	web.JSON(w, http.StatusOK, answer)
	return nil
}

// Entries reads the entries of a descriptor as people write them: KEY=VALUE,KEY=VALUE.
func Entries(text string) (list []descriptors.Entry, err error) {
	pairs, err := spell.Pairs(text)
	for _, p := range pairs {
		list = append(list, descriptors.Entry{Key: p[0], Value: p[1]})
	}
	return list, err
}
