package server

import (
	"context"
	"io"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/internal/kit/web"
)

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
