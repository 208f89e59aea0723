package unary

import (
	"time"

	"golang.org/x/net/http2"
)

// Patience is what a connection has for frames that cost us work and bring no
// call nearer to its end. Each costs points; time and answered calls give them
// back. A client that does its calls never comes near the end; a flood does at
// once, and is cut off.
const (
	patience       = 10_000 // points at most
	patiencePerSec = 1_000  // points given back each second
	answerCredit   = 10     // points given back by an answered call

	costReset        = 10 // a call taken back before it reached its handler
	costUseless      = 5  // a frame on a stream that is closed, an empty DATA or CONTINUATION
	costRefused      = 5  // a call above the bound on calls in flight
	costPing         = 5
	costStreamError  = 10 // a request that is not HTTP/2
	costWindowUpdate = 1
	costIgnored      = 2 // PRIORITY and frames of unknown types
	costSmallData    = 1 // DATA of a few bytes that does not end a request

	// Frames that have us walk streams or answers cost a point for each of so
	// many more.
	walkPerPoint = 8
	// A message that is decompressed costs a point for each inflatedPerPoint bytes
	// beyond inflation times its compressed size.
	inflation        = 8
	inflatedPerPoint = 256
)

// SETTINGS are paid from points of their own, which answered calls do not give
// back: no client has a reason to send many.
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

// pay takes points and tells whether there were enough.
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

// smallData is a DATA frame, in bytes, that is suspiciously small.
const smallData = 64

// maxContinuations is how many frames a header block may have.
const maxContinuations = 32

// maxControl is the size, in bytes, of a SETTINGS frame that is still taken
// for honest: sixteen times what exists.
const maxControl = 768

// pay takes points, and cuts the client off when it has none left.
func (c *conn) pay(points int) { c.payFrom(&c.patience, points) }

func (c *conn) payFrom(b *budget, points int) {
	if !b.pay(points, c.now) && c.state < stateClosing {
		c.s.stats.floods.Add(1)
		c.fail(http2.ErrCodeEnhanceYourCalm, "too many frames that lead to nothing")
	}
}

// credit gives points back for answered calls.
func (c *conn) credit(answered int) {
	c.patience.points = min(c.patience.points+answered*answerCredit, patience)
}
