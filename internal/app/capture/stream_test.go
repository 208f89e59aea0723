package capture

import (
	"fmt"
	"strings"
	"testing"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/ratelimit"
)

// TestLargeRequestsInFlightTakeLittleMemory: clients choose how large their requests are, and how many of them
// do not end.
func TestLargeRequestsInFlightTakeLittleMemory(t *testing.T) {
	s := newStream(Config{Sample: 1})
	large := strings.Repeat("x", 100<<10)
	request := &ratelimit.Request{Domain: "shop",
		Descriptors: []ratelimit.Descriptor{{Entries: []descriptors.Entry{{Key: "busy", Value: large}}}}}
	const requests = 200
	for i := range requests {
		s.see(&ratelimit.Asked{Request: request, At: limit.Instant(i), Holder: fmt.Sprint(i)})
	}
	held := 0
	for holder, p := range s.pending {
		held += len(holder) + len(p.tail)
	}
	if held == 0 || held > maxPendingBytes {
		t.Errorf("%d bytes of lines wait for the ends of %d requests, want some and at most %d", held, requests,
			maxPendingBytes)
	}
	if lines, dropped := s.counts(); int(lines+dropped)+len(s.pending) != requests {
		t.Errorf("%d requests: %d lines, %d dropped, %d wait", requests, lines, dropped, len(s.pending))
	}
	for i := range requests {
		s.ended(fmt.Sprint(i), limit.Instant(requests), ratelimit.Settled, 1)
		s.take(nil)
	}
	s.see(&ratelimit.Asked{Request: request, Holder: "later"})
	s.giveUp(limit.MaxInstant)
	if len(s.pending) != 0 || s.pendingBytes != 0 {
		t.Errorf("%d lines of %d bytes still wait after the end of all requests", len(s.pending), s.pendingBytes)
	}
}
