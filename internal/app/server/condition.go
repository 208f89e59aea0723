package server

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/headgate-rls/headgate/internal/kit/background"
)

// A condition is whether something that the service needs answers. Its zero value
// says that it does.
type condition struct{ wrong atomic.Pointer[string] }

// set notes err, and reports whether that changes the condition.
func (c *condition) set(err error) (changed bool) {
	if err == nil {
		return c.wrong.Swap(nil) != nil
	}
	text := err.Error()
	return c.wrong.Swap(&text) == nil
}

// problem returns what is wrong; ok=false if nothing is.
func (c *condition) problem() (text string, ok bool) {
	if wrong := c.wrong.Load(); wrong != nil {
		return *wrong, true
	}
	return "", false
}

// watch sets the condition by what check says, at once and then every second, until
// ctx ends. changed is called when it is another.
func (c *condition) watch(ctx context.Context, check func(context.Context) error, changed func(error)) {
	background.Every(ctx, time.Second, func(ctx context.Context) {
		if err := check(ctx); ctx.Err() == nil && c.set(err) {
			changed(err)
		}
	})
}
