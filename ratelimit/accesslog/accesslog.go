package accesslog

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	als "github.com/envoyproxy/go-control-plane/envoy/service/accesslog/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/headgate-rls/headgate/internal/safego"
	"github.com/headgate-rls/headgate/ratelimit"
)

// Leases are what the log is about; *ratelimit.Service has them. The methods
// are called concurrently and return when ctx ends.
type Leases interface {
	// Lease ends (ratelimit.OpEnd) or renews (ratelimit.OpRenew) the
	// leases of tokens, which may be anything, and returns whose they are.
	// What it cannot do in time is its business. The tokens carry their own
	// domain.
	Lease(ctx context.Context, domain, op string, tokens []string) []ratelimit.OwnerID
	// Watch says that an access log is open that has brought leases of the
	// owner's, until the returned function is called.
	Watch(owner ratelimit.OwnerID) (closed func())
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
	// MaxStreams is how many streams may be open at once; default 4096. Each
	// worker thread of an Envoy has one. MaxStreamsPerPeer bounds those of one
	// peer, which is an identity in a client certificate, or else a host;
	// default a quarter of MaxStreams.
	MaxStreams, MaxStreamsPerPeer int
	// FirstEntry is how long a stream may be silent when it is new; default
	// 10 s. Envoy opens one when it has something to say.
	FirstEntry time.Duration
	// EndDelay is for how long ends are kept back, so that the call about the
	// same end comes first; default 1 s. When the stream ends they are passed
	// on at once.
	EndDelay time.Duration
	// MaxEntries is how many entries of one message are looked at; default
	// 10,000.
	MaxEntries int
	// Timeout bounds each call of Leases; default 500 ms.
	Timeout time.Duration
	// Log gets what an operator acts on, at most a line per second; nil
	// discards it.
	Log *slog.Logger
	// Count counts n events; nil counts nothing. It is called concurrently.
	Count func(e Event, n int)
	// Panics are reported to it; nil means to the default logger.
	Panics *safego.Reporter
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
	StreamRefused // exceeded MaxStreams or MaxStreamsPerPeer
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
		c.MaxStreams = 4096
	}
	if c.MaxStreamsPerPeer <= 0 {
		c.MaxStreamsPerPeer = max(1, c.MaxStreams/4)
	}
	if c.FirstEntry <= 0 {
		c.FirstEntry = 10 * time.Second
	}
	if c.EndDelay <= 0 {
		c.EndDelay = time.Second
	}
	if c.MaxEntries <= 0 {
		c.MaxEntries = 10_000
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
	delayed atomic.Int64 // bytes of tokens that are kept back
	samples [numTroubles]sampler

	mu   sync.Mutex
	open int // streams
	of   map[string]int
}

func newServer(s Leases, conf Config) *server {
	conf.setDefaults()
	return &server{Config: conf, leases: s, of: map[string]int{}}
}

func (s *server) streamAccessLogs(stream grpc.ServerStream) error {
	peer := ratelimit.PeerOf(stream.Context())
	if !s.enter(peer) {
		s.Count(StreamRefused, 1)
		s.warn(tooManyStreams, "an access log is refused: too many are connected", "peer", peer, "max", s.MaxStreams, "max_per_peer", s.MaxStreamsPerPeer)
		return status.Errorf(codes.ResourceExhausted, "more than %d access logs, or %d of one peer", s.MaxStreams, s.MaxStreamsPerPeer)
	}
	defer s.leave(peer)
	s.Count(StreamOpened, 1)
	defer s.Count(StreamClosed, 1)
	return newReader(s, stream).run()
}

// enter counts a stream in, unless there are too many.
func (s *server) enter(peer string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open >= s.MaxStreams || s.of[peer] >= s.MaxStreamsPerPeer {
		return false
	}
	s.open++
	s.of[peer]++
	return true
}

func (s *server) leave(peer string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open--
	if s.of[peer]--; s.of[peer] == 0 {
		delete(s.of, peer)
	}
}

// A trouble is something to be logged now and then.
type trouble uint8

const (
	tooManyStreams trouble = iota
	badEntries
	badStream
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
