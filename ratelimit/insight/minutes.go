package insight

import "sync/atomic"

// numMinutes is for how many minutes figures are kept, a power of two; those of rankMinutes decide which keys stay.
const (
	numMinutes  = 16
	rankMinutes = 6
)

// minuteOf returns the minute of an instant in µs since 1970.
func minuteOf(at int64) uint32 { return uint32(at / 60_000_000) }

// minutes are a figure by the minute: in the upper half of each the minute, in the lower one the figure. So nobody
// needs to clear those that are over.
type minutes [numMinutes]atomic.Uint64

// add adds one to the figure of a minute.
func (m *minutes) add(minute uint32) {
	b := &m[minute%numMinutes]
	for {
		v := b.Load()
		if uint32(v>>32) == minute {
			b.Add(1)
			return
		}
		if b.CompareAndSwap(v, uint64(minute)<<32|1) {
			return
		}
	}
}

// raise makes the figure of a minute at least as large as one.
func (m *minutes) raise(minute, figure uint32) {
	b := &m[minute%numMinutes]
	for {
		v := b.Load()
		if uint32(v>>32) == minute && uint32(v) >= figure {
			return
		}
		if b.CompareAndSwap(v, uint64(minute)<<32|uint64(figure)) {
			return
		}
	}
}

// figure returns the figure of the minute that was so many minutes ago.
func (m *minutes) figure(minute, ago uint32) uint32 {
	if v := m[(minute-ago)%numMinutes].Load(); uint32(v>>32) == minute-ago {
		return uint32(v)
	}
	return 0
}

// sum returns the sum of the last n minutes up to one, and largest the largest of their figures.
func (m *minutes) sum(minute uint32, n int) (sum, largest int64) {
	for ago := range uint32(n) {
		f := int64(m.figure(minute, ago))
		sum, largest = sum+f, max(largest, f)
	}
	return sum, largest
}

// A pace allows an event every so many µs, and so many at once. It may be used concurrently.
type pace struct {
	every, burst int64
	full         atomic.Int64 // until when what is allowed is used up
}

// allow reports whether an event may happen at an instant, in µs since 1970. A refusal writes nothing.
func (p *pace) allow(now int64) bool {
	for {
		full := p.full.Load()
		ahead := full - now
		switch {
		case ahead > p.every*(p.burst+1), ahead < 0: // the clock was set back, or nothing has happened for long
			ahead = 0
		case ahead > p.every*(p.burst-1):
			return false
		}
		if p.full.CompareAndSwap(full, now+ahead+p.every) {
			return true
		}
	}
}
