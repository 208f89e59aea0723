package insight

import (
	"slices"
	"time"
)

// maxReloads is how many reloads are kept.
const maxReloads = 20

// A Reload is a change of rules or policies that was put in force.
type Reload struct {
	At time.Time
	// Source is "rules" or "policies".
	Source string
	// Changes are what differs, at most 20 lines; the last one counts those that are left out.
	Changes []string
}

// RulesChanged keeps a change of rules: see [ratelimit.Config].
func (w *Watch) RulesChanged(changes []string) { w.reloaded("rules", changes) }

// PoliciesChanged keeps a change of policies.
func (w *Watch) PoliciesChanged(changes []string) { w.reloaded("policies", changes) }

func (w *Watch) reloaded(source string, changes []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.reloads) == maxReloads {
		w.reloads = slices.Delete(w.reloads, 0, 1)
	}
	w.reloads = append(w.reloads, Reload{At: time.Now(), Source: source, Changes: changes})
}

// Reloads returns the last changes, the newest first.
func (w *Watch) Reloads() []Reload {
	w.mu.Lock()
	defer w.mu.Unlock()
	list := slices.Clone(w.reloads)
	slices.Reverse(list)
	return list
}
