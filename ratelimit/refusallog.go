package ratelimit

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"

	"github.com/headgate-rls/headgate/descriptors"
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
func logRefusal(b *batch, c *call) {
	if !c.resp.OverLimit {
		return
	}
	e, d, ctx := b.engine, c.refuses, context.Background()
	log, level := e.conf.Log, e.refusalLevel()
	if !log.Enabled(ctx, level) {
		return
	}
	ok, skipped := e.refusals.Allow()
	if !ok {
		return
	}
	message, why := "request refused", slog.Any("retry_after", d.wait)
	if d.tier != nil {
		message, why = "request refused by a tier", slog.String("tier", d.tier.label)
	}
	log.LogAttrs(ctx, level, message, slog.String("domain", c.req.Domain), slog.String("rule", d.limit.name), why,
		slog.String("key", e.loggedKey(c.req.Domain, d.entries)), slog.String("request_id", c.req.RequestID),
		slog.String("trace_id", traceID(c.req)), slog.Int64("suppressed", skipped))
}

// loggedKey returns what the log calls a descriptor: its name, whose values may be personal, or the
// first 16 digits of the name's SHA-256.
func (e *engine) loggedKey(domain string, entries []descriptors.Entry) string {
	name := descriptors.Name(domain, entries)
	if e.conf.LogKeys {
		return name[:min(len(name), maxLoggedKey)]
	}
	sum := sha256.Sum256([]byte(name))
	return "sha256:" + hex.EncodeToString(sum[:8])
}
