package accesslog

import (
	"sync"
	"sync/atomic"

	"github.com/headgate-rls/headgate/internal/kit/background"
)

// A server is what all streams share.
type server struct {
	Config
	leases  Leases
	delayed atomic.Int64 // bytes of tokens that are kept back
	logged  background.LogLimits

	mu   sync.Mutex
	open int // streams
	of   map[string]int
}

func newServer(s Leases, conf Config) *server {
	conf.setDefaults()
	return &server{Config: conf, leases: s, logged: background.LogLimits{PerSecond: 1}, of: map[string]int{}}
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

// warn logs a message, at most once per second.
func (s *server) warn(message string, args ...any) {
	if ok, skipped := s.logged.Allow(message); ok {
		s.Log.Warn(message, append(args, "suppressed", skipped)...)
	}
}
