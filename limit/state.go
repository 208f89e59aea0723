package limit

// A State is what a store keeps under one key. The zero State is an unused
// key. What the fields mean depends on the algorithm, which is part of the
// key, so a state is only ever read by the algorithm that wrote it; the
// figures of its limit may have changed meanwhile, and any old state is
// acceptable.
//
//	               At                      N                         M
//	FixedWindow    start of a window       units taken in it         -
//	SlidingWindow  start of a window       units taken in it         in the one before
//	TokenBucket    instant of the level    level, in 1/den µs        num: one unit of N
//	SlidingLog     latest record           sum of the records        -
//
// A window that owes has more units taken than its limit allows. A bucket or log
// that owes has its instant and its records ahead of the op that wrote it, by the
// time in which that is paid back.
type State struct {
	At  Instant
	N   int64
	M   int64
	Log []Record // SlidingLog only, oldest first

	// Leases has all there is to know of a Concurrency limit, nil if it is
	// unused; the other fields are zero.
	Leases *LeaseSet
}

// A Record is one admission in a SlidingLog.
type Record struct {
	At Instant
	N  int64
}
