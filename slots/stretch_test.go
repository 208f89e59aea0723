package slots

import (
	"testing"

	"github.com/headgate-rls/headgate/slots/plan"
)

// Callers of all windows of a calendar that is always open wait in a few queues, whichever
// window they begin with, and the next stretch begins where one ends.
func TestCallersOfALongStretchShareAQueue(t *testing.T) {
	const day = 86_400_000
	calendar, err := plan.ParseCalendar([]byte(`{"zone": "UTC", "open": ["mon-sun 00:00-24:00"]}`))
	if err != nil {
		t.Fatal(err)
	}
	s := &Scheduler{queues: map[queueKey]*queue{}}
	for _, sizeMs := range []int64{4000, 7000, day} {
		clear(s.queues)
		first := plan.WindowStart(-500*day*1000, sizeMs)
		for at := first; at < first+1080*day; at += 3 * day / sizeMs * sizeMs {
			from, to, ok := calendar.Span(at, sizeMs)
			end := stretchEnd(from, sizeMs)
			if !ok || end <= from || end%sizeMs != 0 || end > to {
				t.Fatalf("the stretch of the window at %d of %d ms ends at %d, open until %d", from, sizeMs, end, to)
			}
			s.queues[queueKey{"c", true, end}] = new(queue)
		}
		if n := len(s.queues); n > 5 {
			t.Errorf("windows of %d ms: callers of 1080 days wait in %d queues, want at most 5", sizeMs, n)
		}
	}
}
