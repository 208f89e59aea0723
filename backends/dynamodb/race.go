package dynamodb

import (
	"math/rand/v2"
	"time"
)

// A race is what is known of other processes that write to a key. Of those who write at once one has
// its way, and the others try again. If each lets the others pass when it has had its way, the last
// one of n needs n tries. Otherwise some would lose them all: a process that has just written knows the
// item, and would be first again.
type race struct {
	rivals float64       // how many others there are, as far as was seen
	alone  int           // writes since the last pause, without seeing any
	trip   time.Duration // what a call takes
	last   time.Time     // when the last decision ended
	until  time.Time     // when the others have passed
}

const (
	// maxTrip bounds what one slow call makes the next decisions wait.
	maxTrip = 50 * time.Millisecond
	// maxAlone is how often a process writes to a key without a pause. A process that always comes
	// just too late has few tries, and others notice it only when a write of it succeeds.
	maxAlone = 2
)

// took notes how long a call took.
func (r *race) took(d time.Duration) {
	d = min(d, maxTrip)
	if r.trip == 0 {
		r.trip = d
	}
	r.trip += (d - r.trip) / 8
}

// begins notes that a decision begins. If nothing was written for a while, others had their time.
func (r *race) begins(now time.Time) {
	if now.Sub(r.last) > r.trip {
		r.alone = 0
	}
}

// ended notes that a decision has failed to write so many times because of others, and lets them pass.
func (r *race) ended(changes int, now time.Time) {
	r.last = now
	if r.rivals = max(float64(changes), r.rivals*0.9); r.rivals < 0.5 {
		r.rivals = 0
		if r.alone++; r.alone < maxAlone {
			return
		}
	}
	r.alone = 0
	trips := (r.rivals + 1) * (1.5 + rand.Float64()/2)
	r.until = now.Add(time.Duration(trips * float64(r.trip)))
}

// delay is how long to wait after a try that has failed because of others. A process
// that has failed often waits less, and so goes first.
func (r *race) delay(try int) time.Duration {
	return time.Duration(max(0, r.rivals-float64(try)) * rand.Float64() * float64(r.trip))
}
