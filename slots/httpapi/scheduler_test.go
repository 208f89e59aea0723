package httpapi

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/slots"
	"github.com/headgate-rls/headgate/slots/sqlstore"
)

// newScheduler returns a Scheduler over an SQLite database of its own.
func newScheduler(t testing.TB, settings slots.Settings) *slots.Scheduler {
	t.Helper()
	return schedulerOf(t, "sqlite:"+filepath.Join(t.TempDir(), "slots.db")+"?synchronous=normal", settings)
}

// schedulerOf returns a Scheduler over a database of the test's.
func schedulerOf(t testing.TB, url string, settings slots.Settings) *slots.Scheduler {
	t.Helper()
	db, err := sqlstore.Open(sqlstore.Config{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Errorf("close the database: %v", err)
		}
	})
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if _, err := db.Migrate(ctx); err != nil {
		t.Fatal(err)
	}
	s, err := slots.NewScheduler(db, settings)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
