// Package middleware limits the requests of a net/http server by the rules of a [headgate.Limiter].
//
// # To change it
//
//   - who a request is from: extract.go and clientip.go; go test ./middleware/...
//   - how it is refused: respond.go; go test ./middleware/...
//   - when its lease ends: handler.go and hijack.go; go test ./middleware/...
//   - the same for gRPC: grpclimit; go test ./middleware/grpclimit
//
// # More
//
//	limit := middleware.Handler(limiter, middleware.Config{
//		Domain: "shop",
//		Descriptors: []middleware.Descriptor{
//			{{Key: "client", Value: middleware.ClientIP(middleware.TrustedHops(1))}},
//			{{Key: "route", Value: middleware.Route()}, {Key: "key", Value: middleware.APIKey()}},
//		},
//	})
//	mux.Handle("POST /pay", limit(pay))
//
// Each descriptor has its own entries, and so each rule its own extractors. A request for which an entry has no value
// is not described by that descriptor, as in Envoy; use [Or] to fall back on another value. Rules by method and path
// (resources) need no descriptor: the request is described to them where there are any.
//
// A refused request is answered with 429 and Retry-After, or with the response that its rule has. Where a rule limits
// requests in flight, the request has a lease, see [Config].Hold.
//
// Routers that take func(http.Handler) http.Handler, such as chi, take the result of [Handler] as it is.
// docs/library.md in the repository shows chi, echo and gin.
package middleware
