package sqlstore

import (
	"os"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/backends/backendtest"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/test/dbtest"
	"github.com/headgate-rls/headgate/test/random"
	"github.com/headgate-rls/headgate/test/testenv"
)

const childURL = "HEADGATE_TEST_SQL_URL"

// TestChild is one of several processes of the conformance suite.
func TestChild(t *testing.T) {
	backendtest.Child(t, func(tb testing.TB) backends.Backend { return openURL(tb, os.Getenv(childURL)) })
}

// suite is the conformance suite for a database that has the schema.
func suite(t *testing.T, url string) backendtest.Suite {
	probe := open(t, url)
	rounds := random.Times(9, 60)
	if testing.Short() {
		rounds = 8
	}
	return backendtest.Suite{
		Caps: probe.caps, Shared: true, Rounds: rounds,
		Open:  func(tb testing.TB) backends.Backend { return openURL(tb, url) },
		Child: "TestChild", ChildEnv: []string{childURL + "=" + url},
		Stored: func(tb testing.TB) int {
			if _, err := probe.sweepPage(soon(tb), nil, 0); err != nil {
				tb.Fatal(err)
			}
			return int(number64(tb, probe, "SELECT COUNT(*) FROM HEADGATE_STATE"))
		},
	}
}

func TestConformanceSQLite(t *testing.T) {
	url := servers()[0].create(t)
	migrate(t, url)
	backendtest.Run(t, suite(t, url))
}

// TestConformance has a server of its own, which it hurts.
func TestConformance(t *testing.T) {
	for _, engine := range []string{testenv.Postgres, testenv.MariaDB, testenv.MySQL} {
		t.Run(engine, func(t *testing.T) {
			server := testenv.StartDatabase(t, engine)
			url := server.CreateDatabase("limits")
			migrate(t, url)
			counter := dbtest.CountTrips(t, hostOf(t, url))
			counted := through(t, url, counter.Addr)
			s := suite(t, url)
			s.Short = engine == testenv.MySQL // MariaDB has its dialect
			s.Open = func(tb testing.TB) backends.Backend { return warmed(tb, openURL(tb, counted)) }
			s.Trips = counter.Count
			s.Faults = &backendtest.Faults{
				Freeze: func(testing.TB) { server.Pause() }, Thaw: func(testing.TB) { server.Resume() },
				Kill: func(testing.TB) { server.Kill() }, Restart: func(testing.TB) { server.Restart() },
			}
			backendtest.Run(t, s)
		})
	}
}

// warmed makes b's statements known to the server, which takes a round trip more for each of them on
// each connection.
func warmed(tb testing.TB, b *Backend) *Backend {
	for range 2 { // a new row, then one that is there
		take(tb, b, 0, "warm", 1)
	}
	check(tb, b.Forget(soon(tb), []limit.Key{{Group: "warm"}}))
	return b
}

// perHour admits a million per hour.
var perHour = limit.MustNew(limit.Spec{Algorithm: limit.FixedWindow, Max: 1_000_000, Window: time.Hour})

// take takes units of perHour at an instant.
func take(tb testing.TB, b *Backend, at limit.Instant, group string, cost int64) limit.Verdict {
	tb.Helper()
	out := make([]limit.Verdict, 1)
	b.Take(soon(tb),
		[]limit.Request{{At: at, Ops: []limit.Op{{Key: limit.Key{Group: group}, Limit: perHour, Cost: cost}}}}, out)
	check(tb, out[0].Err)
	return out[0]
}
