package ratelimit

import (
	"slices"
	"testing"

	"github.com/headgate-rls/headgate/backends"
)

// TestRefusalsAreCountedByTheirLimit: a refusal counts for the limit that
// refuses, whatever values the request has; what shadows and failure policies
// say is no limit's refusal.
func TestRefusalsAreCountedByTheirLimit(t *testing.T) {
	h := setup(t, `
domain: d
descriptors:
  - key: k
    detailed_metric: true
    on_backend_error: deny
    limits:
      - {name: two, algorithm: sliding_log, limit: 2, window: 1m}
      - {algorithm: sliding_log, limit: 4, window: 1h}
      - {name: shadow, algorithm: sliding_log, limit: 1, window: 1h, shadow: true}
  - {key: fly, concurrency: [{threshold: 1, response: {statusCode: 429}}]}
`)
	for range 3 {
		h.ask(desc("k=a"))
	}
	h.now = h.now.Add(60e9)
	for range 4 {
		h.ask(desc("k=a"))
	}
	for range 3 {
		h.ask(desc("fly=a"))
	}
	h.be.err = backends.ErrUnavailable
	h.ask(desc("k=a"))
	for name, want := range map[string]int{
		"d/k refused by two": 1, "d/k refused by 2": 2, "d/k refused by shadow": 0, "d/fly refused by concurrency": 2,
		"d/k_a failed_closed": 1,
	} {
		if got := h.counts.count(name); got != want {
			t.Errorf("%s: %d, want %d; all: %v", name, got, want, h.counts.all())
		}
	}
}

// TestLimitLabelsDiffer: no two limits of a rule have the same label.
func TestLimitLabelsDiffer(t *testing.T) {
	set := mustLoad(t, `
domain: d
descriptors:
  - key: k
    limits:
      - {name: "2", algorithm: sliding_log, limit: 2, window: 1m}
      - {algorithm: sliding_log, limit: 4, window: 1h}
      - {name: concurrency, algorithm: sliding_log, limit: 4, window: 2h}
    concurrency: [{threshold: 1, response: {statusCode: 429}}]
`)
	var names []string
	for _, l := range LimitLabels(set.Rules()[0]) {
		names = append(names, l.Name)
	}
	if want := []string{"2", "2'", "concurrency", "concurrency'"}; !slices.Equal(names, want) {
		t.Errorf("%q", names)
	}
}
