package ratelimit

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/limit"
)

// A slowAnswer is a backend whose answer arrives after something else has happened.
type slowAnswer struct {
	*modelBackend
	after func()
}

func (b *slowAnswer) Take(ctx context.Context, reqs []limit.Request, out []limit.Verdict) {
	b.modelBackend.Take(ctx, reqs, out)
	if f := b.after; f != nil {
		b.after = nil
		f()
	}
}

// TestNothingIsGivenBackToTheNextWindow: what a refused request took of a window
// that has ended since makes no room in the next one.
func TestNothingIsGivenBackToTheNextWindow(t *testing.T) {
	for _, algorithm := range []string{"fixed_window", "sliding_window"} {
		t.Run(algorithm, func(t *testing.T) {
			be := &slowAnswer{}
			h := setup(t, `
domain: d
descriptors:
  - {key: quota, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: hard, limits: [{limit: 3, window: 1m, algorithm: `+algorithm+`}]}
`, func(c *Config) { be.modelBackend, c.Backend = c.Backend.(*modelBackend), be })
			h.want(h.ask(desc("quota=1")), "OK: ok/0")
			h.now += limit.Instant(time.Minute.Microseconds()) - 1
			be.after = func() {
				h.now += limit.Instant(time.Minute.Microseconds()) + 1 // the one taken weighs nothing any more
				for range 3 {
					h.ask(desc("hard=1"))
				}
			}
			h.want(h.ask(desc("quota=1"), desc("hard=1")), "OVER: over/0 ok/2")
			h.want(h.ask(desc("hard=1")), "OVER: over/0")
		})
	}
}

// TestFailedLocalFallbackKeepsShadowMode: a rule in shadow mode refuses nothing when
// the local fallback fails, too.
func TestFailedLocalFallbackKeepsShadowMode(t *testing.T) {
	const rules = `
domain: d
descriptors:
  - {key: shadow, shadow_mode: true, on_backend_error: local, rate_limit: {unit: minute, requests_per_unit: 2}}
  - {key: real, on_backend_error: local, rate_limit: {unit: minute, requests_per_unit: 2}}
`
	for policy, want := range map[descriptors.FailurePolicy]string{
		descriptors.FailDeny:  "OVER: over/0",
		descriptors.FailError: "error: not decided: neither the backend nor the local fallback answers",
	} {
		h := setup(t, rules, func(c *Config) { c.OnBackendError = policy })
		h.be.err, h.local.err = errors.New("away"), errors.New("away, too")
		h.want(h.ask(desc("shadow=1")), "OK: ok")
		h.want(h.ask(desc("real=1")), want)
	}
}

// TestLocalChargesAreGivenBackLocally: what a refused request took of the local
// fallback is given back there, and not to the backend that took nothing.
func TestLocalChargesAreGivenBackLocally(t *testing.T) {
	h := setup(t, `
domain: d
descriptors:
  - {key: quota, quota_mode: true, on_backend_error: local, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: hard, on_backend_error: local, rate_limit: {unit: minute, requests_per_unit: 3}}
`)
	h.want(h.ask(desc("hard=1")), "OK: ok/2")
	h.be.err = errors.New("away")
	h.want(h.ask(desc("quota=1")), "OK: ok/0")
	takes := h.be.takes
	h.be.before, h.be.err = func() error {
		if h.be.takes == takes+1 {
			return errors.New("away once more")
		}
		return nil
	}, nil
	h.want(h.ask(desc("quota=1"), desc("hard=1")), "OVER: over/0 ok/2")
	h.want(h.ask(desc("hard=1")), "OK: ok/1")
	h.be.before, h.be.err = nil, errors.New("away")
	h.want(h.ask(desc("hard=1")), "OK: ok/2")
}
