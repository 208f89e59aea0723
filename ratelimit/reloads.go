package ratelimit

import (
	"slices"
	"sync"
	"time"

	"github.com/headgate-rls/headgate/descriptors"
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
	changes := diff.Lines(maxLines)
	e.reloads.add(Reload{At: time.Now(), Source: "rules", Changes: changes})
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
	s.reloads.add(Reload{At: time.Now(), Source: "policies", Changes: changes})
}

// Reloads returns the last changes of rules and policies, the newest first.
func (s *Service) Reloads() []Reload { return s.reloads.newest() }

// maxReloads is how many reloads are kept, and maxLines how many lines of each.
const (
	maxReloads = 20
	maxLines   = 20
)

// A Reload is a change of rules or policies that was put in force.
type Reload struct {
	At time.Time
	// Source is "rules" or "policies".
	Source string
	// Changes are what differs, at most maxLines; the last one counts those that are left out.
	Changes []string
}

// reloads keeps the last reloads. The zero value has none. It may be used concurrently.
type reloads struct {
	mu   sync.Mutex
	list []Reload // the oldest first
}

func (r *reloads) add(reload Reload) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.list) == maxReloads {
		r.list = slices.Delete(r.list, 0, 1)
	}
	r.list = append(r.list, reload)
}

// newest returns the last reloads, the newest first.
func (r *reloads) newest() []Reload {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := slices.Clone(r.list)
	slices.Reverse(list)
	return list
}
