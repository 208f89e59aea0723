// Package accesslog is Envoy's gRPC access log service (envoy.service.accesslog.v3.AccessLogService). It reports
// requests in flight to headgate a second time.
//
// # To change it
//
//   - what an entry of the access log does to a lease: decode.go and stream.go; go test ./internal/wire/accesslog
//   - bounds on streams and entries: config.go, server.go and stream.go; go test ./internal/wire/accesslog
//
// # More
//
// Envoy keeps a request's lease as dynamic metadata and writes it with each log entry of the request. An entry of type
// DownstreamPeriodic renews the lease, so that a request may last longer than its lease. An entry of type DownstreamEnd
// ends the lease, in case its release was lost. An open stream shows that the proxies are connected whose leases it has
// reported ([Leases.Watch]). A name alone does not, because anybody could send it. The log must carry the filter's
// metadata:
//
//	access_log_options: {access_log_flush_interval: 5s}
//	access_log:
//	- name: envoy.access_loggers.http_grpc
//	  filter: {metadata_filter: {match_if_key_not_found: false, matcher: {
//	    filter: envoy.filters.http.ratelimit, path: [{key: lease}], value: {present_match: true}}}}
//	  typed_config:
//	    "@type": type.googleapis.com/envoy.extensions.access_loggers.grpc.v3.HttpGrpcAccessLogConfig
//	    common_config:
//	      log_name: headgate
//	      transport_api_version: V3
//	      buffer_size_bytes: 0
//	      grpc_service:
//	        envoy_grpc: {cluster_name: headgate}
//	        initial_metadata: [{key: x-headgate-owner, value: envoy-1}]
//
// The value of x-headgate-owner, or else the node's id, is for logs only: a lease names its owner.
//
// # Lost entries
//
// Ends and renewals must not depend on the access log alone, because headgate does not acknowledge entries. An entry is
// lost without a trace if Envoy writes it while no headgate runs, if it is on its way when headgate stops or a
// connection breaks, or if Envoy's buffer is full. The next renewal makes up for a lost one if a lease lives longer
// than two intervals. The release over RateLimitService makes up for a lost end; otherwise the lease expires. An entry
// that comes twice, late, or after the release does no harm.
//
// Envoy opens the stream with its first entry. After the stream has ended (because headgate restarts, or the connection
// is too old), Envoy may lose one entry and opens another stream with the next. So ratelimit.Config.OwnerGrace must be
// longer than two of Envoy's access_log_flush_intervals. Without such an interval the log does not show that a proxy
// with long requests is present.
//
// # Bounds
//
// [Config] bounds the number of streams, in all and of one peer, the silence of a new stream, the entries of a message,
// and each call to the backend. While the backend decides, a stream reads on, up to a bound; the entries that arrive
// meanwhile form the next call. The package decodes messages by hand, and only the fields that leases need: invalid
// UTF-8 in another field does not end a stream.
package accesslog
