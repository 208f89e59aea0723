// Package ratelimit is Envoy's RateLimitService (envoy.service.ratelimit.v3)
// on top of rules and a backend.
//
// [Service.Decide] makes every answer: it matches the descriptors against the
// rules, asks the backend once, and turns the verdict into statuses, headers and
// metadata. Package internal/wire/messages decodes [Request] and encodes [Response] for
// transports. Its [Encoder] encodes in advance what is the same in many responses.
//
// Only this package applies policy: shadow and quota mode, when limits are
// charged, and the answer when the backend fails ([descriptors.FailurePolicy]).
package ratelimit
