package server

import (
	"context"
	"io"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/internal/kit/web"
)

// A ruleSource is where rules come from, and what follows them as they change.
type ruleSource interface {
	// begin returns the rules to start with; nil if they are still awaited.
	begin() *descriptors.Set
	// installBy says how new rules are put in force. It is called once, before run.
	installBy(install func(*descriptors.Set) error)
	// run follows the rules until ctx ends.
	run(ctx context.Context) error
	// first is closed when there are rules.
	first() <-chan struct{}
	// part reports whether there are rules, and whether all of them could be read.
	part() web.Part
	// describe writes what there is to say of the rules beside themselves, as lines that
	// begin with #.
	describe(w io.Writer) error
	// String is where the rules come from, for the log.
	String() string
}

// closed is a channel that is closed.
var closed = func() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// noRules is the rule source of a service that only assigns slots. A call that asks for a limit gets an error, as
// before a control plane sends the first rules. With an empty set of rules the call would pass.
type noRules struct{}

func (noRules) begin() *descriptors.Set                { return nil }
func (noRules) installBy(func(*descriptors.Set) error) {}
func (noRules) first() <-chan struct{}                 { return nil }
func (noRules) run(context.Context) error              { return nil }
func (noRules) describe(io.Writer) error               { return nil }
func (noRules) part() web.Part {
	return web.Part{Name: "rules", Problem: "none: only slots are served", Serving: true}
}
func (noRules) String() string { return "none" }
