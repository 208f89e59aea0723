package table

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/policies"
)

// A badStore is a fake store that cannot read its policies, or has invalid rows: more of them than
// a test could write into a real one.
type badStore struct {
	Store
	rows  int
	reads atomic.Int64
	works atomic.Bool
}

func (s *badStore) State(context.Context) (State, error) {
	return State{Generation: 1, WatchUntil: 10, Now: 5}, nil
}

func (s *badStore) Read(_ context.Context, _ int64, each func(Row) error) (int64, error) {
	s.reads.Add(1)
	for i := range s.rows {
		if err := each(Row{Key: fmt.Sprint("user ", i), Type: "NONE"}); err != nil {
			return 0, err
		}
	}
	if !s.works.Load() {
		return 0, errors.New("too slow")
	}
	return 1, nil
}

// TestPoliciesThatCannotBeReadAreReadSeldom: each process may read millions of rows each time.
func TestPoliciesThatCannotBeReadAreReadSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, set := new(badStore), new(policies.Set)
		ctx, stop := context.WithCancel(t.Context())
		go NewFollower(s, set, slog.New(slog.DiscardHandler)).Run(ctx)
		time.Sleep(10*time.Minute + time.Millisecond)
		synctest.Wait()
		if n := s.reads.Load(); n < 15 || n > 30 {
			t.Errorf("%d readings in 10 minutes", n)
		}
		s.works.Store(true)
		time.Sleep(readAgain)
		synctest.Wait()
		if age, ok := set.Age(time.Now()); !ok || age > pollIdle {
			t.Errorf("after the failure the policies are of %v ago, %v", age, ok)
		}
		stop()
	})
}

// TestRowsThatAreIgnoredFloodNoLog: the log has some of the ignored rows, and the number of the others.
func TestRowsThatAreIgnoredFloodNoLog(t *testing.T) {
	var log bytes.Buffer
	s, set := &badStore{rows: 5000}, new(policies.Set)
	s.works.Store(true)
	if err := NewFollower(s, set, slog.New(slog.NewTextHandler(&log, nil))).Poll(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(log.String(), "is ignored"); n != maxIgnored || !strings.Contains(log.String(), "rows=4990") ||
		set.Rejected() != 5000 {
		t.Errorf("%d lines, %d rejected, the end of the log is %s", n, set.Rejected(), log.String()[max(0, log.Len()-300):])
	}
}

// A replica is a fake store that takes the place of one with as many changes, of which it has lost the last: real ones
// need a failover to do so.
type replica struct {
	Store
	down, other atomic.Bool
	readsAll    atomic.Int64
}

func (s *replica) State(context.Context) (State, error) {
	if s.down.Load() {
		return State{}, errors.New("down")
	}
	return State{Generation: 7, Policies: 1}, nil
}

func (s *replica) Read(_ context.Context, since int64, each func(Row) error) (int64, error) {
	row := Row{Key: "a", Type: policies.TypeOf(limit.FixedWindow), Capacity: 100, Window: "60", Refill: "0"}
	if s.other.Load() {
		row.Capacity = 5
	}
	if since >= 0 { // the row has another generation than the last
		return 7, nil
	}
	s.readsAll.Add(1)
	return 7, each(row)
}

// After an outage all policies are read again: the generation may count other changes than before.
func TestPoliciesAreReadAgainAfterAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, set := new(replica), new(policies.Set)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go NewFollower(s, set, slog.New(slog.DiscardHandler)).Run(ctx)
		pass := func(d time.Duration) {
			time.Sleep(d + time.Millisecond)
			synctest.Wait()
		}
		want := func(capacity, readings int64) {
			t.Helper()
			if f, ok := set.Snapshot().Find([]byte("a")); !ok || f.Capacity != capacity || s.readsAll.Load() != readings {
				t.Errorf("%+v, %v after %d readings; want %d after %d", f, ok, s.readsAll.Load(), capacity, readings)
			}
		}
		pass(pollIdle)
		want(100, 1)
		s.down.Store(true) // so short that it is no failover
		pass(pollIdle)
		s.down.Store(false)
		pass(2 * pollIdle)
		want(100, 1)
		s.down.Store(true)
		pass(10 * pollIdle)
		s.other.Store(true)
		s.down.Store(false)
		pass(2 * pollIdle)
		want(5, 2)
		pass(10 * pollIdle)
		want(5, 2)
	})
}
