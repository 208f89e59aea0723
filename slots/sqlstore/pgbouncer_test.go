package sqlstore

import (
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/slots"
	"github.com/headgate-rls/headgate/slots/internal/slotstest"
	"github.com/headgate-rls/headgate/test/testenv"
)

// poolers runs a test behind PgBouncers: of each mode, and one that says nothing of
// the settings of sessions that it ignores.
func poolers(t *testing.T, test func(t *testing.T, at func(server string) string)) {
	t.Helper()
	for name, c := range map[string]struct{ mode, settings string }{
		"session": {testenv.PoolSession, ""}, "transaction": {testenv.PoolTransaction, ""},
		"ignores": {testenv.PoolTransaction,
			"ignore_startup_parameters = default_transaction_isolation, idle_in_transaction_session_timeout, plan_cache_mode"},
	} {
		t.Run(name, func(t *testing.T) {
			test(t, testenv.StartPgBouncer(t, testenv.SharedDatabase(t, testenv.Postgres), c.mode, c.settings).URLOf)
		})
	}
}

// Behind PgBouncer, as its package is configured, all is as without it.
func TestPgBouncerConformance(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	pg := testenv.SharedDatabase(t, testenv.Postgres)
	bouncer := testenv.StartPgBouncer(t, pg, testenv.PoolTransaction)
	fresh := func(t *testing.T) slotstest.Database {
		address, err := url.Parse(bouncer.URLOf(testenv.SharedDatabase(t, testenv.Postgres).CreateDatabase("bounced")))
		check(t, err)
		proxy := testenv.StartProxy(t, address.Host)
		address.Host = proxy.Addr
		return slotstest.Database{URL: address.String(), CutAll: proxy.Cut,
			Open: func(t *testing.T) slots.Store { return migrated(t, address.String()) }}
	}
	slotstest.Run(t, slotstest.Harness{Name: "pgbouncer", Short: slotstest.Parts, Fresh: fresh})
}

// The sessions of one pool are not those of its clients: what one client sets up
// must not be what another relies on.
func TestPgBouncerSharesSessions(t *testing.T) {
	poolers(t, func(t *testing.T, at func(string) string) {
		address := at(testenv.SharedDatabase(t, testenv.Postgres).CreateDatabase("bounced"))
		for round := range 2 {
			db := migrated(t, address)
			s, err := slots.NewScheduler(db, slots.Settings{})
			check(t, err)
			_, err = s.PutConfig(soon(t), slots.NewConfig{Name: "default", Max: 7, SizeMs: 4000})
			check(t, err)
			results := make(chan error)
			for i := range 40 {
				go func() {
					_, err := s.Assign(soon(t), slots.Request{EventID: fmt.Sprint(round, "-", i),
						At: time.UnixMilli(int64(i%3) * 60_000)})
					results <- err
				}()
			}
			for range 40 {
				if err := <-results; err != nil {
					t.Error(err)
				}
			}
			check(t, db.Ping(soon(t)))
		}
	})
}

// What cannot be set behind a pooler must be as it should be.
func TestPgBouncerWithAnotherIsolation(t *testing.T) {
	pg := testenv.SharedDatabase(t, testenv.Postgres)
	address := pg.CreateDatabase("bounced")
	u, err := url.Parse(address)
	check(t, err)
	mustExec(t, mustOpen(t, address).sql.Write, "ALTER DATABASE "+u.Path[1:]+
		" SET default_transaction_isolation TO 'serializable'")
	check(t, mustOpen(t, address).sql.Write.PingContext(soon(t)))
	_, err = mustOpen(t, testenv.StartPgBouncer(t, pg, testenv.PoolTransaction).URLOf(address)).Migrate(soon(t))
	wantError(t, err, `default_transaction_isolation is "serializable" behind a connection pooler`, "ALTER ROLE")
}

// A URL that says how statements are sent decides it.
func TestPgBouncerModeOfTheURL(t *testing.T) {
	pg := testenv.SharedDatabase(t, testenv.Postgres)
	address := testenv.StartPgBouncer(t, pg, testenv.PoolSession).URLOf(pg.CreateDatabase("bounced"))
	db := migrated(t, address+"&default_query_exec_mode=cache_statement")
	for range 3 {
		_, err := db.Generation(soon(t))
		check(t, err)
	}
	if n := one(t, db.sql.Write, "SELECT count(*) FROM pg_prepared_statements"); n == "0" {
		t.Error("no statement was prepared")
	}
	_, err := mustOpen(t, address+"&search_path=x").Migrate(soon(t))
	wantError(t, err, "unsupported startup parameter: search_path")
}
