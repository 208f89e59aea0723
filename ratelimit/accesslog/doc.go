// Package accesslog is Envoy's gRPC access log service
// (envoy.service.accesslog.v3.AccessLogService) as a second way on which
// headgate hears of requests in flight.
//
// Envoy keeps a request's lease as dynamic metadata and writes it with each log
// entry of the request. An entry of type DownstreamPeriodic renews the lease,
// so that a request may last longer than one life of it; one of type
// DownstreamEnd ends the lease, should its release have got lost; and a stream
// stands for the proxy whose leases it has brought: while it is open, that proxy
// is there ([Leases.Watch]). A name alone says nothing, since anybody could
// give it. For this the log must carry what the filter has in its metadata:
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
// What x-headgate-owner says, or else the node's id, is for logs: leases say
// whose they are.
//
// # What is lost
//
// It is never the only way. Nothing is acknowledged: an entry that Envoy writes
// while no headgate is there, or that is on its way when one stops, is lost
// without a trace on either side, and what Envoy dropped because its buffer was
// full never gets here. A lost renewal is made good by the next one, if a lease
// lives longer than two intervals; a lost end by the release over
// RateLimitService, or else the lease expires. Entries written shortly before a
// connection breaks may be lost as well. Entries come twice or late, or
// after the release: that does no harm.
//
// Envoy opens the stream with its first entry, and again, after it was ended
// (by a restart of headgate, or the connection's age), with the next but one:
// the next may be lost. So ratelimit.Config.OwnerGrace must be longer than two of Envoy's
// access_log_flush_intervals, and a log without such an interval says nothing
// of a proxy's presence that long requests could rely on.
//
// # Bounds
//
// Streams, in all and of one peer, how long a new one may be silent, entries of a message, what waits for a slow backend, and each call
// to it are bounded ([Config]). A stream reads on while the backend is asked,
// so that what comes in the meantime goes together in the next call. Messages
// are decoded by hand and only as far as leases are concerned: text that is not
// UTF-8 somewhere else in an entry does not cost a stream.
package accesslog
