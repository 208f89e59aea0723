package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/slots"
)

// While somebody holds what the searches of two configs wait for, those of another one find connections.
func TestConfigsThatWaitLeaveConnectionsToOthers(t *testing.T) {
	eachServer(t, func(t *testing.T, url string) {
		foreign := migrated(t, url)
		if foreign.dialect.shut == nil {
			t.Skip("transactions wait for each other")
		}
		db, err := Open(Config{URL: url, PoolMax: 4})
		check(t, err)
		t.Cleanup(func() { db.Close() })
		s, err := slots.NewScheduler(db, slots.Settings{Timeout: 3 * time.Second})
		check(t, err)
		var held []string
		for _, name := range []string{"held", "held-too"} {
			c, err := s.PutConfig(soon(t), slots.NewConfig{Name: name, Max: 5, SizeMs: 1000})
			check(t, err)
			held = append(held, c.ID)
		}
		_, err = s.PutConfig(soon(t), slots.NewConfig{Name: "free", Max: 5, SizeMs: 1000})
		check(t, err)
		at := time.Now().Truncate(time.Second)
		check(t, foreign.sql.Transact(soon(t), "hold a config", func(tx *sql.Tx) error {
			for _, id := range held {
				if _, err := foreign.sql.Change(soon(t), tx, "hold", foreign.dialect.statements.gateAll.with(id)); err != nil {
					return err
				}
			}
			var waiting sync.WaitGroup
			ctx, stop := context.WithCancel(t.Context())
			for i := range 100 {
				waiting.Go(func() {
					r := slots.Request{EventID: fmt.Sprint("held-", i), ConfigName: []string{"held", "held-too"}[i%2],
						At: at.Add(time.Duration(i) * time.Second)}
					time.Sleep(time.Duration(i) * 20 * time.Millisecond) // not all of them give up together
					for ctx.Err() == nil {
						if _, err := s.Assign(ctx, r); err == nil {
							t.Error("a slot under a config that is held")
						}
					}
				})
			}
			time.Sleep(2 * time.Second)
			var all []time.Duration
			for i := range 5 {
				began := time.Now()
				r := slots.Request{EventID: fmt.Sprint("free-", i), ConfigName: "free", At: at}
				_, err := s.Assign(t.Context(), r)
				took := time.Since(began)
				if err != nil || took > 2*time.Second {
					t.Errorf("a slot under another config took %v: %v", took, err)
				}
				all = append(all, took)
			}
			// Each search for the held configs waits for longer than that. On a busy machine some events wait, too.
			slices.Sort(all)
			if all[2] > 400*time.Millisecond {
				t.Errorf("slots under another config took %v", all)
			}
			stop()
			waiting.Wait()
			return nil
		}))
	})
}
