package ratelimit

import (
	"time"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/ratelimit/insight"
)

// asked is for how long a domain counts as in use that was asked about.
const asked = 10 * time.Minute

// noteRules logs what new rules change, and keeps it.
func (e *engine) noteRules(set, old *descriptors.Set) {
	diff := set.Compare(old)
	if diff.Empty() {
		return
	}
	e.coverage.RulesChanged()
	changes := diff.Lines(insight.MaxLines)
	e.reloads.Add(insight.Reload{At: time.Now(), Source: "rules", Changes: changes})
	e.conf.Log.Info("rules changed", "limits", len(diff.Limits), "taken_away", diff.TakenAway(), "changes", changes)
	for _, domain := range diff.DomainsRemoved {
		if last := e.coverage.LastAsked(domain); time.Since(last) < asked {
			e.conf.Log.Warn("a domain that is in use has no rules any more: its requests are not limited", "domain", domain,
				"last_asked", last.UTC())
		}
	}
}

// NotePolicies logs what changed in policies that were put in force, and keeps it.
func (s *Service) NotePolicies(changes []string) {
	s.reloads.Add(insight.Reload{At: time.Now(), Source: "policies", Changes: changes})
}

// Reloads returns the last changes of rules and policies, the newest first.
func (s *Service) Reloads() []insight.Reload { return s.reloads.List() }
