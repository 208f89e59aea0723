package insight

import (
	"slices"
	"sync"
	"time"
)

// maxReloads is how many reloads are kept, and MaxLines how many lines of each.
const (
	maxReloads = 20
	MaxLines   = 20
)

// A Reload is a change of rules or policies that was put in force.
type Reload struct {
	At time.Time
	// Source is "rules" or "policies".
	Source string
	// Changes are what differs, at most MaxLines; the last one counts those that are left out.
	Changes []string
}

// Reloads keeps the last reloads. The zero value has none. It may be used concurrently.
type Reloads struct {
	mu   sync.Mutex
	list []Reload // the oldest first
}

// Add adds a reload.
func (r *Reloads) Add(reload Reload) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.list) == maxReloads {
		r.list = slices.Delete(r.list, 0, 1)
	}
	r.list = append(r.list, reload)
}

// List returns the last reloads, the newest first.
func (r *Reloads) List() []Reload {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := slices.Clone(r.list)
	slices.Reverse(list)
	return list
}
