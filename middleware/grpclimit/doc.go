// Package grpclimit limits the calls of a gRPC server by the rules of a [headgate.Limiter].
//
// # To change it
//
//   - how calls are limited and refused: grpclimit.go; go test ./middleware/grpclimit
//
// # More
//
//	server := grpc.NewServer(
//		grpc.UnaryInterceptor(grpclimit.Unary(limiter, conf)),
//		grpc.StreamInterceptor(grpclimit.Stream(limiter, conf)),
//	)
//
// A refused call fails with RESOURCE_EXHAUSTED. Its details have a RetryInfo if waiting helps, and its header metadata
// have x-ratelimit-limit, x-ratelimit-remaining and retry-after, in seconds. A call counts as one in flight until its
// handler returns or panics; a stream is one call.
package grpclimit
