package backends

import "context"

// A Prober is a store that can say what the servers behind its URL are able to do.
type Prober interface {
	// Probe asks the servers for each ability that the store needs, and stops at the first that is missing. It changes no
	// counter.
	Probe(ctx context.Context) []Ability
}

// An Ability is one that a store needs of its servers.
type Ability struct {
	Name string
	Note string // what an operator should know although nothing is missing
	Err  error  // why the store cannot work; nil if it can
	// Warning says what may break limits, such as a setting; empty if nothing does.
	Warning string
}
