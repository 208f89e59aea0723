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
	costSettings     = 20
	costPing         = 5
	costStreamError  = 10 // a request that is not HTTP/2
	costWindowUpdate = 1
	costIgnored      = 2 // PRIORITY and frames of unknown types
	costSmallData    = 1 // DATA of a few bytes that does not end a request
)

// smallData is a DATA frame, in bytes, that is suspiciously small.
const smallData = 64

// maxContinuations is how many frames a header block may have.
const maxContinuations = 32

// maxControl is the size, in bytes, of a SETTINGS frame that is still taken
// for honest: sixteen times what exists.
const maxControl = 768

// pay takes points, and cuts the client off when it has none left.
func (c *conn) pay(points int) {
	if c.patience -= points; c.patience >= 0 {
		return
	}
	elapsed := min(c.now.Sub(c.patienceAt), time.Hour)
	if back := int(elapsed * patiencePerSec / time.Second); back > 0 {
		c.patienceAt = c.now
		c.patience = min(c.patience+back, patience)
	}
	if c.patience < 0 && c.state < stateClosing {
		c.s.stats.floods.Add(1)
		c.fail(http2.ErrCodeEnhanceYourCalm, "too many frames that lead to nothing")
	}
}

// credit gives points back for answered calls.
func (c *conn) credit(answered int) {
	c.patience = min(c.patience+answered*answerCredit, patience)
}
