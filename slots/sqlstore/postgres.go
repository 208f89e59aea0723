package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/headgate-rls/headgate/slots"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
)

func postgresDialect() *dialect {
	return &dialect{
		name:        "postgres",
		schemes:     []string{"postgres", "postgresql"},
		parse:       parsePostgres,
		instant:     func(us int64) any { return time.UnixMicro(us).UTC() },
		micros:      postgresMicros,
		find:        postgresFind,
		claim:       postgresClaim,
		pipeline:    &pipeline{begin: postgresBegin, end: postgresEnd},
		statements:  postgresStatements(),
		boundedWait: postgresWait,
		migrations:  postgresMigrations(),
		assign:      postgresAssign,
		classify:    classifyPostgres,
	}
}

// postgresJDBC are names of the Java driver's parameters, and ours.
var postgresJDBC = map[string]string{"currentSchema": "search_path", "ApplicationName": "application_name"}

// parsePostgres reads postgres://…, whose parameters are those of libpq and
// settings of the session.
func parsePostgres(address string, c Config) (*source, error) {
	u, err := parseURL(address)
	if err != nil {
		return nil, err
	}
	parameters := u.Query()
	for theirs, ours := range postgresJDBC {
		if parameters.Has(theirs) {
			parameters.Set(ours, parameters.Get(theirs))
			parameters.Del(theirs)
		}
	}
	if ssl := parameters.Get("ssl"); ssl == "true" && !parameters.Has("sslmode") {
		parameters.Set("sslmode", "verify-full")
	}
	parameters.Del("ssl")
	secret := password(u, parameters)
	u.RawQuery = parameters.Encode()
	config, err := pgx.ParseConfig(u.String())
	if err != nil {
		return nil, scrub(err, secret)
	}
	if c.Username != "" {
		config.User = c.Username
	}
	if c.Password != "" {
		config.Password = c.Password
	}
	if config.ConnectTimeout == 0 || config.ConnectTimeout > dialTimeout {
		config.ConnectTimeout = dialTimeout
	}
	if _, ok := config.RuntimeParams["application_name"]; !ok {
		config.RuntimeParams["application_name"] = "headgate"
	}
	connector := newPostgresConnector(config, parameters.Has("default_query_exec_mode"), c.withDefaults().Log)
	shown := "postgres://" + net.JoinHostPort(config.Host, strconv.Itoa(int(config.Port))) + "/" + config.Database
	return &source{shown: shown, open: func() (pools, error) {
		db := newPool(connector, c.withDefaults())
		return pools{read: db, write: db}, nil
	}}, nil
}

func postgresMicros(src any) (int64, error) {
	t, ok := src.(time.Time)
	if !ok {
		return 0, fmt.Errorf("an instant is %T instead of a time", src)
	}
	return t.UnixMicro(), nil
}

func postgresFind(ids []string) query {
	return query{text: "SELECT " + slotColumns + " FROM RL_EVENT_SLOT_DTL WHERE EVENT_ID = ANY($1::text[])", args: []any{ids}}
}

// postgresClaim is one statement: the update counts what the insert has returned.
func postgresClaim(s slots.Series, windowMs int64, claimed []slots.Slot) []query {
	n := len(claimed)
	ids, events, configs := make([]string, n), make([]string, n), make([]string, n)
	requested, scheduled := make([]time.Time, n), make([]time.Time, n)
	for i, c := range claimed {
		ids[i], events[i], configs[i] = c.ID, c.EventID, c.ConfigID
		requested[i], scheduled[i] = c.Requested(), c.Scheduled()
	}
	return []query{{`WITH I AS (
INSERT INTO RL_EVENT_SLOT_DTL (` + slotColumns + `)
SELECT U.ID, U.EVENT, $1::text, $2::bigint, U.REQUESTED, $3::timestamptz, U.SCHEDULED, U.CONFIG, clock_timestamp()
  FROM unnest($4::text[], $5::text[], $6::timestamptz[], $7::timestamptz[], $8::text[]) AS U (ID, EVENT, REQUESTED, SCHEDULED, CONFIG)
RETURNING 1)
UPDATE RL_WNDW_CT SET SLOT_CT = SLOT_CT + (SELECT COUNT(*) FROM I)
 WHERE WNDW_SCOPE_NM = $1::text AND WNDW_SIZE_MS = $2::bigint AND WNDW_STRT_TS = $3::timestamptz`,
		[]any{s.Scope, s.SizeMs, time.UnixMilli(windowMs).UTC(), ids, events, requested, scheduled, configs}, 1}}
}

// postgresWait bounds the wait for a window.
const postgresWait = "SET LOCAL lock_timeout = 1000"

// postgresBegin begins and locks in one round trip.
func postgresBegin(ctx context.Context, conn *sql.Conn, before []query, lock query, to ...any) (ok bool, err error) {
	var b pgx.Batch
	b.Queue("begin")
	for _, q := range before {
		b.Queue(q.text, q.args...)
	}
	b.Queue(lock.text, lock.args...).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			ok = true
			if err := rows.Scan(to...); err != nil {
				return err
			}
		}
		return rows.Err()
	})
	return ok, postgresBatch(ctx, conn, &b)
}

// postgresEnd does the rest. After an error the server ignores what follows in
// the batch, the commit with it.
func postgresEnd(ctx context.Context, conn *sql.Conn, claim []query) error {
	var b pgx.Batch
	for _, q := range claim {
		b.Queue(q.text, q.args...)
	}
	b.Queue("commit")
	return postgresBatch(ctx, conn, &b)
}

func postgresBatch(ctx context.Context, conn *sql.Conn, b *pgx.Batch) error {
	return conn.Raw(func(driverConn any) error {
		c, ok := driverConn.(*stdlib.Conn)
		if !ok {
			return fmt.Errorf("the connection is %T", driverConn)
		}
		return c.Conn().SendBatch(ctx, b).Close()
	})
}

// postgresTypes are those of arguments.
var postgresTypes = map[byte]string{':': "text", '#': "bigint", '@': "timestamptz"}

func postgresStatements() statements {
	w := words{
		arg:     func(kind byte, n int) string { return "$" + strconv.Itoa(n) + "::" + postgresTypes[kind] },
		now:     "clock_timestamp()",
		lock:    " FOR UPDATE",
		wait:    " FOR UPDATE",
		first:   "LIMIT 1",
		most:    func(arg string) string { return "LIMIT " + arg },
		instant: func(column string) string { return column },
		plus:    func(at, ms string) string { return at + " + " + ms + " * interval '1 millisecond'" },
		insert:  func(table string) string { return "INSERT INTO " + table },
		skip:    func(string) string { return " ON CONFLICT DO NOTHING" },
		key:     func(arg string) string { return arg },
	}
	s := w.statements()
	s.gate = text("SELECT pg_advisory_xact_lock_shared(hashtextextended($1::text, 0))")
	s.gateAll = text("SELECT pg_advisory_xact_lock(hashtextextended($1::text, 0))")
	s.provision = text(`WITH C AS (
SELECT (extract(epoch FROM COMPUTED_SCHED_TS - $3::timestamptz) * 1000000)::bigint / ($2::bigint * 1000) AS N, COUNT(*) AS CT FROM RL_EVENT_SLOT_DTL
 WHERE WNDW_SCOPE_NM = $1::text AND COMPUTED_SCHED_TS >= $3::timestamptz
   AND COMPUTED_SCHED_TS < $3::timestamptz + $4::bigint * ($2::bigint * interval '1 millisecond') GROUP BY 1),
W AS (SELECT N, $3::timestamptz + N * ($2::bigint * interval '1 millisecond') AS STRT FROM generate_series(0, $4::bigint - 1) AS N)
INSERT INTO RL_WNDW_CT (WNDW_SCOPE_NM, WNDW_SIZE_MS, WNDW_STRT_TS, SLOT_CT, CREAT_TS)
SELECT $1::text, $2::bigint, W.STRT, COALESCE(C.CT, 0), clock_timestamp()
  FROM W LEFT JOIN C ON C.N = W.N
 WHERE NOT EXISTS (SELECT 1 FROM RL_WNDW_CT T
        WHERE T.WNDW_SCOPE_NM = $1::text AND T.WNDW_SIZE_MS = $2::bigint AND T.WNDW_STRT_TS = W.STRT
          AND T.WNDW_STRT_TS >= $3::timestamptz AND T.WNDW_STRT_TS < $3::timestamptz + $4::bigint * ($2::bigint * interval '1 millisecond'))
 ORDER BY W.STRT
ON CONFLICT DO NOTHING`)
	s.recount = text("INSERT INTO RL_WNDW_CT (WNDW_SCOPE_NM, WNDW_SIZE_MS, WNDW_STRT_TS, SLOT_CT, CREAT_TS)" +
		" SELECT $1::text, $2::bigint, TIMESTAMPTZ 'epoch' + (floor(extract(epoch FROM COMPUTED_SCHED_TS) * 1000 / $2::bigint) * $2::bigint) * interval '1 millisecond'," +
		" COUNT(*), clock_timestamp() FROM RL_EVENT_SLOT_DTL WHERE WNDW_SCOPE_NM = $1::text AND COMPUTED_SCHED_TS >= $3::timestamptz GROUP BY 3 ON CONFLICT DO NOTHING")
	s.purgeFrontiers = text("DELETE FROM RL_WNDW_FRONTIER_TRK WHERE (WNDW_SCOPE_NM, WNDW_SIZE_MS, REQ_TS, WNDW_END_TS) IN" +
		" (SELECT WNDW_SCOPE_NM, WNDW_SIZE_MS, REQ_TS, WNDW_END_TS FROM RL_WNDW_FRONTIER_TRK" +
		" WHERE REQ_TS + WNDW_SIZE_MS * interval '1 millisecond' <= $1 AND CREAT_TS < $2 LIMIT $3)")
	s.purgeWindows = text("DELETE FROM RL_WNDW_CT WHERE (WNDW_SCOPE_NM, WNDW_SIZE_MS, WNDW_STRT_TS) IN" +
		" (SELECT WNDW_SCOPE_NM, WNDW_SIZE_MS, WNDW_STRT_TS FROM RL_WNDW_CT" +
		" WHERE WNDW_STRT_TS + WNDW_SIZE_MS * interval '1 millisecond' <= $1 AND CREAT_TS < $2 LIMIT $3 FOR UPDATE SKIP LOCKED)")
	s.purgeSlots = text("DELETE FROM RL_EVENT_SLOT_DTL WHERE WNDW_SLOT_ID IN" +
		" (SELECT WNDW_SLOT_ID FROM RL_EVENT_SLOT_DTL WHERE CREAT_TS < $1 AND COMPUTED_SCHED_TS < $1 ORDER BY CREAT_TS LIMIT $2)")
	return s
}

// postgresLock is the number of the advisory lock that migrations take; any that
// nobody else uses will do.
const postgresLock = "7235403165208571"

func postgresMigrations() migrations {
	return migrations{
		begin: func(ctx context.Context, db *sql.DB) (session, func(error) error, error) {
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				return nil, nil, err
			}
			if _, err := tx.ExecContext(ctx, "SELECT pg_advisory_xact_lock("+postgresLock+")"); err != nil {
				return nil, nil, errors.Join(err, finishTx(tx)(err))
			}
			return tx, finishTx(tx), nil
		},
		printHead: "BEGIN;\nSELECT pg_advisory_xact_lock(" + postgresLock + ");\n",
		printEnd:  ";",
		printTail: "COMMIT;\n",

		hasFlyway:     text("SELECT 1 WHERE to_regclass('flyway_schema_history') IS NOT NULL"),
		flywayApplied: text("SELECT 1 FROM flyway_schema_history WHERE version = '1' AND success"),
		createHistory: text("CREATE TABLE IF NOT EXISTS RL_SCHEMA_HISTORY (SCRIPT_NM VARCHAR(100) NOT NULL PRIMARY KEY," +
			" CHECKSUM_TX VARCHAR(64) NOT NULL, APPLIED_TS TIMESTAMPTZ NOT NULL)"),
		history:     text("SELECT SCRIPT_NM, CHECKSUM_TX FROM RL_SCHEMA_HISTORY"),
		addHistory:  text("INSERT INTO RL_SCHEMA_HISTORY (SCRIPT_NM, CHECKSUM_TX, APPLIED_TS) VALUES ($1, $2, clock_timestamp())"),
		dropHistory: text("DELETE FROM RL_SCHEMA_HISTORY WHERE SCRIPT_NM = $1"),
	}
}

// classifyPostgres goes by SQLSTATE, see appendix A of PostgreSQL's manual.
func classifyPostgres(err error) failure {
	var e *pgconn.PgError
	var connect *pgconn.ConnectError
	switch {
	case errors.As(err, &e):
		return classifySQLState(e)
	case errors.As(err, &connect):
		return failure{kind: slots.Unavailable}
	case pgconn.Timeout(err), strings.Contains(err.Error(), "conn closed"), strings.Contains(err.Error(), "closed pool"):
		return failure{kind: slots.Passing}
	}
	return failure{}
}

func classifySQLState(e *pgconn.PgError) failure {
	switch class := e.Code[:min(2, len(e.Code))]; {
	case e.Code == "23505":
		return duplicate(e.ConstraintName)
	case e.Code == "40001", e.Code == "40P01": // serialization, deadlock
		return failure{kind: slots.Passing}
	case e.Code == "55P03": // lock not available
		return failure{kind: slots.Held}
	case e.Code == "25006": // read-only: what was the primary is a replica now
		return failure{kind: slots.Passing, stale: true}
	case e.Code == "25P03": // idle in transaction for too long
		return failure{kind: slots.Passing}
	case e.Code == "57P01", e.Code == "57P02", class == "08": // shut down, crashed, connection lost
		return failure{kind: slots.Passing, stale: true}
	case e.Code == "57P03", class == "53": // starting up, no resources such as connections
		return failure{kind: slots.Unavailable}
	case e.Code == "0A000" && strings.Contains(e.Message, "cached plan"): // the schema was migrated meanwhile
		return failure{kind: slots.Passing}
	}
	return failure{}
}

// parseURL reads a URL with a host. Its errors do not quote it: there may be a
// password in it.
func parseURL(address string) (*url.URL, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, errors.New("database url: it cannot be read; want scheme://user:password@host:port/database?parameters," +
			" with special characters in user and password as %XX, or give them apart from it")
	}
	if u.Host == "" {
		return nil, fmt.Errorf("database url: it has no host; want %s://host:port/database", u.Scheme)
	}
	return u, nil
}

// password is the one in a URL, wherever it is.
func password(u *url.URL, parameters url.Values) string {
	if p, ok := u.User.Password(); ok {
		return p
	}
	return parameters.Get("password")
}

// scrub makes an error about a URL without its password.
func scrub(err error, secret string) error {
	text := err.Error()
	if secret != "" {
		text = strings.ReplaceAll(text, secret, "xxxxx")
		text = strings.ReplaceAll(text, url.QueryEscape(secret), "xxxxx")
		text = strings.ReplaceAll(text, url.PathEscape(secret), "xxxxx")
	}
	return errors.New("database url: " + text)
}
