package sqlstore

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/headgate-rls/headgate/internal/kit/sqldb"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/policies"
	"github.com/headgate-rls/headgate/policies/table"
	"github.com/headgate-rls/headgate/test/dbtest"
	"github.com/headgate-rls/headgate/test/testenv"
)

var soon, check = dbtest.Soon, dbtest.Check

var quiet = slog.New(slog.DiscardHandler)

// each runs a test on a new, migrated database of every kind.
func each(t *testing.T, test func(t *testing.T, url string)) {
	t.Helper()
	eachEmpty(t, func(t *testing.T, url string) {
		migrateTo(t, open(t, url), url, 0)
		test(t, url)
	})
}

// eachEmpty runs a test on a new database of every kind, without a schema.
func eachEmpty(t *testing.T, test func(t *testing.T, url string)) {
	t.Helper()
	run := func(name string, create func(t testing.TB) string) {
		t.Run(name, func(t *testing.T) { test(t, create(t)) })
	}
	run("sqlite", func(t testing.TB) string {
		testenv.UseSQLite(t)
		return "sqlite:" + filepath.Join(t.TempDir(), "policies.db")
	})
	for _, engine := range dbtest.Engines() {
		run(engine, func(t testing.TB) string { return testenv.SharedDatabase(t, engine).CreateDatabase("policies") })
	}
	run("oracle-on-mariadb", func(t testing.TB) string {
		return onMariaDB + testenv.SharedDatabase(t, testenv.MariaDB).CreateDatabase("policies")
	})
}

// migrateTo brings the schema of a store to a version; 0 is the newest.
func migrateTo(t testing.TB, s *Store, url string, version int) {
	t.Helper()
	schema := schemaOf(t, version)
	if strings.HasPrefix(url, onMariaDB) {
		migrateOracleOnMariaDB(t, s, schema)
		return
	}
	_, err := s.db.Migrate(soon(t), schema)
	check(t, err)
}

// schemaOf is the schema of a program that knows it up to a version; 0 is the newest.
func schemaOf(t testing.TB, version int) sqldb.Schema {
	t.Helper()
	whole, known := schema(), fstest.MapFS{}
	check(t, fs.WalkDir(whole.Files, ".", func(path string, entry fs.DirEntry, err error) error {
		var n int
		if _, scanned := fmt.Sscanf(entry.Name(), "V%d__", &n); err != nil || entry.IsDir() || scanned == nil &&
			version > 0 && n > version {
			return err
		}
		text, err := fs.ReadFile(whole.Files, path)
		known[path] = &fstest.MapFile{Data: text}
		return err
	}))
	whole.Files = known
	return whole
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

func set(key string, f policies.Figures) table.Edit { return table.Edit{Key: key, Figures: f} }

func removal(key string) table.Edit { return table.Edit{Key: key, Remove: true} }

// apply does edits at once, without an announcement.
func apply(t testing.TB, s *Store, edits ...table.Edit) []table.Outcome {
	t.Helper()
	done, err := s.Apply(soon(t), edits, "test", 0, false)
	check(t, err)
	return done
}

// follow runs a follower until the test ends, and returns its set.
func follow(t testing.TB, s *Store) *policies.Set {
	t.Helper()
	set := new(policies.Set)
	f := table.NewFollower(s, set, quiet)
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
