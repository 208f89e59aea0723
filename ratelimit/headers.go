package ratelimit

import (
	"strconv"
	"time"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/internal/kit/units"
	"github.com/headgate-rls/headgate/limit"
)

// addHeaders adds the headers about limits.
func (c *call) addHeaders(b *batch, who *refusal) {
	h := &b.engine.conf.Headers
	if h.Limit == "" && h.Remaining == "" && h.Reset == "" && !h.IETF {
		return
	}
	at, view := c.closest(who)
	if view == nil {
		return
	}
	st := &c.resp.Statuses[at]
	c.addHeader(h.Limit, strconv.FormatUint(uint64(clampUint32(view.limit.Max())), 10))
	c.addHeader(h.Remaining, strconv.FormatUint(uint64(st.Remaining), 10))
	c.addHeader(h.Reset, strconv.FormatInt(st.Reset, 10))
	if h.IETF {
		c.addIETF(view, st)
	}
}

func (c *call) addIETF(view *limitView, st *Status) {
	window := view.limit.Window()
	if view.limit.Is(limit.Leased) { // it is the life of a lease
		window = 0
	}
	policy, state := IETFFields(view.label, view.limit.Max(), window, int64(st.Remaining), st.Reset)
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
	policy = `"` + name + `";q=` + strconv.FormatUint(uint64(clampUint32(most)), 10)
	if window > 0 {
		policy += ";w=" + strconv.FormatInt(units.CeilSeconds(window), 10)
	}
	return policy, `"` + name + `";r=` + strconv.FormatInt(remaining, 10) + ";t=" + strconv.FormatInt(reset, 10)
}

// closest returns the status that headers are about: the one that refuses,
// else the one with the least left.
func (c *call) closest(who *refusal) (int, *limitView) {
	if who.view != nil {
		return who.part, who.view
	}
	best := -1
	for i := range c.resp.Statuses {
		if st := &c.resp.Statuses[i]; st.limit != nil && (best < 0 || st.Remaining < c.resp.Statuses[best].Remaining) {
			best = i
		}
	}
	if best < 0 {
		return 0, nil
	}
	return best, c.resp.Statuses[best].limit
}

func (c *call) addHeader(name, value string) {
	if name != "" {
		c.resp.Headers = append(c.resp.Headers, descriptors.Header{Name: name, Value: value})
	}
}

// refuse adds what only a refusal has, and logs it.
func (c *call) refuse(b *batch, who *refusal) {
	h := &b.engine.conf.Headers
	if who.wait != limit.Never && (who.tier == nil || !who.tier.hasRetry) {
		c.addHeader(h.RetryAfter, strconv.FormatInt(max(units.CeilSeconds(who.wait), 1), 10))
	}
	c.addHeader(h.Rule, who.view.name)
	if t := who.tier; t != nil {
		t.hits.Inc()
		c.addResponse(t.Content, t.Headers)
	} else if r := c.parts[who.part].view.rule.Response; r != nil {
		c.addResponse(r.Content, r.Headers)
	}
	b.engine.logRefusal(c.req, who)
}

func (c *call) addResponse(content string, headers []descriptors.Header) {
	c.resp.Body = content
	c.resp.Headers = append(c.resp.Headers, headers...)
}
