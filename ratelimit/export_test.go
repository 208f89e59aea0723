package ratelimit

import "testing"

// What the tests in package ratelimit_test need, which serve a service by package transport.
type Harness = harness

const (
	MaxDescriptors = maxDescriptors
	BasicRules     = basic
	FailingRules   = failing
)

var (
	ProtoRequest = protoRequest
	ModelCaps    = modelCaps
)

// Setup returns a service on a model backend.
func Setup(t *testing.T, rules string, change ...func(*Config)) *Harness {
	return setup(t, rules, change...)
}

// CountCall counts how a call ended, for Count.
var CountCall = (*harness).countCall

// Count returns how often something was counted.
func (h *harness) Count(name string) int { return h.counts.count(name) }

// Fail has the model backend fail with err.
func (h *harness) Fail(err error) { h.be.fail(err) }
