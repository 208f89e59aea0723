package sqlstore

import (
	"context"
	"database/sql/driver"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/internal/kit/sqldb"
	"github.com/headgate-rls/headgate/slots"
	"github.com/headgate-rls/headgate/test/oracletest"
)

// migrating is a fake for which applied is what Migrate has noted so far.
func migrating(answer func(text string) (oracletest.Answer, error)) *oracletest.Fake {
	f := &oracletest.Fake{}
	f.Answer = func(text string) (oracletest.Answer, error) {
		if a, err := answer(text); err != nil || a.Rows != nil {
			return a, err
		}
		return obliging(text)
	}
	return f
}

func nothing(string) (oracletest.Answer, error) { return oracletest.Answer{}, nil }

// takeLock is the statement that waits for other migrations.
const takeLock = "LOCK TABLE RL_SCHEMA_LOCK IN EXCLUSIVE MODE"

// The lock is held on a second session while DDL runs on the first, from
// before the history is read for good until the end.
func TestOracleMigrate(t *testing.T) {
	f := migrating(nothing)
	applied, err := oracleStore(t, f).Migrate(t.Context())
	want := []string{"V1__rate_limiter_schema.sql", "V2__scope_and_size.sql", "V3__full_runs_and_scope.sql",
		"V4__epochs.sql", "V5__index_of_creation.sql", "R__rl_slot_api.sql"}
	if err != nil || !slices.Equal(applied, want) {
		t.Fatalf("applied %q, %v, want %q", applied, err, want)
	}
	locked := slices.IndexFunc(f.Calls, func(c oracletest.Call) bool { return c.Text == takeLock })
	read := len(f.Calls) - 1 // the last time
	for read >= 0 && !strings.HasPrefix(f.Calls[read].Text, "SELECT SCRIPT_NM") {
		read--
	}
	freed := slices.IndexFunc(f.Calls, func(c oracletest.Call) bool { return c.Text == oracletest.Rollback })
	if locked < 0 || read < locked || freed != len(f.Calls)-1 {
		t.Fatalf("locked at %d, history read at %d, freed at %d of %d", locked, read, freed, len(f.Calls))
	}
	for _, c := range f.Calls[locked+1 : freed] {
		if c.Conn == f.Calls[locked].Conn {
			t.Errorf("the session that holds the lock ran %s", c.Text)
		}
	}
	for _, s := range scriptsOf(t, sqldb.Oracle) {
		for _, text := range s.statements("") {
			if !slices.Contains(f.Texts(), text) {
				t.Errorf("%s: not run: %s", s.name, text)
			}
		}
	}
}

// What is there already is passed over; anything else stops the migration, frees
// the lock and notes nothing.
func TestOracleMigrateAgain(t *testing.T) {
	for code, present := range map[int]bool{955: true, 1430: true, 2260: true, 2261: true, 1408: true, 2441: true,
		2443: true, 1031: false, 1658: false, 60: false} {
		f := migrating(func(text string) (oracletest.Answer, error) {
			if strings.HasPrefix(text, "CREATE INDEX RL_EVENT_SLOT_DTL_I03X") {
				return oracletest.Answer{}, oracletest.OraError(code)
			}
			return oracletest.Answer{}, nil
		})
		applied, err := oracleStore(t, f).Migrate(t.Context())
		if present != (err == nil) {
			t.Errorf("ORA-%05d: applied %q, %v", code, applied, err)
		}
		texts := f.Texts()
		if texts[len(texts)-1] != oracletest.Rollback {
			t.Errorf("ORA-%05d: the lock is not freed: %q", code, texts[len(texts)-1])
		}
		if err != nil && !strings.Contains(err.Error(), "V2__scope_and_size.sql") {
			t.Errorf("the error does not say where: %v", err)
		}
		if err != nil && noted(f) != 1 {
			t.Errorf("%d scripts are noted, want the first alone", noted(f))
		}
	}
}

func noted(f *oracletest.Fake) (n int) {
	for _, c := range f.Calls {
		if strings.HasPrefix(c.Text, "INSERT INTO RL_SCHEMA_HISTORY") {
			n++
		}
	}
	return n
}

// CREATE PACKAGE succeeds although the package does not compile.
func TestOracleMigrateDoesNotCompile(t *testing.T) {
	f := migrating(func(text string) (oracletest.Answer, error) {
		if strings.Contains(text, "ALL_ERRORS") {
			return oracletest.Answer{Rows: [][]driver.Value{{"RL_SLOT_API", "PACKAGE BODY", int64(12), int64(5),
				"PLS-00201: identifier 'RL_NOW' must be declared\n"}}}, nil
		}
		return oracletest.Answer{}, nil
	})
	_, err := oracleStore(t, f).Migrate(t.Context())
	if slots.KindOf(err) != slots.Failed || err == nil ||
		!strings.Contains(err.Error(),
			"package body RL_SLOT_API, line 12, column 5: PLS-00201: identifier 'RL_NOW' must be declared") {
		t.Errorf("error %v: want it failed and to say what does not compile", err)
	}
}

// flywayWasHere answers that there is a history of Flyway's.
func flywayWasHere(text string) (oracletest.Answer, error) {
	if strings.Contains(text, "flyway_schema_history") {
		return oracletest.Answer{Rows: [][]driver.Value{{int64(1)}}}, nil
	}
	return oracletest.Answer{}, nil
}

// A schema that Flyway made is taken over from version 1 on.
func TestOracleMigrateFlyway(t *testing.T) {
	f := migrating(flywayWasHere)
	if _, err := oracleStore(t, f).Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, text := range f.Texts() {
		if strings.HasPrefix(text, "CREATE TABLE RL_WNDW_CT") {
			t.Error("version 1 was run over Flyway's")
		}
	}
	if noted(f) != 6 {
		t.Errorf("%d scripts are noted, want 6", noted(f))
	}
}

// A pool of one connection cannot hold the lock and work; it must not hang.
func TestOracleMigrateOneConnection(t *testing.T) {
	f := &oracletest.Fake{Answer: obliging}
	db := oracleStore(t, f)
	db.sql.Write.SetMaxOpenConns(1)
	_, err := db.Migrate(t.Context())
	wantError(t, err, "two connections")
}

// A lock that is not to be had before the deadline leaves nothing behind.
func TestOracleMigrateCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	f := migrating(func(text string) (oracletest.Answer, error) {
		if text == takeLock {
			cancel()
			return oracletest.Answer{}, oracletest.OraError(1013)
		}
		return oracletest.Answer{}, nil
	})
	db := oracleStore(t, f)
	if _, err := db.Migrate(ctx); err == nil {
		t.Error("no error")
	}
	// The end of a context rolls a transaction back in the background.
	for ctx := soon(t); db.sql.Write.Stats().InUse != 0; time.Sleep(5 * time.Millisecond) {
		if ctx.Err() != nil {
			t.Fatalf("%d connections are in use", db.sql.Write.Stats().InUse)
		}
	}
}
