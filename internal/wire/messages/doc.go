// Package messages has the messages of Envoy's RateLimitService (envoy.service.ratelimit.v3): it decodes requests into
// [ratelimit.Request] and encodes [ratelimit.Response].
//
// # To change it
//
//   - the wire format: messages.go and ratelimit/message.go (Encoder: what is encoded in advance); go test
//     ./internal/wire/messages; go test ./internal/wire/messages -fuzz FuzzDecode
package messages
