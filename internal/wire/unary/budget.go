package unary

import "time"

// A connection's patience is a budget for frames that cost us work and bring no
// call nearer to its end. Each costs points; time and answered calls give points
// back. A client that makes calls never comes near the end of it. A flood does at
// once, and its connection is closed.
const (
	patience       = 10_000 // points at most
	patiencePerSec = 1_000  // points given back each second
	answerCredit   = 10     // points given back by an answer that the client lets us send

	costReset        = 10 // a call that is cancelled before it reaches its handler
	costUseless      = 5  // a frame on a stream that is closed, an empty DATA or CONTINUATION
	costRefused      = 5  // a call above the bound on calls in flight, or without memory for it
	costUnread       = 50 // an answer for which there is neither window nor memory
	costPing         = 5
	costStreamError  = 10 // a request that is not HTTP/2
	costWindowUpdate = 1
	costIgnored      = 2 // PRIORITY and frames of unknown types
	costSmallData    = 1 // DATA of a few bytes that does not end a request

	// A frame that makes us walk over streams or answers costs one more point for
	// so many of them.
	walkPerPoint = 8
	// A message that is decompressed costs a point for each inflatedPerPoint bytes
	// beyond inflation times its compressed size.
	inflation        = 8
	inflatedPerPoint = 256
)

// SETTINGS are paid from a budget of their own, which answered calls do not
// refill: no client has a reason to send many.
const (
	settingsPatience       = 4_000 // points at most
	settingsPatiencePerSec = 100

	costSettings = 20
)

// A budget is points that come back with time.
type budget struct {
	points, most, perSec int
	at                   time.Time // until when they have come back
}

func newBudget(most, perSec int, now time.Time) budget {
	return budget{points: most, most: most, perSec: perSec, at: now}
}

// pay takes points and reports whether there were enough.
func (b *budget) pay(points int, now time.Time) bool {
	if b.points -= points; b.points >= 0 {
		return true
	}
	elapsed := min(now.Sub(b.at), time.Hour)
	if back := int(elapsed * time.Duration(b.perSec) / time.Second); back > 0 {
		b.at = now
		b.points = min(b.points+back, b.most)
	}
	return b.points >= 0
}

// refill gives points back.
func (b *budget) refill(points int) { b.points = min(b.points+points, b.most) }
