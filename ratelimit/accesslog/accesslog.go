package accesslog

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	als "github.com/envoyproxy/go-control-plane/envoy/service/accesslog/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/headgate-rls/headgate/ratelimit"
)

// Leases are what the log is about; *ratelimit.Service has them. The methods
// are called concurrently and return when ctx ends.
type Leases interface {
	// Lease ends (ratelimit.OpEnd) or renews (ratelimit.OpRenew) the
	// leases of tokens, which may be anything. What it cannot do in time is
	// its business. The tokens carry their own domain.
	Lease(ctx context.Context, domain, op string, tokens []string)
	// Present says that an owner's access log, which has a name of its own,
	// is connected. It holds for Config.OwnerGrace.
	Present(ctx context.Context, owner, accessLog string) error
}

// domain is where a lease that is not ours comes from, in logs.
const domain = "accesslog"

// Config says where leases are found and what is borne. The zero Config is
// usable.
type Config struct {
	// Namespaces are those of filter_metadata in which leases are looked for;
	// default envoy.filters.http.ratelimit.
	Namespaces []string
	// Keys are the names of leases there, all of which are tried; default
	// ratelimit.DefaultLeaseKey.
	Keys []string
	// MaxStreams is how many streams may be open at once; default 1024. Each
	// worker thread of an Envoy has one.
	MaxStreams int
	// MaxEntries is how many entries of one message are looked at; default
	// 10,000.
	MaxEntries int
	// OwnerGrace is the service's (ratelimit.Config.OwnerGrace); default 15 s.
	// Presence is told three times in it.
	OwnerGrace time.Duration
	// Timeout bounds each call of Leases; default 500 ms.
	Timeout time.Duration
	// Log gets what an operator acts on, at most a line per second; nil
	// discards it.
	Log *slog.Logger
	// Count counts n events; nil counts nothing. It is called concurrently.
	Count func(e Event, n int)
}

// An Event is something that is counted.
type Event uint8

// The events.
const (
	EntryRenews    Event = iota
	EntryReleases        // an end
	EntryIgnored         // has no lease, or is neither periodic nor an end
	EntryMalformed       // is no log entry
	EntryDropped         // exceeded MaxEntries
	StreamOpened
	StreamClosed
	StreamRefused // exceeded MaxStreams
	NumEvents
)

// String returns the event's metric label.
func (e Event) String() string {
	return [NumEvents]string{"renews", "releases", "ignored", "malformed", "dropped", "opened", "closed", "refused"}[e]
}

func (c *Config) setDefaults() {
	if len(c.Namespaces) == 0 {
		c.Namespaces = []string{"envoy.filters.http.ratelimit"}
	}
	if len(c.Keys) == 0 {
		c.Keys = []string{ratelimit.DefaultLeaseKey}
	}
	if c.MaxStreams <= 0 {
		c.MaxStreams = 1024
	}
	if c.MaxEntries <= 0 {
		c.MaxEntries = 10_000
	}
	if c.OwnerGrace <= 0 {
		c.OwnerGrace = 15 * time.Second
	}
	if c.Timeout <= 0 {
		c.Timeout = 500 * time.Millisecond
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Count == nil {
		c.Count = func(Event, int) {}
	}
}

// Register makes s hear of leases by StreamAccessLogs on srv. A stream ends
// when its client ends it or its context ends, which an interceptor may bring
// about; Envoy opens it anew.
func Register(srv grpc.ServiceRegistrar, s Leases, conf Config) {
	srv.RegisterService(&serviceDesc, newServer(s, conf))
}

var serviceDesc = grpc.ServiceDesc{
	ServiceName: als.AccessLogService_ServiceDesc.ServiceName,
	HandlerType: (*streamServer)(nil),
	Streams: []grpc.StreamDesc{{
		StreamName:    als.AccessLogService_ServiceDesc.Streams[0].StreamName,
		ClientStreams: true,
		Handler:       func(s any, stream grpc.ServerStream) error { return s.(streamServer).streamAccessLogs(stream) },
	}},
	Metadata: als.AccessLogService_ServiceDesc.Metadata,
}

type streamServer interface {
	streamAccessLogs(stream grpc.ServerStream) error
}

// A server is what all streams share.
type server struct {
	Config
	leases  Leases
	open    atomic.Int64 // streams
	samples [numTroubles]sampler
}

func newServer(s Leases, conf Config) *server {
	conf.setDefaults()
	return &server{Config: conf, leases: s}
}

func (s *server) streamAccessLogs(stream grpc.ServerStream) error {
	defer s.open.Add(-1)
	if n := s.open.Add(1); n > int64(s.MaxStreams) {
		s.Count(StreamRefused, 1)
		s.warn(tooManyStreams, "an access log is refused: too many are connected", "max", s.MaxStreams)
		return status.Errorf(codes.ResourceExhausted, "more than %d access logs", s.MaxStreams)
	}
	s.Count(StreamOpened, 1)
	defer s.Count(StreamClosed, 1)
	return newReader(s, stream).run()
}

// A trouble is something to be logged now and then.
type trouble uint8

const (
	tooManyStreams trouble = iota
	badEntries
	badStream
	noOwner
	notPresent
	numTroubles
)

func (s *server) warn(t trouble, text string, args ...any) {
	if ok, skipped := s.samples[t].allow(); ok {
		s.Log.Warn(text, append(args, "not_logged", skipped)...)
	}
}

// A sampler lets one event through per second.
type sampler struct{ second, skipped atomic.Int64 }

// allow says whether to log an event now, and how many were left out since
// the last one that was logged.
func (s *sampler) allow() (ok bool, skipped int64) {
	now := time.Now().Unix()
	if s.second.Swap(now) == now {
		s.skipped.Add(1)
		return false, 0
	}
	return true, s.skipped.Swap(0)
}
