// Package messages has the messages of Envoy's RateLimitService (envoy.service.ratelimit.v3): it decodes requests into
// [ratelimit.Request] and encodes [ratelimit.Response].
//
// # To change it
//
//   - the wire format: internal/wire/messages, what is encoded ahead: Encoder in ratelimit/message.go; go test
//     ./internal/wire/messages -fuzz FuzzDecode
package messages
