package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/slots"
	"github.com/headgate-rls/headgate/test/random"
)

// backlog is how many slots TestAnotherSizeTakesNoLongerBehindABacklog schedules. Set
// HEADGATE_TEST_BACKLOG to measure with more.
func backlog(t *testing.T) int64 {
	n := int64(random.Times(6_000, 20_000))
	if text := os.Getenv("HEADGATE_TEST_BACKLOG"); text != "" {
		var err error
		n, err = strconv.ParseInt(text, 10, 64)
		check(t, err)
	}
	return n
}

// A change of the size of windows takes no longer for what is scheduled already, there and
// back, and events find the earliest window with room behind it.
func TestAnotherSizeTakesNoLongerBehindABacklog(t *testing.T) {
	eachMake(t, func(t *testing.T, db *DB) {
		n, from := backlog(t), time.Now().Add(time.Hour).UnixMilli()/4000*4000
		schedule(t, db, "big", from, n)
		s, err := slots.NewScheduler(db, slots.Settings{Bits: func() uint32 { return 0 }})
		check(t, err)
		for i, sizeMs := range []int64{1000, 4000, 1000} {
			stop := assigning(t, s, "big", i, from+2*n*1000)
			began := time.Now()
			// One slot in each second.
			_, err := s.PutConfig(soon(t), slots.NewConfig{Name: "big", Max: sizeMs / 1000, SizeMs: sizeMs})
			took := time.Since(began)
			check(t, err)
			longest, beside := stop()
			t.Logf("%d ms: the longest wait of %d events during the change was %v", sizeMs, beside, longest)
			began = time.Now()
			got, err := s.Assign(soon(t), slots.Request{EventID: fmt.Sprint("late-", i), ConfigName: "big",
				At: time.UnixMilli(from)})
			check(t, err)
			t.Logf("%d slots: the change to %d ms took %v, the search behind them %v", n, sizeMs, took, time.Since(began))
			// Each gets the first millisecond of its window.
			if want := from + (n+[]int64{0, 0, 1}[i])*1000; got.WindowMs != want {
				t.Errorf("windows of %d ms: the event is in window %d, %d windows from the earliest with room", sizeMs,
					got.WindowMs, (got.WindowMs-want)/sizeMs)
			}
			if took > 10*time.Second { // a busy machine; that it makes no rows tells more
				t.Errorf("the change to %d ms took %v", sizeMs, took)
			}
			var rows int64
			check(t, db.sql.Read.QueryRowContext(soon(t), "SELECT COUNT(*) FROM RL_WNDW_CT").Scan(&rows))
			if i == 0 && rows > 10+beside {
				t.Errorf("the change has made %d rows", rows)
			}
			if i == 0 { // as if each window had been filled one by one
				count(t, db, slots.Series{Scope: "big", SizeMs: sizeMs}, from, n)
			}
		}
	})
}

// assigning assigns events one after another, each to a window of its own from the instant on. stop
// ends it, and returns the longest time that one took, and how many there were.
func assigning(t *testing.T, s *slots.Scheduler, config string, run int,
	fromMs int64) (stop func() (time.Duration, int64)) {
	var assigned int64
	var longest time.Duration
	var running sync.WaitGroup
	ctx, end := context.WithCancel(context.Background())
	running.Go(func() {
		for ; ctx.Err() == nil; assigned++ {
			began := time.Now()
			_, err := s.Assign(soon(t), slots.Request{
				EventID: fmt.Sprintf("beside-%d-%d", run, assigned), ConfigName: config, At: time.UnixMilli(fromMs + assigned*4000),
			})
			if err != nil {
				t.Errorf("an event during a change: %v", err)
			}
			longest = max(longest, time.Since(began))
		}
	})
	stop = func() (time.Duration, int64) {
		end()
		running.Wait()
		return longest, assigned
	}
	t.Cleanup(func() { stop() }) // also if the test ends before it calls stop
	return stop
}

// schedule writes n slots, one in each second, and the config under which they were
// assigned.
func schedule(t *testing.T, db *DB, scope string, fromMs, n int64) {
	t.Helper()
	_, err := db.PutConfig(soon(t), slots.Config{ID: "first", Name: scope, Max: 1 << 30, SizeMs: 86_400_000, Active: true},
		byName)
	check(t, err)
	s := slots.Series{Scope: scope, SizeMs: 86_400_000}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	check(t, db.sql.Transact(ctx, "fill", func(tx *sql.Tx) error {
		for at := int64(0); at < n; at += slots.MaxBatch {
			var some []slots.Slot
			for i := at; i < min(at+slots.MaxBatch, n); i++ {
				some = append(some, slots.Slot{ID: fmt.Sprint("s", i), EventID: fmt.Sprint("e", i), Series: s,
					RequestedUs: fromMs * 1000, WindowMs: fromMs,
					ScheduledMs: fromMs + i*1000 + 17, ConfigID: "first"})
			}
			for _, q := range db.dialect.claim(s, fromMs, some) {
				if _, err := tx.ExecContext(ctx, q.Text, q.Args...); err != nil {
					return err
				}
			}
		}
		return nil
	}))
}

// count makes the rows of the windows from the instant on.
func count(t *testing.T, db *DB, s slots.Series, fromMs, n int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	_, err := db.Provision(ctx, s, fromMs, fromMs+n*s.SizeMs, nil)
	check(t, err)
}
