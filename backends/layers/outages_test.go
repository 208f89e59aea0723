package layers

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/backends/layers/breaker"
)

func TestOutagesAreLoggedOnceEach(t *testing.T) {
	var text strings.Builder
	now := time.Unix(1_800_000_000, 0)
	l := &outageLog{log: slog.New(slog.NewTextHandler(&text, nil)), name: "redis", now: func() time.Time { return now }}
	lines := func(want ...string) {
		t.Helper()
		var got []string
		for line := range strings.Lines(text.String()) {
			for _, word := range []string{"breaker opened", "breaker closed", "slower", "in time again"} {
				if strings.Contains(line, word) {
					got = append(got, word)
				}
			}
		}
		text.Reset()
		if strings.Join(got, ", ") != strings.Join(want, ", ") {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	why := errors.New("i/o timeout")
	flap := func(n int) {
		for range n {
			l.changed(breaker.Open, why)
			l.changed(breaker.HalfOpen, nil)
			now = now.Add(300 * time.Millisecond)
			l.tick()
			l.changed(breaker.Closed, nil)
			now = now.Add(200 * time.Millisecond)
			l.tick()
		}
	}
	flap(10)
	lines("breaker opened", "breaker closed") // and the other nine not
	l.changed(breaker.Open, why)
	lines()
	now = now.Add(time.Second)
	l.tick()
	l.changed(breaker.HalfOpen, nil)
	l.changed(breaker.Open, why)
	lines("breaker opened") // as it lasts
	l.changed(breaker.Closed, nil)
	lines("breaker closed")

	now = now.Add(time.Minute)
	l.paced(breaker.Pace{}, true)
	flap(100)
	lines("slower")
	l.changed(breaker.Open, why)
	l.paced(breaker.Pace{}, false) // it is away altogether
	now = now.Add(time.Second)
	l.tick()
	lines("breaker opened")
	l.changed(breaker.Closed, nil)
	l.paced(breaker.Pace{}, true)
	l.paced(breaker.Pace{}, false)
	lines("breaker closed", "slower", "in time again")
}
