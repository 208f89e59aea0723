package ratelimit

import (
	"strconv"

	"github.com/headgate-rls/headgate/descriptors"
)

// A tierView is a tier, prepared for answers.
type tierView struct {
	*descriptors.Tier
	label    string // in metrics and logs
	refused  []byte // encoded metadata of a refusal
	delay    string // value of DelayHeader, "" for none
	hasRetry bool   // Headers has a Retry-After
	series   *ruleSeries
	number   int
}

func newTierViews(rule *descriptors.Rule, name string) []tierView {
	tiers := make([]tierView, len(rule.Concurrency.Tiers))
	for i := range tiers {
		t, v := &rule.Concurrency.Tiers[i], &tiers[i]
		v.Tier, v.label = t, t.Name
		if v.label == "" {
			v.label = strconv.FormatInt(t.Threshold, 10)
		}
		v.refused = encodeMetadata(map[string]any{"rule": name, "tier": v.label, "deny_status": strconv.Itoa(t.Status)})
		if t.Status == 0 && t.Delay > 0 {
			v.delay = strconv.FormatInt(t.Delay.Milliseconds(), 10)
		}
		for _, h := range t.Headers {
			v.hasRetry = v.hasRetry || h.Name == "retry-after"
		}
	}
	return tiers
}
