package breaker

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/backends/internal/remote"
	"github.com/headgate-rls/headgate/limit"
)

func pulseTake(b *Backend, d time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	reqs := []limit.Request{
		{At: 1_800_000_000_000_000, Ops: []limit.Op{{Key: limit.Key{Group: "g"}, Limit: remote.Hour, Cost: 1}}}}
	out := make([]limit.Verdict, 1)
	b.Take(ctx, reqs, out)
	return out[0].Err
}

// TestStoreAnswersUntilItIsSilent: a store answers in time while its last answer did and it
// has not been silent since; what is refused at the bound meanwhile is overload.
func TestStoreAnswersUntilItIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		b := New(s, Config{MaxInFlight: 1}, time.Now)
		defer b.Close()
		want := func(answers bool, when string) {
			t.Helper()
			if b.Answers() != answers {
				t.Errorf("%s: Answers() is %v", when, !answers)
			}
		}
		want(true, "nothing is known")
		if err := pulseTake(b, time.Second); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		want(true, "idle for an hour")

		s.Behave(remote.Mute)
		done := make(chan error)
		go func() { done <- pulseTake(b, 500*ms) }()
		time.Sleep(50 * ms)
		want(true, "asked a moment ago")
		if err := pulseTake(b, time.Second); !errors.Is(err, backends.ErrOverloaded) ||
			!errors.Is(err, backends.ErrNotApplied) {
			t.Errorf("at the bound: %v", err)
		}
		time.Sleep(210 * ms)
		want(false, "silent")
		if err := pulseTake(b, time.Second); errors.Is(err, backends.ErrOverloaded) ||
			!errors.Is(err, backends.ErrUnavailable) {
			t.Errorf("at the bound of a store that is silent: %v", err)
		}
		<-done
		want(false, "failed")
		s.Behave(nil)
		if err := pulseTake(b, time.Second); err != nil {
			t.Fatal(err)
		}
		want(true, "back")
		s.Behave(remote.Mute)
		_ = pulseTake(b, ms)
		time.Sleep(time.Hour)
		want(true, "a caller without patience says nothing")
	})
}

// TestHurriedCallersDoNotOpen: callers who wait for less time than the store
// takes for others do not keep those from it. Alone they do.
func TestHurriedCallersDoNotOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		b := New(s, Config{}, time.Now)
		defer b.Close()
		s.Behave(func(ctx context.Context) error {
			select {
			case <-time.After(20 * ms):
				return nil
			case <-ctx.Done():
				return remote.Mute(ctx)
			}
		})
		for range 50 {
			if err := pulseTake(b, 100*ms); err != nil {
				t.Fatal(err)
			}
			for range 6 {
				if err := pulseTake(b, 3*ms); err == nil {
					t.Fatal("a store that takes 20 ms answered in 3 ms")
				}
			}
		}
		if got := b.Stats(); got.State != Closed || got.Failed != 0 {
			t.Errorf("%+v", got)
		}
		for range 400 { // longer than what the last answer took is believed
			_ = pulseTake(b, 3*ms)
		}
		if got := b.Stats(); got.Opened == 0 {
			t.Errorf("a store that answers nobody: %+v", got)
		}
	})
}
