package breaker

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/internal/kit/background"
)

// TestPanicIsFailure: a store that panics, in a Take, in a Ping, or in OnChange,
// has failed, and may come back.
func TestPanicIsFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var counted atomic.Int64
		s := newStore()
		b := New(s, Config{
			Panics:   &background.Reporter{Count: func(string) { counted.Add(1) }},
			OnChange: func(State, State, error) { panic("nobody wants to know") },
		}, time.Now)
		s.Behave(func(context.Context) error { panic("burst") })
		for range 5 {
			if err := pulseTake(b, time.Second); !errors.Is(err, backends.ErrUnavailable) ||
				errors.Is(err, backends.ErrNotApplied) {
				t.Errorf("%v", err)
			}
		}
		if b.State() != Open {
			t.Errorf("%v after five panics", b.State())
		}
		time.Sleep(10 * time.Second) // probes of its own
		if st := b.Stats(); st.State == Closed || st.Probes == 0 || st.InFlight != 0 {
			t.Errorf("%+v", st)
		}
		s.Behave(nil)
		time.Sleep(10 * time.Second)
		if err := pulseTake(b, time.Second); err != nil {
			t.Error(err)
		}
		if counted.Load() < 7 {
			t.Errorf("%d panics counted", counted.Load())
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
}
