package sqlstore

import (
	"fmt"
	"net/url"
	"testing"

	"github.com/headgate-rls/headgate/slots"
	"github.com/headgate-rls/headgate/slots/plan"
	"github.com/headgate-rls/headgate/test/dbtest"
)

// An event takes two round trips if the process has seen room for it in its window, else three, and
// a repeat one.
func TestRoundTrips(t *testing.T) {
	eachServer(t, func(t *testing.T, address string) {
		u, err := url.Parse(address)
		check(t, err)
		direct := migrated(t, address)
		provision(t, direct, 0, 200)
		_, err = direct.PutConfig(soon(t), slots.Config{ID: "c", Name: "c", Max: 1000, SizeMs: 4000, Active: true}, nowhere)
		check(t, err)
		counter := dbtest.CountTrips(t, u.Host)
		u.Host = counter.Addr
		db := mustOpen(t, u.String())
		db.sql.Write.SetMaxOpenConns(1)
		for engine, want := range map[string]int64{"tx": 2, "tx, a new window each": 3} {
			e := slots.TxEngine(db)
			for n := range 4 {
				first := int64(0)
				if want == 3 {
					first = int64(n+1) * series.SizeMs
				}
				s := &slots.Search{Series: series, ConfigID: "c", Max: 1000, FirstMs: first, FromMs: first + series.SizeMs,
					EndMs: plan.MaxSizeMs,
					Asks:  []slots.Ask{{EventID: fmt.Sprint(engine, n), SlotID: fmt.Sprint("s", engine, n), FirstMax: 1000}}}
				for _, status := range []slots.Status{slots.New, slots.Existing} {
					before := counter.Count()
					found, err := e.Assign(soon(t), s)
					check(t, err)
					if found.Answers[0].Status != status {
						t.Fatalf("%s, %s, event %d: %+v", db.dialect.Name, engine, n, found.Answers[0])
					}
					s.Asks[0].SlotID += "again"
					trips := counter.Count() - before
					if n < 2 { // connects, and makes statements known to the server
						continue
					}
					if status == slots.Existing && trips != 1 {
						t.Errorf("%s, %s: a repeat takes %d round trips, want 1", db.dialect.Name, engine, trips)
					}
					if status == slots.New && trips != want {
						t.Errorf("%s, %s: %d round trips, want %d", db.dialect.Name, engine, trips, want)
					}
				}
			}
		}
	})
}

// The windows that Drift compares do not make more round trips, whether they differ or not.
func TestDriftTakesNoTripPerWindow(t *testing.T) {
	eachServer(t, func(t *testing.T, address string) {
		u, err := url.Parse(address)
		check(t, err)
		direct := migrated(t, address)
		c, err := direct.PutConfig(soon(t), slots.Config{ID: "c", Name: "c", Max: 1000, SizeMs: series.SizeMs,
			Active: true}, nowhere)
		check(t, err)
		_, err = direct.Provision(soon(t), slots.SeriesOf(c, false), 0, 1000*series.SizeMs, nil)
		check(t, err)
		mustExec(t, direct.sql.Write, "UPDATE RL_WNDW_CT SET SLOT_CT = 3 WHERE WNDW_STRT_TS = (SELECT * FROM (SELECT "+
			"MAX(WNDW_STRT_TS) FROM RL_WNDW_CT) M)")
		counter := dbtest.CountTrips(t, u.Host)
		u.Host = counter.Addr
		db := mustOpen(t, u.String())
		db.sql.Write.SetMaxOpenConns(1)
		drift := func(windows int64) (trips int64, drifts []slots.Drift) {
			for range 3 { // the first connects, and makes statements known to the server
				before := counter.Count()
				drifts, _, err = db.Drift(soon(t), 0, windows*series.SizeMs, nil, 10_000, false)
				check(t, err)
				trips = counter.Count() - before
			}
			return trips, drifts
		}
		few, none := drift(10)
		many, one := drift(1000)
		if few != many || few > 3 || len(none) != 0 || len(one) != 1 || one[0].Count != 3 {
			t.Errorf("10 windows: %d round trips, %v; 1,000 windows: %d, %v", few, none, many, one)
		}
	})
}
