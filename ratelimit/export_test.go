package ratelimit

import (
	"testing"

	"github.com/headgate-rls/headgate/limit"
)

// What the tests in package ratelimit_test need, which serve a service by package transport.
type Harness = harness

// Wire is package messages, which imports this one: link_test.go sets it.
var Wire struct {
	Encoder Encoder
	Decode  func(r *Request, message []byte) error
	Append  func(r *Response, b []byte) []byte
}

// NewInsight is that of package insight, likewise.
var NewInsight func() Sink

const (
	BasicRules    = basic
	FailingRules  = failing
	InFlightRules = inFlightRules
)

var (
	ProtoRequest = protoRequest
	ModelCaps    = modelCaps
	Unlogged     = unlogged
	Desc         = desc
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

// Acquire gets a lease and returns its token.
func (h *harness) Acquire(entries string) string { return h.acquire(entries) }

// Ask asks about one descriptor in domain "d".
func (h *harness) Ask(entries string) { h.ask(desc(entries)) }

// WantInFlight fails the test unless so many requests are in flight.
func (h *harness) WantInFlight(n int64) { h.Helper(); h.wantInFlight(n) }

// Takes returns how often the model backend was asked.
func (h *harness) Takes() int { return h.be.takes }

// AskShop asks about descriptors in domain "shop", one hit each.
func (h *harness) AskShop(entries ...string) {
	var list []Descriptor
	for _, e := range entries {
		list = append(list, desc(e))
	}
	h.askDomain("shop", 1, list...)
}

// Instant is what time it is for the service.
func (h *harness) Instant() limit.Instant { return h.now }
