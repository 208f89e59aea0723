// Package messages has the messages of Envoy's RateLimitService (envoy.service.ratelimit.v3): it decodes requests into
// [ratelimit.Request] and encodes [ratelimit.Response].
package messages
