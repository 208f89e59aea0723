package notify

import "time"

// A Row is what the store keeps of a user. Instants are in microseconds since the epoch, by
// the clock of the database.
type Row struct {
	RateLimit int64 // messages per window
	Minutes   int64 // length of the window
	Count     int64 // messages counted in the window
	// Reserved is how many units of the window were given out, to Redis among others. What
	// was counted may be more, where the database itself has decided.
	Reserved int64
	StartUs  int64 // the beginning of the window: last_refresh_time
	Version  int64 // grows with every change of the configuration
}

// minuteUs is a minute in microseconds.
const minuteUs = int64(time.Minute / time.Microsecond)

// At returns the row as it counts at an instant. A window that has elapsed is followed by a
// new one, which begins then. A window that begins in the future was written by a clock
// that has stepped back: it begins now, with what was counted.
func (r Row) At(nowUs int64) Row {
	switch elapsed := nowUs - r.StartUs; {
	case elapsed >= r.Minutes*minuteUs:
		r.StartUs, r.Count, r.Reserved = nowUs, 0, 0
	case elapsed < 0:
		r.StartUs = nowUs
	}
	return r
}

// Taken returns how many units of the window nobody else may have.
func (r Row) Taken() int64 { return max(r.Count, r.Reserved) }

// Rest returns how long the window lasts from an instant within it.
func (r Row) Rest(nowUs int64) time.Duration {
	return time.Duration(r.StartUs+r.Minutes*minuteUs-nowUs) * time.Microsecond
}

// Take returns the row with one more message counted, if there is room for it.
func (r Row) Take() (Row, bool) {
	if r.Taken() >= r.RateLimit {
		return r, false
	}
	return r.Recount(), true
}

// Recount returns the row with one more message counted, whether there is room or not: the
// message is published already.
func (r Row) Recount() Row {
	r.Count = r.Taken() + 1
	return r
}

// Reserve returns the row with up to n units given out: those from the first to before the
// second number.
func (r Row) Reserve(n int64) (next Row, from, to int64) {
	from = min(r.Taken(), r.RateLimit)
	to = min(from+n, r.RateLimit)
	r.Reserved = max(r.Reserved, to)
	return r, from, to
}
