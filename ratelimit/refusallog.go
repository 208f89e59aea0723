package ratelimit

import (
	"context"
	"log/slog"
	"time"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/limit"
)

// refusalsPerSecond is how many refusals are logged in a second at level debug, if the Config
// does not say how many at level info.
const refusalsPerSecond = 10

// maxLoggedKey bounds a key in the log, in bytes.
const maxLoggedKey = 300

// refusalLevel is the level of refusals in the log.
func (e *engine) refusalLevel() slog.Level {
	if e.conf.LogRefusals > 0 {
		return slog.LevelInfo
	}
	return slog.LevelDebug
}

// LogsRefusals reports whether refusals are logged, so that transports need not read what only
// the log has.
func (e *engine) LogsRefusals() bool {
	return e.conf.Log.Enabled(context.Background(), e.refusalLevel())
}

// logRefusal logs a refused request, of some in each second. Nothing that all cores
// share is written unless somebody wants to see it.
func logRefusal(b *Batch, c *Call) {
	if !c.Response.OverLimit {
		return
	}
	e, d, ctx := b.engine, c.Refuses, context.Background()
	log, level := e.conf.Log, e.refusalLevel()
	if !log.Enabled(ctx, level) {
		return
	}
	ok, skipped := e.refusals.Allow()
	if !ok {
		return
	}
	cause := "limit"
	if d.Cause != nil {
		cause = d.Cause.Label
	}
	key, trace := e.LoggedKey(c.Request.Domain, d.Entries), traceID(c.Request)
	if d.Tier != nil {
		log.Log(ctx, level, "request refused by a tier", "domain", c.Request.Domain, "rule", d.Limit.Name,
			"tier", d.Tier.Label, "key", key, "request_id", c.Request.RequestID, "trace_id", trace, "suppressed", skipped)
		return
	}
	log.Log(ctx, level, "request refused", "domain", c.Request.Domain, "rule", d.Limit.Name,
		"cause", cause, "retry_after", waitValue(d.Wait), "key", key, "request_id", c.Request.RequestID, "trace_id", trace,
		"suppressed", skipped)
}

// waitValue returns a wait as the log has it.
func waitValue(wait time.Duration) slog.Value {
	if wait == limit.Never {
		return slog.StringValue("never")
	}
	return slog.DurationValue(wait)
}

// LoggedKey returns what the log calls a descriptor: its name, whose values may be personal, or the
// first 16 digits of the name's SHA-256.
func (e *engine) LoggedKey(domain string, entries []descriptors.Entry) string {
	name := descriptors.Name(domain, entries)
	if e.conf.LogKeys {
		return name[:min(len(name), maxLoggedKey)]
	}
	return descriptors.HashedName(name)
}
