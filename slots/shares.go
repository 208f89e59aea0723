package slots

import (
	"slices"
	"sync"
)

// shares keep few configs from taking all that configs share: the places of waiters and the connections of
// the pool. While searches of some configs wait for locks, those of others go on.
type shares struct {
	waiting, searches int // what one config may have of each at a time; 0 searches: any number
	most              int // waiters of all configs
	together          int // searches of all configs, but that each config may have its part of searches

	mu      sync.Mutex
	all     int               // waiters
	running int               // searches
	configs map[string]*share // by name, while waiters are there
	queued  []*share          // with searches that wait
}

// A share is what a config has.
type share struct {
	of      *shares
	name    string
	waiting int             // waiters
	running int             // searches
	queue   []chan struct{} // searches that wait; closed when they may start
}

// newShares gives one config three quarters of what there is, and all configs seven eighths of the connections; each
// at least one.
func newShares(waiters, connections int) *shares {
	s := &shares{most: waiters, waiting: max(1, waiters-waiters/4), configs: make(map[string]*share)}
	if connections > 1 {
		s.searches, s.together = connections-max(1, connections/4), connections-max(1, connections/8)
	}
	return s
}

// join counts a waiter of a config, until it leaves. ok is false if there are too many.
func (s *shares) join(name string) (of *share, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.configs[name]
	if h == nil {
		h = &share{of: s, name: name}
		s.configs[name] = h
	}
	s.all++
	h.waiting++
	return h, s.all <= s.most && h.waiting <= s.waiting
}

func (h *share) leave() {
	h.of.mu.Lock()
	defer h.of.mu.Unlock()
	h.of.all--
	if h.waiting--; h.waiting == 0 {
		delete(h.of.configs, h.name)
		h.of.admit() // the parts of others are larger
	}
}

// begin waits until the config may start one more search. The wait ends, as every search has a deadline.
func (h *share) begin() {
	s := h.of
	s.mu.Lock()
	if len(h.queue) == 0 && s.hasRoom(h) {
		h.start()
		s.mu.Unlock()
		return
	}
	if len(h.queue) == 0 {
		s.queued = append(s.queued, h)
	}
	ready := make(chan struct{})
	h.queue = append(h.queue, ready)
	s.mu.Unlock()
	<-ready
}

func (h *share) start() {
	h.running++
	h.of.running++
}

func (h *share) end() {
	s := h.of
	s.mu.Lock()
	defer s.mu.Unlock()
	h.running--
	s.running--
	s.admit()
}

// admit starts searches that wait while there is room for them, one of each config in turn.
func (s *shares) admit() {
	for i := 0; i < len(s.queued); {
		h := s.queued[i]
		if !s.hasRoom(h) {
			i++
			continue
		}
		h.start()
		close(h.queue[0])
		h.queue = h.queue[1:]
		s.queued = slices.Delete(s.queued, i, i+1)
		if len(h.queue) > 0 {
			s.queued = append(s.queued, h)
		}
	}
}

// hasRoom reports whether a config may start one more search.
func (s *shares) hasRoom(h *share) bool {
	part := max(1, s.searches/max(1, len(s.configs)))
	return s.searches == 0 || h.running < part || h.running < s.searches && s.running < s.together
}
