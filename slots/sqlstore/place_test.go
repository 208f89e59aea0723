package sqlstore

import (
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/slots"
)

// placing is a database with an active config and a window that was locked once, so that
// Place tries it.
type placing struct {
	*DB
	config string
}

// place claims n places, whose events begin with a letter, in the first window.
func (p *placing) place(t *testing.T, max int64, events string, n int) (count int64, ok bool, err error) {
	t.Helper()
	list := make([]slots.Slot, n)
	for i := range list {
		list[i] = slotOf(i, 0)
		list[i].ID, list[i].EventID, list[i].ConfigID = fmt.Sprint("id-", events, i), fmt.Sprint(events, i), p.config
	}
	return p.Place(soon(t), p.config, series, 0, max, list)
}

// know has the process see the window's count.
func (p *placing) know(t *testing.T) {
	t.Helper()
	tx, err := p.Begin(soon(t), p.config)
	check(t, err)
	defer tx.Rollback()
	if _, ok, err := tx.Lock(soon(t), series, 0, 1<<30); !ok || err != nil {
		t.Fatalf("lock: %v, %v", ok, err)
	}
}

// want checks how many slots there are and what the window counts.
func (p *placing) want(t *testing.T, what string, want int64) {
	t.Helper()
	have := one(t, p.sql.Read, "SELECT COUNT(*) FROM RL_EVENT_SLOT_DTL")
	counted := one(t, p.sql.Read, "SELECT SLOT_CT FROM RL_WNDW_CT")
	if have != fmt.Sprint(want) || counted != have {
		t.Errorf("%s: %s slots, and the window counts %s; want %d", what, have, counted, want)
	}
}

// eachPlacing runs a test where the database can place in one round trip.
func eachPlacing(t *testing.T, test func(t *testing.T, p *placing)) {
	t.Helper()
	eachMigrated(t, func(t *testing.T, db *DB) {
		c, err := db.PutConfig(soon(t), slots.Config{ID: "first", Name: "place", Max: 10, SizeMs: 4000,
			Active: true}, nowhere)
		check(t, err)
		p := &placing{db, c.ID}
		provision(t, db, 0, 1)
		if _, ok, err := p.place(t, 10, "unknown", 1); ok || err != nil {
			t.Fatalf("a window that nobody knows: %v, %v", ok, err)
		}
		p.know(t)
		if db.dialect.place == nil {
			if _, ok, err := p.place(t, 10, "a", 1); ok || err != nil {
				t.Fatalf("%v, %v, though the database cannot", ok, err)
			}
			return
		}
		test(t, p)
	})
}

// Place takes places for all or for none, and counts them.
func TestPlaceTakesAllOrNone(t *testing.T) {
	eachPlacing(t, func(t *testing.T, p *placing) {
		for _, step := range []struct {
			events string
			n      int
			ok     bool
			count  int64
			there  int64
			max    int64
		}{
			{events: "a", n: 3, max: 10, ok: true, count: 0, there: 3},
			{events: "b", n: 1, max: 10, ok: true, count: 3, there: 4},
			{events: "c", n: 7, max: 10, there: 4},
			{events: "d", n: 6, max: 10, ok: true, count: 4, there: 10},
			{events: "e", n: 1, max: 10, there: 10},
			{events: "f", n: 1, max: 11, ok: true, count: 10, there: 11},
		} {
			count, ok, err := p.place(t, step.max, step.events, step.n)
			if err != nil || ok != step.ok || ok && count != step.count {
				t.Errorf("%d events %s: %d, %v, %v; want %d, %v", step.n, step.events, count, ok, err, step.count, step.ok)
			}
			p.want(t, step.events, step.there)
		}
	})
}

// What makes Place change nothing: others have filled the window, its row is gone or of another
// epoch, the version of the config is not active or not there, an event or an id has a slot.
func TestPlaceThatChangesNothing(t *testing.T) {
	refuse := map[string]func(t *testing.T, p *placing){
		"filled by others": func(t *testing.T, p *placing) { mustExec(t, p.sql.Write, "UPDATE RL_WNDW_CT SET SLOT_CT = 9") },
		"purged":           func(t *testing.T, p *placing) { mustExec(t, p.sql.Write, "DELETE FROM RL_WNDW_CT") },
		"another epoch": func(t *testing.T, p *placing) {
			mustExec(t, p.sql.Write, fmt.Sprintf("INSERT INTO RL_WNDW_EPOCH (WNDW_SCOPE_NM, WNDW_SIZE_MS, "+
				"EPOCH_CT) VALUES ('%s', %d, 7)", series.Scope, series.SizeMs))
		},
		"paused": func(t *testing.T, p *placing) {
			_, err := p.PutConfig(soon(t), slots.Config{ID: "second", Name: "place", Max: 0, SizeMs: 4000,
				Active: true}, nowhere)
			check(t, err)
		},
		"no such version": func(_ *testing.T, p *placing) { p.config = "nobody" },
	}
	for name, spoil := range refuse {
		t.Run(name, func(t *testing.T) {
			eachPlacing(t, func(t *testing.T, p *placing) {
				spoil(t, p)
				if count, ok, err := p.place(t, 10, "a", 2); ok || err != nil {
					t.Errorf("%d, %v, %v; want nothing", count, ok, err)
				}
				if n := one(t, p.sql.Read, "SELECT COUNT(*) FROM RL_EVENT_SLOT_DTL"); n != "0" {
					t.Errorf("there are %s slots", n)
				}
				if s := p.sql.Write.Stats(); s.InUse != 0 {
					t.Errorf("%d connections are in use", s.InUse)
				}
			})
		})
	}
	t.Run("duplicates", func(t *testing.T) {
		eachPlacing(t, func(t *testing.T, p *placing) {
			_, _, err := p.place(t, 10, "a", 3)
			check(t, err)
			if _, ok, err := p.place(t, 10, "a", 1); ok || slots.KindOf(err) == slots.Failed {
				t.Errorf("the same slot once more: %v, %v", ok, err)
			}
			again := slotOf(9, 0)
			again.EventID = "a2"
			if _, ok, err := p.Place(soon(t), p.config, series, 0, 10, []slots.Slot{slotOf(8, 0), again}); ok ||
				slots.KindOf(err) != slots.Duplicate {
				t.Errorf("a second slot for an event: %v, %v", ok, err)
			}
			p.want(t, "duplicates", 3)
		})
	})
}

// waits places an event where that is not possible, and returns why. Place leaves it to Lock to say why
// if it cannot tell, as a search does.
func (p *placing) waits(t *testing.T) error {
	t.Helper()
	_, ok, err := p.place(t, 10, "a", 1)
	if ok || err != nil {
		return err
	}
	tx, err := p.Begin(soon(t), p.config)
	check(t, err)
	defer tx.Rollback()
	_, _, err = tx.Lock(soon(t), series, 0, 10)
	return err
}

// Place waits for a window that another transaction holds, and reports that it is held; a config that
// is being changed holds no window.
func TestPlaceWaits(t *testing.T) {
	t.Run("for the window", func(t *testing.T) {
		eachPlacing(t, func(t *testing.T, p *placing) {
			tx, err := p.Begin(soon(t), "")
			check(t, err)
			_, _, err = tx.Lock(soon(t), series, 0, 10)
			check(t, err)
			if err := p.waits(t); slots.KindOf(err) != slots.Held {
				t.Errorf("%v; want one of kind held", err)
			}
			tx.Rollback()
			p.know(t) // a search locks the window before others place into it again
			if _, ok, err := p.place(t, 10, "a", 1); !ok || err != nil {
				t.Errorf("after that: %v, %v", ok, err)
			}
		})
	})
	t.Run("for the config", func(t *testing.T) {
		eachPlacing(t, func(t *testing.T, p *placing) {
			check(t, p.sql.Transact(soon(t), "change a config", func(tx *sql.Tx) error {
				if _, err := p.sql.Change(soon(t), tx, "hold", p.dialect.statements.gateAll.with(p.config)); err != nil {
					return err
				}
				if err := p.waits(t); slots.KindOf(err) != slots.Passing {
					t.Errorf("%v; want one of kind passing", err)
				}
				return nil
			}))
			p.want(t, "a change", 0)
		})
	})
}

// A repair waits for who claims slots of its window, and counts them.
func TestRepairWaitsForClaims(t *testing.T) {
	eachServer(t, func(t *testing.T, url string) {
		db := migrated(t, url)
		provision(t, db, 0, 1)
		mustExec(t, db.sql.Write, "UPDATE RL_WNDW_CT SET SLOT_CT = 5")
		p := &placing{DB: db}
		tx, err := db.Begin(soon(t), "")
		check(t, err)
		defer tx.Rollback()
		if _, ok, err := tx.Lock(soon(t), series, 0, 10); !ok || err != nil {
			t.Fatalf("lock: %v, %v", ok, err)
		}
		check(t, tx.Claim(soon(t), series, 0, []slots.Slot{slotOf(0, 0)}))
		repaired := make(chan error, 1)
		go func() {
			_, _, err := db.repair(soon(t), slots.WindowKey{Series: series})
			repaired <- err
		}()
		time.Sleep(300 * time.Millisecond)
		check(t, tx.Commit(soon(t)))
		check(t, <-repaired)
		p.want(t, "a repair", 1)
	})
}
