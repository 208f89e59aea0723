package ratelimit

import (
	"time"

	"github.com/headgate-rls/headgate/descriptors"
)

// asked is for how long a domain counts as in use that was asked about.
const asked = 10 * time.Minute

// maxLines bounds what is reported of one change of rules.
const maxLines = 20

// noteRules logs what new rules change, and reports it to the Config.
func (e *engine) noteRules(set, old *descriptors.Set) {
	diff := set.Compare(old)
	if diff.Empty() {
		return
	}
	e.coverage.RulesChanged()
	changes := diff.Lines(maxLines)
	if e.conf.RulesChanged != nil {
		e.conf.RulesChanged(changes)
	}
	e.conf.Log.Info("rules changed", "limits", len(diff.Limits), "taken_away", diff.TakenAway(), "changes", changes)
	for _, domain := range diff.DomainsRemoved {
		if last := e.coverage.LastAsked(domain); time.Since(last) < asked {
			e.conf.Log.Warn("a domain that is in use has no rules any more: its requests are not limited", "domain", domain,
				"last_asked", last.UTC())
		}
	}
}
