package ratelimit

import (
	"strconv"
	"time"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/limit"
)

// addHeaders adds the headers about limits, and what only a refusal has: headers of its own, and a body.
func addHeaders(b *Batch, c *Call) {
	h := &b.engine.conf.Headers
	if h.Limit != "" || h.Remaining != "" || h.Reset != "" || h.IETF {
		c.addLimitHeaders(h)
	}
	if c.Response.OverLimit {
		c.addRefusalHeaders(h)
	}
}

func (c *Call) addLimitHeaders(h *Headers) {
	d := c.closest()
	if d == nil {
		return
	}
	most, _ := d.Limit.Limit.Quota()
	c.addHeader(h.Limit, strconv.FormatInt(most, 10))
	c.addHeader(h.Remaining, strconv.FormatInt(d.Left, 10))
	c.addHeader(h.Reset, strconv.FormatInt(d.status.Reset, 10))
	if h.IETF {
		c.addIETF(d)
	}
}

func (c *Call) addRefusalHeaders(h *Headers) {
	d := c.Refuses
	if d.Wait != limit.Never && (d.Tier == nil || !d.Tier.hasRetry) {
		c.addHeader(h.RetryAfter, strconv.FormatInt(max(ceilSeconds(d.Wait), 1), 10))
	}
	c.addHeader(h.Rule, d.Limit.Name)
	if t := d.Tier; t != nil {
		c.addResponse(t.Content, t.Headers)
	} else if r := d.view.rule.Response; r != nil {
		c.addResponse(r.Content, r.Headers)
	}
}

func (c *Call) addIETF(d *Decision) {
	view := d.Limit
	most, window := view.Limit.Quota()
	if view.Limit.Is(limit.Leased) { // it is the life of a lease
		window = 0
	}
	policy, state := IETFFields(view.label, most, window, d.Left, d.status.Reset)
	c.addHeader("RateLimit-Policy", policy)
	c.addHeader("RateLimit", state)
}

// IETFFields returns the fields RateLimit-Policy and RateLimit as
// draft-ietf-httpapi-ratelimit-headers-10 has them, about a limit of most units per window
// (0 for limits on requests in flight). Names of limits are visible ASCII without quotes and
// backslashes, and so need no escapes.
func IETFFields(name string, most int64, window time.Duration, remaining, reset int64) (policy, state string) {
	if name == "" {
		name = "default"
	}
	policy = `"` + name + `";q=` + strconv.FormatInt(most, 10)
	if window > 0 {
		policy += ";w=" + strconv.FormatInt(ceilSeconds(window), 10)
	}
	return policy, `"` + name + `";r=` + strconv.FormatInt(remaining, 10) + ";t=" + strconv.FormatInt(reset, 10)
}

// closest returns the decision that headers are about: the one that refuses, else the one with the least left; nil
// if no limit applies.
func (c *Call) closest() *Decision {
	if c.Refuses != nil {
		return c.Refuses
	}
	var best *Decision
	for i := range c.Decisions {
		d := &c.Decisions[i]
		if d.Limit == nil || d.Outcome == OutcomeNotChosen {
			continue
		}
		if best == nil || d.Left < best.Left {
			best = d
		}
	}
	return best
}

func (c *Call) addHeader(name, value string) {
	if name != "" {
		c.Response.Headers = append(c.Response.Headers, descriptors.Header{Name: name, Value: value})
	}
}

func (c *Call) addResponse(content string, headers []descriptors.Header) {
	c.Response.Body = content
	c.Response.Headers = append(c.Response.Headers, headers...)
}

// addMetadata makes the response's dynamic_metadata: the policy that answered, the rule that refuses, the metadata of
// rules whose descriptors are admitted, on request the question itself, the token of a lease, and figures that statuses
// have no room for.
func addMetadata(b *Batch, c *Call) {
	add := func(encoded []byte) { c.Response.metadata = append(c.Response.metadata, encoded) }
	if len(c.choices) > 0 {
		c.addChosen(b.engine.conf.Encoder) // first, as what follows must not be hidden by what rules say
	}
	if c.Request.Diagnoses && c.lacksDomain() {
		add(b.engine.conf.Encoder.AppendText(nil, "no_domain", b.rules.set.WhyNoMatch(c.Request.Domain, nil)))
	}
	if c.cause != nil {
		c.Response.note = b.engine.conf.Encoder.AppendText(c.Response.note[:0], c.cause.note, c.strictest.String())
		add(c.Response.note)
	}
	if c.Response.OverLimit {
		d := c.Refuses
		switch {
		case d.Tier != nil:
			add(d.Tier.refused)
		case !b.engine.conf.HideRule:
			add(d.Limit.refused)
		}
	}
	c.addRuleMetadata(b.engine.conf.Encoder)
	if b.engine.conf.Metadata && c.Response.Err == nil {
		add(b.engine.conf.Encoder.Question(c.Request))
	}
	if len(c.Response.token) > 0 {
		add(c.Response.token)
	}
	if c.units > 0 {
		add(b.engine.conf.Encoder.AppendText(nil, "reserved", strconv.FormatInt(c.units, 10)))
	}
	if exact := c.exact(); exact != nil {
		add(b.engine.conf.Encoder.Struct(map[string]any{"exact": exact}))
	}
}

// exact returns the figures of statuses that are scaled, by the number of their descriptor; nil if there are none.
func (c *Call) exact() (figures map[string]any) {
	for i := range c.Decisions {
		d := &c.Decisions[i]
		if d.Limit == nil || d.Limit.wide == 0 {
			continue
		}
		if figures == nil {
			figures = map[string]any{}
		}
		most, _ := d.Limit.Limit.Quota()
		figures[strconv.Itoa(i)] = map[string]any{"limit": float64(most), "remaining": float64(d.Left)}
	}
	return figures
}

// addRuleMetadata adds what rules say under `metadata`, merged: the first
// descriptor's value wins, maps merge level by level.
func (c *Call) addRuleMetadata(encoder Encoder) {
	var one *ruleView
	var merged map[string]any
	for i := range c.Decisions {
		v := c.Decisions[i].view
		if v == nil || v.meta == nil || c.Decisions[i].status.OverLimit || c.Decisions[i].candidate {
			continue
		}
		switch {
		case one == nil:
			one = v
			continue
		case merged == nil:
			merged = merge(map[string]any{}, one.rule.Metadata)
		}
		merge(merged, v.rule.Metadata)
	}
	switch {
	case merged != nil:
		c.Response.metadata = append(c.Response.metadata, encoder.Struct(map[string]any{"metadata": merged}))
	case one != nil:
		c.Response.metadata = append(c.Response.metadata, one.meta)
	}
}

// merge adds to into what it lacks of from, and returns it. It copies maps:
// from belongs to the rules.
func merge(into, from map[string]any) map[string]any {
	for k, v := range from {
		old, ok := into[k]
		sub, isMap := v.(map[string]any)
		switch oldMap, oldIsMap := old.(map[string]any); {
		case !ok && isMap:
			into[k] = merge(map[string]any{}, sub)
		case !ok:
			into[k] = v
		case isMap && oldIsMap:
			merge(oldMap, sub)
		}
	}
	return into
}
