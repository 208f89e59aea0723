// Package transport serves a [ratelimit.Service] by the ways that need generated code:
// grpc-go ([Register]) and JSON over HTTP ([JSONHandler]). Who decides in process
// imports package ratelimit alone, and no gRPC.
package transport
