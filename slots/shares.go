package slots

import "sync"

// shares keep one config from taking all that configs share: the places of waiters and the connections of
// the pool. While searches of one config wait for locks, those of others go on.
type shares struct {
	waiting, searches int // what one config may have of each at a time; 0 searches: any number
	most              int // waiters of all configs

	mu      sync.Mutex
	all     int               // waiters
	configs map[string]*share // by name, while waiters are there
}

// A share is what a config has.
type share struct {
	of      *shares
	name    string
	waiting int           // waiters
	search  chan struct{} // has a place for each search at the same time; nil: any number
}

// newShares gives one config three quarters of what there is, and at least one of each.
func newShares(waiters, connections int) *shares {
	s := &shares{most: waiters, waiting: max(1, waiters-waiters/4), configs: make(map[string]*share)}
	if connections > 1 {
		s.searches = connections - max(1, connections/4)
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
		if s.searches > 0 {
			h.search = make(chan struct{}, s.searches)
		}
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
	}
}

// begin waits until the config may start one more search. The wait ends, as every search has a deadline.
func (h *share) begin() {
	if h.search != nil {
		h.search <- struct{}{}
	}
}

func (h *share) end() {
	if h.search != nil {
		<-h.search
	}
}
