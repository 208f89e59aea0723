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
