package slotstest

import (
	"github.com/headgate-rls/headgate/slots"
)

// grainMs divides all sizes that a simulation of the earliest windows uses.
const grainMs = 250

// earliest is what "the earliest window with room" means, as a plain map: where
// slots are scheduled, scope by scope, and nothing else. It knows no windows,
// since a window counts what is scheduled inside it under any size and config.
type earliest struct {
	configs map[string]slots.NewConfig
	scopes  map[string]map[int64]int64 // slots by scope and grain
	events  map[string]placedEvent
}

type placedEvent struct {
	scope                string
	windowMs, scheduleMs int64
}

func newEarliest() *earliest {
	return &earliest{configs: map[string]slots.NewConfig{}, scopes: map[string]map[int64]int64{},
		events: map[string]placedEvent{}}
}

func scopeOf(c slots.NewConfig) string {
	if c.Options.Scope != "" {
		return c.Options.Scope
	}
	return c.Name
}

// put is a change of a config that was accepted. A config that moves to another
// scope takes what is scheduled with it: that counts in both.
func (e *earliest) put(c slots.NewConfig) {
	before, had := e.configs[c.Name]
	e.configs[c.Name] = c
	from, to := scopeOf(before), scopeOf(c)
	if !had || from == to {
		return
	}
	for grain, n := range e.scopes[from] {
		e.add(to, grain*grainMs, n)
	}
}

func (e *earliest) add(scope string, ms, n int64) {
	if e.scopes[scope] == nil {
		e.scopes[scope] = map[int64]int64{}
	}
	e.scopes[scope][floor(ms, grainMs)/grainMs] += n
}

// count is how many slots are scheduled in a window.
func (e *earliest) count(scope string, startMs, sizeMs int64) (n int64) {
	for ms := startMs; ms < startMs+sizeMs; ms += grainMs {
		n += e.scopes[scope][ms/grainMs]
	}
	return n
}

// window is the earliest one with room for an event that asks for an instant.
func (e *earliest) window(name string, us int64) int64 {
	c := e.configs[name]
	scope, size := scopeOf(c), c.SizeMs
	first := floor(us, size*1000) / 1000
	// Of the places of the first window, those count that belong to what is left of it.
	over := us - first*1000
	overMs := (over + 999) / 1000
	if e.count(scope, first, size) < c.Max*(size-overMs)/size {
		return first
	}
	w := first + size
	for e.count(scope, w, size) >= c.Max {
		w += size
	}
	return w
}

// place notes where an event is.
func (e *earliest) place(event, config string, windowMs, scheduledMs int64) {
	scope := scopeOf(e.configs[config])
	e.events[event] = placedEvent{scope, windowMs, scheduledMs}
	e.add(scope, scheduledMs, 1)
}

// purge forgets what is scheduled before the instant.
func (e *earliest) purge(beforeMs int64) {
	for event, p := range e.events {
		if p.scheduleMs < beforeMs {
			delete(e.events, event)
		}
	}
	for _, grains := range e.scopes {
		for grain := range grains {
			if grain*grainMs < beforeMs {
				delete(grains, grain)
			}
		}
	}
}

// empty reports whether nothing is scheduled in the scope.
func (e *earliest) empty(scope string) bool {
	for _, n := range e.scopes[scope] {
		if n > 0 {
			return false
		}
	}
	return true
}

// mixed reports whether configs of a scope have windows of different sizes, which
// count each other's slots only as of when the windows are made.
func (e *earliest) mixed(scope string) bool {
	size := int64(0)
	for _, c := range e.configs {
		if scopeOf(c) != scope {
			continue
		}
		if size != 0 && c.SizeMs != size {
			return true
		}
		size = c.SizeMs
	}
	return false
}

// floor is the greatest multiple of size that is not after v.
func floor(v, size int64) int64 {
	m := v % size
	if m < 0 {
		m += size
	}
	return v - m
}
