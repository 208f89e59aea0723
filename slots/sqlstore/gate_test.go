package sqlstore

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/slots"
)

// A config that is being changed for a while keeps claims waiting; it does not have them
// pass over windows, which would be holes.
func TestAConfigThatIsBeingChangedIsNoHeldWindow(t *testing.T) {
	eachMigrated(t, func(t *testing.T, db *DB) {
		gate := db.dialect.statements.gateAll
		if gate.text == "" {
			return // claims wait for the whole change
		}
		s := slots.Series{Scope: "gate", SizeMs: 4000}
		c, err := db.PutConfig(soon(t), slots.Config{ID: "gate-1", Name: "gate", Max: 5, SizeMs: 4000, Active: true}, slots.PutOptions{})
		check(t, err)
		check(t, db.transact(soon(t), "change a config", func(tx *sql.Tx) error {
			if _, err := db.change(soon(t), tx, "hold", gate.with(c.ID)); err != nil {
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
