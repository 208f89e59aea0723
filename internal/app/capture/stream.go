package capture

import (
	"strings"
	"sync"
	"time"

	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/ratelimit"
)

// Bounds of a stream, in bytes and lines.
const (
	maxQueued       = 4 << 20  // lines that wait to be written
	maxPending      = 16 << 10 // lines that wait for the ends of their requests
	maxPendingBytes = 8 << 20  // of the same lines
)

// pendingFor is how long a line waits for the end of its request, at most.
const pendingFor = 5 * time.Minute

// A stream is lines on their way to one reader.
type stream struct {
	Config
	ready chan struct{} // has an element if there may be lines

	mu      sync.Mutex
	queue   []byte
	pending map[string]pending // by the names of leases: lines that wait for the ends of their requests
	lines   int64
	dropped int64

	pendingBytes int // of all of them, as pending.size says

	// keep reports whether there is room in memory for so many bytes, which count from then on; nil: there is.
	keep func(bytes int) bool
	kept int // bytes that count
}

// keepStep is how many bytes a stream asks for at a time.
const keepStep = 256 << 10

// room reports whether there is room in memory for more. What is queued counts twice: as it is sent, more is queued.
// The caller holds the lock.
func (s *stream) room(more int) bool {
	need := 2*(len(s.queue)+more) + s.pendingBytes
	if s.keep == nil || need <= s.kept {
		return true
	}
	need = (need/keepStep + 1) * keepStep
	if !s.keep(need) {
		return false
	}
	s.kept = need
	return true
}

// A pending line is of a request in flight.
type pending struct {
	at   limit.Instant
	tail string
}

func (p pending) size(holder string) int { return len(holder) + len(p.tail) }

func newStream(c Config) *stream {
	return &stream{Config: c, ready: make(chan struct{}, 1), pending: map[string]pending{}}
}

// buffers are for lines in the making.
var buffers = sync.Pool{New: func() any { b := make([]byte, 0, 1024); return &b }}

// see queues the line of a request.
func (s *stream) see(a *ratelimit.Asked) {
	first := a.First()
	if first < 0 || !Sampled(s.Sample, a.Request.Domain, a.Request.Descriptors[first].Entries) {
		return
	}
	buffer := buffers.Get().(*[]byte)
	defer buffers.Put(buffer)
	b := (*buffer)[:0]
	if a.Holder != "" {
		b = s.tail(b, a)
		s.wait(a.Holder, pending{a.At, string(b)})
	} else {
		b = s.tail(begin(b, a.At), a)
		s.mu.Lock()
		s.add(b)
		s.mu.Unlock()
	}
	if cap(b) <= 64<<10 {
		*buffer = b
	}
}

// add queues a line, or drops it. The caller holds the lock.
func (s *stream) add(line []byte) {
	if len(s.queue)+len(line) > maxQueued || !s.room(len(line)) {
		s.dropped++
		return
	}
	s.lines++
	s.queue = append(s.queue, line...)
	select {
	case s.ready <- struct{}{}:
	default:
	}
}

// wait keeps a line until its request ends. A call that was repeated has the lease that it had.
func (s *stream) wait(holder string, p pending) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, there := s.pending[holder]; there {
		return
	}
	if len(s.pending) >= maxPending || s.pendingBytes+p.size(holder) > maxPendingBytes || !s.room(p.size(holder)) {
		s.add(append(begin(nil, p.at), p.tail...))
		return
	}
	s.pendingBytes += p.size(holder)
	s.pending[strings.Clone(holder)] = p
}

// drop removes a line that waits.
func (s *stream) drop(holder string, p pending) {
	s.pendingBytes -= p.size(holder)
	delete(s.pending, holder)
}

// ended queues the line of a request that has ended.
func (s *stream) ended(holder string, at limit.Instant, how ratelimit.ReservationEnd, cost int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p, there := s.pending[holder]; there {
		s.drop(holder, p)
		s.add(append(spent(until(begin(nil, p.at), max(at, p.at)), how, cost), p.tail...))
	}
}

// giveUp queues the lines that have waited since before an instant, without an end.
func (s *stream) giveUp(before limit.Instant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for holder, p := range s.pending {
		if p.at < before {
			s.drop(holder, p)
			s.add(append(begin(nil, p.at), p.tail...))
		}
	}
}

// take returns the lines that wait, in the place of memory to use again.
func (s *stream) take(memory []byte) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	lines := s.queue
	s.queue = memory[:0]
	return lines
}

// counts returns how many lines were queued and dropped.
func (s *stream) counts() (lines, dropped int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lines, s.dropped
}
