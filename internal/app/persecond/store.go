package persecond

import (
	"context"
	"fmt"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/backends/stack"
)

// nameOf is what the name of the second store ends with, in the log and in metrics.
const nameOf = "-per-second"

// Divide opens a second store, which then decides the limits per second of main. Main's Caps become what both promise.
// The caller runs both stacks, and closes main, which closes the second one.
func Divide(ctx context.Context, main *stack.Stack, url string, opt stack.Options) (*stack.Stack, error) {
	caps, err := stack.Caps(url)
	if err != nil {
		return nil, err
	}
	if main.Caps.Title() != caps.Title() || caps.Local {
		return nil, fmt.Errorf("want a store elsewhere of the kind %s, not %s", main.Caps.Title(), caps.Title())
	}
	opt.NameSuffix = nameOf
	second, err := stack.New(ctx, url, opt)
	if err != nil {
		return nil, err
	}
	main.Caps.Atomicity = backends.PerPartition
	main.Caps.MaxOps = min(main.Caps.MaxOps, caps.MaxOps)
	main.Caps.ServerClock = main.Caps.ServerClock && caps.ServerClock
	main.Backend = &split{main.Backend, whole{second.Backend, second.Close}, opt.Panics}
	return second, nil
}

// A whole is the backend of a stack, whose Close closes all of the stack.
type whole struct {
	backends.Backend
	close func() error
}

func (w whole) Close() error { return w.close() }
