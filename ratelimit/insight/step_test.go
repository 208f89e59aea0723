package insight

import (
	"fmt"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/descriptors"
)

// After the clock was a day ahead for a moment, with more new keys than are looked at, the figures are exact again.
func TestAClockThatWasAheadLeavesNoFiguresInexact(t *testing.T) {
	w := NewWatch()
	now := time.Now().UnixMicro()
	ahead := now + 24*time.Hour.Microseconds()
	for i := range 4 * refusedNewcomers {
		w.AddRefused(&Seen{Domain: "d", Entries: []descriptors.Entry{{Key: "k", Value: fmt.Sprint(i)}}, Rule: "r",
			Group: fmt.Sprint(i), At: ahead})
	}
	if _, exact := w.Refused(ahead, 5, 10); exact {
		t.Error("a flood was counted exactly")
	}
	now += 2 * time.Hour.Microseconds()
	w.AddRefused(&Seen{Domain: "d", Rule: "r", Group: "one", At: now})
	if list, exact := w.Refused(now, 5, 10); !exact || len(list) != 1 {
		t.Errorf("two hours later there are %d keys, exact: %v", len(list), exact)
	}
}
