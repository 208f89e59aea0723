package background

import "context"

type yieldKey struct{}

// WithYield returns a context for work that has something others wait for, such as a turn: yield gives that back, and
// returns what takes it again.
func WithYield(ctx context.Context, yield func() (resume func())) context.Context {
	return context.WithValue(ctx, yieldKey{}, yield)
}

// Yield is for work that goes on to wait for others, such as a database in another process. The caller calls resume
// before it computes again. Without [WithYield] both do nothing.
func Yield(ctx context.Context) (resume func()) {
	if yield, ok := ctx.Value(yieldKey{}).(func() (resume func())); ok {
		return yield()
	}
	return func() {}
}

// YieldIf is Yield for work that may have nothing to wait for, as where a store computes in this process.
func YieldIf(ctx context.Context, waits bool) (resume func()) {
	if !waits {
		return func() {}
	}
	return Yield(ctx)
}
