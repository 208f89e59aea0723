package fleet

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-rls/headgate/ratelimit/insight"
)

// TestPaceIsThatOfTheLastMinute: what was long ago does not count, however rarely somebody looks.
func TestPaceIsThatOfTheLastMinute(t *testing.T) {
	var p pace
	var traffic insight.Traffic
	now := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	if r := p.rate(&traffic, now); r != (Rate{}) {
		t.Errorf("before any call: %+v", r)
	}
	for range 100 {
		traffic.Answers.Add(1000)
		traffic.Refused.Add(250)
		traffic.Unmatched.Add(500)
		now = now.Add(5 * time.Second)
		p.rate(&traffic, now)
	}
	r := p.rate(&traffic, now)
	if r.PerSecond != 200 || r.Refused != 0.25 || r.ByPolicy != 0 || r.Unmatched != 0.5 || len(p.samples) > maxSamples {
		t.Errorf("%+v of %d samples", r, len(p.samples))
	}
	traffic.ByPolicy.Add(10)
	traffic.Answers.Add(10)
	if r := p.rate(&traffic, now.Add(-time.Hour)); r.PerSecond < 0 { // the clock was set back
		t.Errorf("%+v", r)
	}
	now = now.Add(10 * time.Minute)
	p.rate(&traffic, now)
	if r := p.rate(&traffic, now.Add(5*time.Second)); r.PerSecond != 0 {
		t.Errorf("after ten minutes without calls: %+v", r)
	}
}

// TestRunNotesThePace: who looks after a quiet night sees the last minute, not the night.
func TestRunNotesThePace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := insight.NewWatch()
		f := New(Config{Watch: w})
		ctx, stop := context.WithCancel(t.Context())
		defer synctest.Wait()
		defer stop()
		go f.Run(ctx)
		time.Sleep(8 * time.Hour)
		w.Traffic.Answers.Add(6000)
		time.Sleep(time.Minute)
		if r := f.Rate(); r.PerSecond < 90 || r.PerSecond > 101 {
			t.Errorf("%v calls a second, want 100", r.PerSecond)
		}
	})
}
