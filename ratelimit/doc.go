// Package ratelimit is Envoy's RateLimitService (envoy.service.ratelimit.v3)
// on top of rules and a backend.
//
// [Service.Decide] is the one way to an answer: it matches the descriptors
// against the rules, asks the backend once, and turns the verdict into
// statuses, headers and metadata. Transports decode into [Request] and encode
// from [Response] ([Register] for grpc-go, [JSONHandler] for HTTP).
//
// Policy lives here and nowhere below: shadow and quota mode, what is charged
// when, what to answer when the backend fails ([descriptors.FailurePolicy]).
package ratelimit
