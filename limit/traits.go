package limit

// A Trait is what sets some algorithms apart for those who keep, share or give
// back what was taken. Ask [Limit.Is] or [Algorithm.Is], so that a new algorithm
// is a row in algorithms.go and no case elsewhere.
type Trait uint8

const (
	// Leased algorithms count requests in flight, each by a lease that has a
	// holder, and not units per time.
	Leased Trait = 1 << iota
	// Aligned algorithms count in windows aligned to the Unix epoch. Units that
	// were taken in one can be given back until it ends.
	Aligned
	// Windowed algorithms keep a debt as units that the next windows begin with.
	// The state of others lies ahead until it is paid back.
	Windowed
	// Isolated algorithms forget all units of a window when it ends: none of
	// them counts in the next one.
	Isolated
	// Refilled algorithms return units one after the other, up to Burst. See
	// [Limit.Interval].
	Refilled
	// Logged algorithms keep a record of each admission, so that their state
	// grows with the limit.
	Logged
	// Prefetched algorithms let a replica take units ahead ([Limit.Share]) and
	// spend them later.
	Prefetched
)
