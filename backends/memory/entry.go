package memory

import "github.com/headgate-rls/headgate/limit"

// An entry is the state under one key. It is small, as there are many: what few states have stands apart. Its memory
// begins at a multiple of 32 bytes, so the four fields that takes write, bytes 32 to 63, are on one cache line.
type entry struct {
	key   string // Key.Group, then Key.Limit
	next  *entry // in the same bucket of the table
	hash  uint32
	group int32 // the length of Key.Group

	at   limit.Instant // these three are a limit.State
	n, m int64
	// due is what the queue is sorted by, and never later than ends: takes mostly move that away,
	// and putting an entry right only when it comes first saves moving it on each take.
	due limit.Instant

	of     *limit.Limit // the one that wrote the state last
	large  *large       // nil without a log and without leases
	budget *budget
	queued int32 // the place in the queue
	place  int32 // the place in the budget
}

// large is the part of a state that grows.
type large struct {
	log     []limit.Record
	leases  *limit.LeaseSet
	count   int64 // of leases, when the state was written
	records int64 // that the memory of log has room for
}

// is reports whether e is the state under a key.
func (e *entry) is(key *limit.Key) bool {
	n := int(e.group)
	return n == len(key.Group) && e.key[:n] == key.Group && e.key[n:] == key.Limit
}

// knows reports whether a request of one op under the key of e is like the one that has written the state: it needs
// no check, and has neither a log nor leases.
func (e *entry) knows(req *limit.Request) bool {
	op := &req.Ops[0]
	return e.of == op.Limit && e.large == nil && !op.Limit.Is(limit.Logged|limit.Leased) && op.Holder == "" &&
		op.AsOf == 0 && !op.Alternative() && req.At != 0
}

// name returns the key, which never changes.
func (e *entry) name() limit.Key { return limit.Key{Group: e.key[:e.group], Limit: e.key[e.group:]} }

// state returns the state.
func (e *entry) state() (s limit.State) {
	e.load(&s)
	return s
}

// load sets s, which must be zero, to the state.
func (e *entry) load(s *limit.State) {
	s.At, s.N, s.M = e.at, e.n, e.m
	if e.large != nil {
		s.Log, s.Leases = e.large.log, e.large.leases
	}
}

// set sets the state; what counts its log and its leases is the caller's.
func (e *entry) set(s *limit.State) {
	e.at, e.n, e.m = s.At, s.N, s.M
	if e.large == nil && (s.Log != nil || s.Leases != nil) {
		e.large = new(large)
	}
	if e.large != nil {
		e.large.log, e.large.leases = s.Log, s.Leases
	}
}

// ends is when the state is as good as unused, as the limit says that wrote it.
func (e *entry) ends() limit.Instant { return e.of.Ends(e.state()) }
