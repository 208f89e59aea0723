package sqlstore

import (
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/policies"
	"github.com/headgate-rls/headgate/test/dbtest"
	"github.com/headgate-rls/headgate/test/testenv"
)

var soon, check = dbtest.Soon, dbtest.Check

var quiet = slog.New(slog.DiscardHandler)

// each runs a test on a new, migrated database of every kind.
func each(t *testing.T, test func(t *testing.T, url string)) {
	t.Helper()
	run := func(name string, create func(t testing.TB) string) {
		t.Run(name, func(t *testing.T) {
			url := create(t)
			if address, ok := strings.CutPrefix(url, onMariaDB); ok {
				migrateOracleOnMariaDB(t, address)
			} else {
				_, err := open(t, url).Migrate(soon(t))
				check(t, err)
			}
			test(t, url)
		})
	}
	run("sqlite", func(t testing.TB) string {
		testenv.UseSQLite(t)
		return "sqlite:" + filepath.Join(t.TempDir(), "policies.db")
	})
	for _, engine := range []string{testenv.Postgres, testenv.MariaDB, testenv.MySQL} {
		run(engine, func(t testing.TB) string { return testenv.SharedDatabase(t, engine).CreateDatabase("policies") })
	}
	run("oracle-on-mariadb", func(t testing.TB) string {
		return onMariaDB + testenv.SharedDatabase(t, testenv.MariaDB).CreateDatabase("policies")
	})
}

func open(t testing.TB, url string) *Store {
	t.Helper()
	s, err := openStore(url)
	check(t, err)
	t.Cleanup(func() { check(t, s.Close()) })
	return s
}

func window(capacity int64, seconds policies.Amount) policies.Figures {
	return policies.Figures{Algorithm: limit.SlidingWindow, Capacity: capacity, Window: seconds * policies.One}
}

func set(key string, f policies.Figures) policies.Edit { return policies.Edit{Key: key, Figures: f} }

func removal(key string) policies.Edit { return policies.Edit{Key: key, Remove: true} }

// apply does edits at once, without an announcement.
func apply(t testing.TB, s *Store, edits ...policies.Edit) []policies.Outcome {
	t.Helper()
	done, err := s.Apply(soon(t), edits, "test", 0, false)
	check(t, err)
	return done
}

// follow runs a follower until the test ends, and returns its set.
func follow(t testing.TB, s *Store) *policies.Set {
	t.Helper()
	set := new(policies.Set)
	f := policies.NewFollower(s, set, quiet)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f.Run(ctx)
	}()
	t.Cleanup(func() {
		stop()
		<-ended
	})
	return set
}

// until waits for what must come true.
func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(60 * time.Second); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not in time: %s", what)
		}
	}
}

func has(set *policies.Set, key string, want policies.Figures) bool {
	f, ok := set.Snapshot().Find([]byte(key))
	return ok && f == want
}
