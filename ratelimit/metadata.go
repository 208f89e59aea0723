package ratelimit

import "github.com/headgate-rls/headgate/descriptors"

// addMetadata makes the response's dynamic_metadata: the policy that answered, the rule that refuses, the metadata of
// rules whose descriptors are admitted, on request the question itself, and the token of a lease.
func addMetadata(b *batch, c *call) {
	add := func(encoded []byte) { c.resp.metadata = append(c.resp.metadata, encoded) }
	if c.cause != nil {
		add(c.cause.metadata[c.strictest])
	}
	if d := c.refuses; c.resp.OverLimit {
		if d.tier != nil {
			add(d.tier.refused)
		} else {
			add(d.limit.refused)
		}
	}
	c.addRuleMetadata()
	if b.engine.conf.Metadata && c.resp.Err == nil {
		add(encodeMetadata(c.req.describe()))
	}
	if len(c.tokens) > 0 {
		add(c.tokens)
	}
}

// addRuleMetadata adds what rules say under `metadata`, merged: the first
// descriptor's value wins, maps merge level by level.
func (c *call) addRuleMetadata() {
	var one *ruleView
	var merged map[string]any
	for i := range c.decisions {
		v := c.decisions[i].view
		if v == nil || v.meta == nil || c.decisions[i].status.OverLimit {
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
		c.resp.metadata = append(c.resp.metadata, encodeMetadata(map[string]any{"metadata": merged}))
	case one != nil:
		c.resp.metadata = append(c.resp.metadata, one.meta)
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

// describe renders the request as the reference service's dynamic metadata do.
func (r *Request) describe() map[string]any {
	list := make([]any, len(r.Descriptors))
	for i := range r.Descriptors {
		list[i] = r.Descriptors[i].describe()
	}
	m := map[string]any{"domain": r.Domain, "descriptors": list}
	if r.Hits != 0 {
		m["hitsAddend"] = float64(r.Hits)
	}
	return m
}

func (d *Descriptor) describe() map[string]any {
	m := map[string]any{"entries": entryStrings(d.Entries)}
	if d.HasOverride {
		m["limit"] = map[string]any{
			"requestsPerUnit": float64(d.Override.RequestsPerUnit),
			"unit":            d.Override.Unit.String(),
		}
	}
	if d.HasHits {
		m["hitsAddend"] = float64(d.Hits)
	}
	return m
}

func entryStrings(entries []descriptors.Entry) []any {
	out := make([]any, len(entries))
	for i, e := range entries {
		out[i] = e.Key + "=" + e.Value
	}
	return out
}
