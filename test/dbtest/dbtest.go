// Package dbtest has what the tests of several packages do with a database.
package dbtest

import (
	"context"
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/test/random"
	"github.com/headgate-rls/headgate/test/testenv"
)

// Engines are the database servers that a test runs on: one of each dialect, and in the long form
// MySQL as well, which has that of MariaDB.
func Engines() []string {
	return []string{testenv.Postgres, testenv.MariaDB, testenv.MySQL}[:random.Times(2, 3)]
}

// soonLimit is long enough for a busy machine.
const soonLimit = 3 * time.Minute

// Soon returns a context that ends long after the test should have ended.
func Soon(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), soonLimit)
	t.Cleanup(cancel)
	return ctx
}

// One reads a single value as text; NULL is empty.
func One(t testing.TB, db *sql.DB, text string) string {
	t.Helper()
	var value sql.NullString
	if err := db.QueryRowContext(Soon(t), text).Scan(&value); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return value.String
}

// Check ends the test with an error.
func Check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// WantError ends the test unless err has all of the parts in its text.
func WantError(t testing.TB, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error; want one about %q", parts)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Fatalf("error %q does not mention %q", err, part)
		}
	}
}
