package sqldb

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
)

// postgresSession are settings of sessions, where those are headgate's own.
var postgresSession = map[string]string{
	"default_transaction_isolation": postgresIsolation,
	// A plan that was made while a table was small would read all of it for ever, until
	// somebody runs ANALYZE. Every statement has an index that serves it.
	"enable_seqscan": "off",
	// That makes the few statements that do read a whole table look very expensive. The
	// server would compile them, which takes a hundred times as long as they do.
	"jit": "off",
}

// postgresBounds are the settings that follow from a Config. Behind a pooler each transaction
// brings them along; statements outside of one are without them.
func postgresBounds(c Config) map[string]string {
	bounds := map[string]string{postgresIdle: milliseconds(c.withDefaults().IdleInTransaction)}
	if c.LockWait > 0 {
		bounds["lock_timeout"] = milliseconds(c.LockWait)
	}
	if c.Relaxed {
		bounds["synchronous_commit"] = "off"
	}
	return bounds
}

// postgresIdle ends a session of a process that is frozen, or died without a word.
const postgresIdle = "idle_in_transaction_session_timeout"

func milliseconds(d time.Duration) string { return strconv.FormatInt(max(d.Milliseconds(), 1), 10) }

const postgresIsolation = "read committed"

// A postgresConnector connects to PostgreSQL, or to a pooler such as PgBouncer in
// front of it. The sessions of a pooler are those of other clients, too: it refuses
// settings of sessions, and a statement that was prepared in one session is not there
// in the next. So nothing is set up there, and no statement is prepared.
type postgresConnector struct {
	direct, pooled driver.Connector
	behind         atomic.Bool // a pooler was seen
	bounds         Query       // sets up one transaction
	log            *slog.Logger
}

// newPostgresConnector completes the config, whose URL says itself how statements are
// sent if ownMode. renew is called before each connection.
func newPostgresConnector(config *pgx.ConnConfig, renew func(context.Context, *pgx.ConnConfig) error, ownMode bool,
	c Config) *postgresConnector {
	pooled := config.Copy()
	if !ownMode {
		pooled.DefaultQueryExecMode = pgx.QueryExecModeExec
	}
	defaults, bounds := maps.Clone(postgresSession), postgresBounds(c)
	maps.Copy(defaults, bounds)
	maps.Copy(defaults, config.RuntimeParams) // what the URL says goes before
	config.RuntimeParams = defaults
	var options []stdlib.OptionOpenDB
	if c.Repeats {
		options = append(options,
			stdlib.OptionShouldPing(func(context.Context, stdlib.ShouldPingParams) bool { return false }))
	}
	options = append(options, stdlib.OptionBeforeConnect(func(ctx context.Context, config *pgx.ConnConfig) error {
		shareTime(ctx, config)
		return renew(ctx, config)
	}))
	return &postgresConnector{direct: stdlib.GetConnector(*config, options...),
		pooled: stdlib.GetConnector(*pooled, options...), bounds: setLocally(bounds), log: c.withDefaults().Log}
}

// shareTime gives each of several hosts a part of the time: one that is silent leaves enough for those after it. The
// driver takes the first that takes writes.
func shareTime(ctx context.Context, config *pgx.ConnConfig) {
	deadline, ok := ctx.Deadline()
	hosts := time.Duration(len(postgresHosts(&config.Config)))
	if part := time.Until(deadline) / hosts; ok && hosts > 1 && part > 0 {
		config.ConnectTimeout = min(config.ConnectTimeout, part)
	}
}

// setLocally is a query that changes settings until the transaction ends.
func setLocally(settings map[string]string) Query {
	var calls []string
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		calls = append(calls, fmt.Sprintf("set_config('%s', '%s', true)", name, settings[name]))
	}
	return Query{Text: "SELECT " + strings.Join(calls, ", ")}
}

// opening are the statements that a transaction begins with.
func (c *postgresConnector) opening() []Query {
	if !c.behind.Load() {
		return nil
	}
	return []Query{c.bounds}
}

func (c *postgresConnector) Driver() driver.Driver { return c.direct.Driver() }

func (c *postgresConnector) Connect(ctx context.Context) (driver.Conn, error) {
	if !c.behind.Load() {
		conn, err := c.direct.Connect(ctx)
		behind := refusesSettings(err)
		if err == nil {
			behind, err = behindPooler(ctx, conn)
		}
		if !behind {
			return conn, err
		}
		if !c.behind.Swap(true) {
			c.log.Info("connection pooler detected in front of the database; statements are not prepared")
		}
	}
	conn, err := c.pooled.Connect(ctx)
	if err != nil {
		return nil, err
	}
	if err := checkIsolation(ctx, conn); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// behindPooler reports whether a pooler has answered instead of the server: it gives
// connections a number that is not that of the server's process. The connection is closed
// then, and after an error.
func behindPooler(ctx context.Context, conn driver.Conn) (bool, error) {
	var pid uint32
	c := conn.(*stdlib.Conn).Conn()
	err := c.QueryRow(ctx, "SELECT pg_backend_pid()", pgx.QueryExecModeExec).Scan(&pid)
	if err == nil && pid == c.PgConn().PID() {
		return false, nil
	}
	_ = conn.Close() // whatever comes of it, the connection is of no use
	return err == nil, err
}

// refusesSettings reports whether an error is a pooler's about settings of sessions.
func refusesSettings(err error) bool {
	var e *pgconn.PgError
	return errors.As(err, &e) && e.Code == "08P01" && // protocol violation
		mentions(e, append(slices.Collect(maps.Keys(postgresSession)), postgresIdle, "lock_timeout", "synchronous_commit"))
}

// mentions reports whether the message of an error has one of the texts in it.
func mentions(e *pgconn.PgError, texts []string) bool {
	return slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(e.Message, text) })
}

// checkIsolation makes sure of the isolation that could not be set.
func checkIsolation(ctx context.Context, conn driver.Conn) error {
	var is string
	err := conn.(*stdlib.Conn).Conn().QueryRow(ctx, "SELECT current_setting('default_transaction_isolation')",
		pgx.QueryExecModeExec).Scan(&is)
	if err == nil && is != postgresIsolation {
		err = fmt.Errorf("default_transaction_isolation is %q behind a connection pooler, "+
			"which does not let headgate set it: "+
			"set it to %q for headgate's user by ALTER ROLE … SET", is, postgresIsolation)
	}
	return err
}
