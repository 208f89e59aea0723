package httpapi

import (
	"net/http"
	"slices"
	"time"

	"github.com/headgate-rls/headgate/internal/kit/spell"
	"github.com/headgate-rls/headgate/internal/kit/web"
	"github.com/headgate-rls/headgate/ratelimit"
)

// A CoverageAnswer is which shapes of descriptors rules match, in this process.
type CoverageAnswer struct {
	Shapes         []ShapeAnswer         `json:"shapes"`
	UnknownDomains []UnknownDomainAnswer `json:"unknown_domains"`
	// ReserveNothing are rules with reserve whose last calls, ten at least, have reserved nothing.
	ReserveNothing []NeverReserving `json:"reserve_nothing"`
}

// A NeverReserving is a rule with reserve that reserves nothing.
type NeverReserving struct {
	Domain string `json:"domain"`
	Rule   string `json:"rule"`
	Calls  int64  `json:"calls"`
	Why    string `json:"why"`
}

// An UnknownDomainAnswer is a domain that calls had and no rules have: nothing of it is limited.
type UnknownDomainAnswer struct {
	Domain  string    `json:"domain"`
	Calls   int64     `json:"calls"`
	First   time.Time `json:"first,omitzero"`
	Last    time.Time `json:"last,omitzero"`
	Caller  string    `json:"caller,omitempty"`
	Similar string    `json:"similar,omitempty"` // a domain that rules have
}

// unknownAs returns the answer about a domain, and known are those that rules have.
func unknownAs(d *ratelimit.UnknownDomain, known []string) UnknownDomainAnswer {
	if len(known) > maxSimilar {
		known = nil
	}
	return UnknownDomainAnswer{Domain: d.Name, Calls: d.Calls, First: d.First.UTC(), Last: d.Last.UTC(),
		Caller: d.Caller, Similar: spell.Nearest(d.Name, known)}
}

// unknownDomain returns what is known of a domain that no rules have; nil if rules have it.
func unknownDomain(s *ratelimit.Service, domain string) *UnknownDomainAnswer {
	known := s.Rules().Domains()
	if slices.Contains(known, domain) {
		return nil
	}
	for _, d := range s.UnknownDomains() {
		if d.Name == spell.Short(domain) {
			answer := unknownAs(&d, known)
			return &answer
		}
	}
	return &UnknownDomainAnswer{Domain: domain}
}

// unknownDomains returns the first of the domains that no rules have, those with most calls first.
func (h *Handlers) unknownDomains(most int) []UnknownDomainAnswer {
	answer := []UnknownDomainAnswer{}
	known := h.Service.Rules().Domains()
	for i, d := range h.Service.UnknownDomains() {
		if i == most {
			break
		}
		answer = append(answer, unknownAs(&d, known))
	}
	return answer
}

// Bounds of unknownDomains: the domains among which a similar one is looked for, and how many /admin/status names.
const (
	maxSimilar = 10_000
	maxNamed   = 5
	all        = -1
)

// A ShapeAnswer is what a process has seen of descriptors with the same keys in a domain.
type ShapeAnswer struct {
	Domain    string    `json:"domain"`
	Entries   []string  `json:"entries"` // keys; none: all shapes of the domain that have no room
	Matched   int64     `json:"matched"`
	Unmatched int64     `json:"unmatched"`
	First     time.Time `json:"first"`
	Last      time.Time `json:"last"`
	Example   string    `json:"example,omitempty"`
	Why       string    `json:"why,omitempty"` // no rule in force matches the example
}

func (h *Handlers) coverage(w http.ResponseWriter, r *http.Request, _ web.Params) error {
	answer := CoverageAnswer{Shapes: []ShapeAnswer{}, UnknownDomains: h.unknownDomains(all)}
	answer.ReserveNothing = []NeverReserving{}
	for _, n := range h.Service.NeverReserving() {
		answer.ReserveNothing = append(answer.ReserveNothing, NeverReserving(n))
	}
	rules := h.Service.Rules()
	shapes := h.Service.Coverage().Shapes()
	if err := web.Keep(w, r, len(shapes)*rowBytes); err != nil {
		return err
	}
	for _, s := range shapes {
		a := ShapeAnswer{Domain: s.Domain, Entries: s.Keys, Matched: s.Matched(), Unmatched: s.Missed.Value(),
			First: time.UnixMicro(s.First).UTC(), Last: s.Last().UTC(), Example: h.shown(s.Example)}
		if a.Entries == nil {
			a.Entries = []string{}
		}
		if a.Unmatched > 0 && s.Example != "" {
			if domain, entries, err := parseName(s.Example); err == nil {
				a.Why = rules.WhyNoMatch(domain, entries)
			}
		}
		answer.Shapes = append(answer.Shapes, a)
	}
	web.JSON(w, http.StatusOK, answer)
	return nil
}

// A ReloadsAnswer is the last changes of rules and policies in this process, the newest first.
type ReloadsAnswer struct {
	Reloads []ReloadAnswer `json:"reloads"`
}

// A ReloadAnswer is a change of rules or policies.
type ReloadAnswer struct {
	At      time.Time `json:"at"`
	Source  string    `json:"source"`
	Changes []string  `json:"changes"`
}

func (h *Handlers) reloads(w http.ResponseWriter, _ *http.Request, _ web.Params) error {
	answer := ReloadsAnswer{Reloads: []ReloadAnswer{}}
	for _, r := range h.Watch.Reloads() {
		answer.Reloads = append(answer.Reloads, ReloadAnswer{r.At.UTC(), r.Source, r.Changes})
	}
	web.JSON(w, http.StatusOK, answer)
	return nil
}
