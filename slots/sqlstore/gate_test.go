package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/slots"
)

// While a config is being changed, its claims wait. They do not pass over windows, which would
// leave holes.
func TestClaimWaitsForAChangeOfItsConfig(t *testing.T) {
	eachMigrated(t, func(t *testing.T, db *DB) {
		gate := db.dialect.statements.gateAll
		if gate.text == "" {
			return // claims wait for the whole change
		}
		s := slots.Series{Scope: "gate", SizeMs: 4000}
		c, err := db.PutConfig(soon(t), slots.Config{ID: "gate-1", Name: "gate", Max: 5, SizeMs: 4000, Active: true},
			byName)
		check(t, err)
		check(t, db.sql.Transact(soon(t), "change a config", func(tx *sql.Tx) error {
			if _, err := db.sql.Change(soon(t), tx, "hold", gate.with(c.ID)); err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
			defer cancel()
			claim, err := db.Begin(ctx, c.ID)
			if err != nil {
				return err
			}
			defer claim.Rollback()
			if _, _, err := claim.Lock(ctx, s, 0, 5); err == nil || slots.KindOf(err) == slots.Held {
				t.Errorf("while its config is being changed a window is locked, or held: %v", err)
			}
			return nil
		}))
	})
}

// A process that freezes while it assigns a slot delays a change of the config, but no claim under
// the same version. The change succeeds once the process is gone.
func TestFrozenClaimDelaysOnlyChanges(t *testing.T) {
	eachMigrated(t, func(t *testing.T, db *DB) {
		if db.dialect.shut == nil {
			t.Skip("transactions wait for each other")
		}
		s := slots.Series{Scope: "frozen", SizeMs: 4000}
		c, err := db.PutConfig(soon(t), slots.Config{ID: "frozen-1", Name: "frozen", Max: 5, SizeMs: 4000, Active: true},
			byName)
		check(t, err)
		frozen, err := db.Begin(soon(t), c.ID)
		check(t, err)
		defer frozen.Rollback()
		_, _, err = frozen.Lock(soon(t), s, 0, 5)
		check(t, err)

		admin, err := slots.NewScheduler(db, slots.Settings{Timeout: 2 * time.Second})
		check(t, err)
		done := make(chan error, 1)
		go func() {
			_, err := admin.PutConfig(context.Background(), slots.NewConfig{Name: "frozen", Max: 6, SizeMs: 4000})
			done <- err
		}()
		var took []time.Duration
		for err = nil; err == nil; {
			select {
			case err = <-done:
				if !errors.Is(err, slots.ErrClaimUnderWay) {
					t.Errorf("a change behind a claim that is frozen: %v", err)
				}
				continue
			default:
			}
			began := time.Now()
			claim, err := db.Begin(soon(t), c.ID)
			check(t, err)
			_, ok, err := claim.Lock(soon(t), s, int64(len(took)+1)*4000, 5)
			claim.Rollback()
			if !ok || err != nil {
				t.Fatalf("a claim while a change waits: %v, %v", ok, err)
			}
			took = append(took, time.Since(began))
		}
		// They would wait for a second each, or for the whole change. A busy machine takes long
		// for some of them, too, but not for half.
		if len(took) == 0 {
			t.Fatal("no claim ended in 2 s while a change waited")
		}
		slices.Sort(took)
		median := took[len(took)/2]
		t.Logf("%d claims: half took up to %v, the longest %v", len(took), median, took[len(took)-1])
		if median > 500*time.Millisecond {
			t.Errorf("half of the claims took %v or longer while a change waited, want 500 ms at most", median)
		}
		frozen.Rollback()
		_, err = admin.PutConfig(soon(t), slots.NewConfig{Name: "frozen", Max: 6, SizeMs: 4000})
		check(t, err)
	})
}

// The server ends the transaction of a process that is frozen. MySQL does so only when a
// session is idle for longer than the pool keeps one.
func TestSessionsEndTransactionsThatAreIdle(t *testing.T) {
	eachServer(t, func(t *testing.T, url string) {
		db := mustOpen(t, url)
		text := map[string]string{"postgres": "SHOW idle_in_transaction_session_timeout",
			"mysql": "SELECT @@SESSION.wait_timeout"}[db.dialect.Name]
		want := map[string]string{"postgres": "10s", "mysql": "330"}[db.dialect.Name]
		if db.dialect.Name == "mysql" && strings.Contains(one(t, db.sql.Write, "SELECT VERSION()"), "MariaDB") {
			text, want = "SELECT @@SESSION.idle_transaction_timeout", "10"
		}
		if got := one(t, db.sql.Write, text); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	})
}
