package accesslog

import (
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/headgate-rls/headgate/internal/wire/transport"

	"github.com/headgate-rls/headgate/ratelimit/leases"
)

// Register makes srv answer StreamAccessLogs and apply what access logs say to s.
// A stream ends when its client closes it or its context ends, which an
// interceptor may cause; Envoy then opens another one.
func Register(srv grpc.ServiceRegistrar, s Leases, conf Config) {
	srv.RegisterService(&serviceDesc, newServer(s, conf))
}

// serviceDesc describes envoy.service.accesslog.v3.AccessLogService. The generated package would link all log types.
var serviceDesc = grpc.ServiceDesc{
	ServiceName: "envoy.service.accesslog.v3.AccessLogService",
	HandlerType: (*any)(nil),
	Streams: []grpc.StreamDesc{{
		StreamName:    "StreamAccessLogs",
		ClientStreams: true,
		Handler:       func(s any, stream grpc.ServerStream) error { return s.(*server).streamAccessLogs(stream) },
	}},
	Metadata: "envoy/service/accesslog/v3/als.proto",
}

func (s *server) streamAccessLogs(stream grpc.ServerStream) error {
	peer := transport.PeerOf(stream.Context())
	if !s.enter(peer) {
		s.Count(leases.StreamRefused, 1)
		s.warn("access log refused: too many streams", "peer", peer, "max", s.MaxStreams, "max_per_peer", s.MaxStreamsPerPeer)
		return status.Errorf(codes.ResourceExhausted, "more than %d access log streams are open, or %d of one peer",
			s.MaxStreams, s.MaxStreamsPerPeer)
	}
	defer s.leave(peer)
	s.Count(leases.StreamOpened, 1)
	defer s.Count(leases.StreamClosed, 1)
	return newReader(s, stream).run()
}
