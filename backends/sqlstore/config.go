package sqlstore

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/internal/kit/background"
	"github.com/headgate-rls/headgate/internal/kit/params"
	"github.com/headgate-rls/headgate/internal/kit/sqldb"
	"github.com/headgate-rls/headgate/limit"
)

// A Config says which database keeps the state, and how. [Parse] makes one.
type Config struct {
	// URL is that of the database, as internal/kit/sqldb reads it.
	URL string
	// Timeout bounds a call; the caller's deadline counts if it is earlier. A statement waits for
	// locks for a quarter of it.
	Timeout time.Duration
	// InFlight is how many slices are decided at once, and MaxSlice how many requests are gathered
	// into one. Slices of one process wait for each other's rows, so more than one costs more than
	// it brings.
	InFlight, MaxSlice int
	// Relaxed: a commit does not wait for the disk.
	Relaxed bool
	// Existing: a SQLite file that does not exist is an error. Migrate does not create it either.
	Existing bool
	// Sweep is how often expired rows are looked for.
	Sweep time.Duration

	Log    *slog.Logger         // nil: nothing is logged
	Panics *background.Reporter // nil: the default logger

	dialect *dialect
}

const (
	defaultTimeout  = 500 * time.Millisecond
	defaultMaxSlice = 256
	defaultSweep    = 10 * time.Minute
	maxSlice        = 1000
	maxInFlight     = 64
)

// Parse reads sqlite:FILE, postgres://…, mysql://…, mariadb://… or oracle://… with the parameters of README.md.
// It does not connect. Its errors hold no password.
func Parse(rawURL string) (Config, error) {
	c := Config{Timeout: defaultTimeout, InFlight: 1, MaxSlice: defaultMaxSlice, Sweep: defaultSweep,
		dialect: dialectOf(rawURL)}
	if c.dialect == nil {
		scheme, _, _ := strings.Cut(rawURL, ":")
		return c, fmt.Errorf("unknown scheme %q of a database for limits; want one of %s", scheme,
			strings.Join(sqldb.Schemes(), ", "))
	}
	if err := sqldb.CheckLogin(rawURL); err != nil {
		return c, err
	}
	address, query, _ := strings.Cut(rawURL, "?")
	others, err := params.Take(query, []params.Row{
		{Name: "commit", Set: c.setCommit},
		params.Number("in_flight", &c.InFlight, 1, maxInFlight),
		params.Number("max_slice", &c.MaxSlice, 1, maxSlice),
		params.Duration("sweep", &c.Sweep, time.Second, 24*time.Hour),
		params.Duration("timeout", &c.Timeout, 10*time.Millisecond, time.Minute),
	})
	if err != nil {
		return c, err
	}
	c.URL = address
	if len(others) > 0 { // are of the database
		c.URL += "?" + others.Encode()
	}
	return c, c.database().Check() // as far as that is known without connecting
}

func (c *Config) setCommit(text string) error {
	switch {
	case text == "durable":
		c.Relaxed = false
	case text != "relaxed":
		return errors.New("want durable or relaxed")
	case !c.dialect.relaxes:
		return errors.New("MySQL and MariaDB wait for the disk as the server is set, by innodb_flush_log_at_trx_commit; " +
			"a session cannot say otherwise")
	default:
		c.Relaxed = true
	}
	return nil
}

// database is the Config of the pool that decides.
func (c *Config) database() sqldb.Config {
	return sqldb.Config{
		URL: c.URL, Log: c.Log, Relaxed: c.Relaxed, Existing: c.Existing,
		LockWait: c.Timeout / 4, IdleInTransaction: time.Second, Repeats: true,
		// What is in flight, and the registry, the janitor, a ping and a rollback beside it.
		PoolMin: c.InFlight, PoolMax: c.InFlight + 4,
	}
}

// maxLog bounds a sliding log. Each admission writes the list of its parts: 400 for so many units,
// 1,600 if their instants are far apart.
const maxLog = 100_000

// Caps returns what a backend with this Config promises.
func (c *Config) Caps() backends.Caps {
	caps := backends.Caps{
		Name: c.dialect.Name, Algorithms: backends.Promises(limit.AllAlgorithms(), maxLog, c.dialect.maxLeases, 2),
		Atomicity: backends.Whole, ServerClock: true, Precision: time.Microsecond, MaxOps: 64,
		InFlight: c.InFlight, MaxSlice: c.MaxSlice, DenyOnFailure: true,
	}
	for a, ac := range caps.Algorithms {
		if a.Is(limit.Logged | limit.Leased) { // whose states have lists
			ac.Trips = c.dialect.longTrips
			caps.Algorithms[a] = ac
		}
	}
	return caps
}
