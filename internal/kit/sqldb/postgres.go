package sqldb

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/headgate-rls/headgate/internal/kit/certs"
)

// Postgres is PostgreSQL, or a pooler in front of it.
var Postgres = &Dialect{
	Name:       "postgres",
	Now:        "clock_timestamp()",
	Instant:    func(us int64) any { return time.UnixMicro(us).UTC() },
	Micros:     micros(func(t time.Time) (int64, error) { return t.UnixMicro(), nil }),
	Bound:      func(place string) string { return place + "::timestamptz" },
	Selected:   plain,
	Clock:      "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint",
	number:     "$",
	schemes:    []string{"postgres", "postgresql"},
	parse:      parsePostgres,
	batch:      postgresBatch,
	classify:   classifyPostgres,
	migrations: postgresMigrations(),
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
	if err := wantPrimary(u.Host, parameters); err != nil {
		return nil, err
	}
	secret := password(u, parameters)
	u.RawQuery = parameters.Encode()
	read := func() (*pgx.ConnConfig, error) {
		config, err := pgx.ParseConfig(u.String())
		if err != nil {
			return nil, scrub(err, secret)
		}
		noteCertificates(parameters)
		config.User, config.Password = cmp.Or(c.Username, config.User), cmp.Or(c.Password, config.Password)
		return config, nil
	}
	config, err := read()
	if err != nil {
		return nil, err
	}
	// The files of certificates and of the password are read again for each connection, because these are renewed.
	renew := func(_ context.Context, config *pgx.ConnConfig) error {
		now, err := read()
		if err == nil {
			config.TLSConfig, config.Fallbacks, config.Password = now.TLSConfig, now.Fallbacks, now.Password
		}
		return err
	}
	config.ConnectTimeout = min(cmp.Or(config.ConnectTimeout, dialTimeout), dialTimeout)
	if _, ok := config.RuntimeParams["application_name"]; !ok {
		config.RuntimeParams["application_name"] = "headgate"
	}
	connector := newPostgresConnector(config, renew, parameters.Has("default_query_exec_mode"), c)
	shown := "postgres://" + strings.Join(postgresHosts(&config.Config), ",") + "/" + config.Database
	return &source{shown: shown, open: func(db *DB) error {
		db.onePool(connector, c)
		db.opening = connector.opening
		return nil
	}}, nil
}

// noteCertificates notes that the certificates in the driver's files are in use.
func noteCertificates(parameters url.Values) {
	for _, name := range []string{"sslcert", "sslrootcert"} {
		if _, valid, err := certs.Authorities(certs.OfClient, parameters.Get(name)); err == nil {
			valid.Note()
		}
	}
}

// wantPrimary has the driver look for the host that takes writes, if the URL names several.
func wantPrimary(hosts string, parameters url.Values) error {
	const name = "target_session_attrs"
	several := strings.Contains(hosts, ",")
	switch target := parameters.Get(name); {
	case target == "" && several:
		parameters.Set(name, "read-write")
	case target == "", target == "read-write", target == "primary", target == "any" && !several:
	default:
		return fmt.Errorf("database url: %s=%s: want read-write or primary, as headgate writes", name, target)
	}
	return nil
}

// postgresHosts are the addresses of a config, each once, in the order in which they are tried.
func postgresHosts(config *pgconn.Config) (all []string) {
	add := func(host string, port uint16) { all = append(all, net.JoinHostPort(host, strconv.Itoa(int(port)))) }
	add(config.Host, config.Port)
	for _, f := range config.Fallbacks { // one without TLS follows one with it
		add(f.Host, f.Port)
	}
	return slices.Compact(all)
}

// postgresBatch implements Dialect.batch.
func postgresBatch(ctx context.Context, conn *sql.Conn, queries []Query) (answered bool, err error) {
	var b pgx.Batch
	for _, q := range queries {
		queued := b.Queue(q.Text, q.Args...)
		if !q.reads() {
			continue
		}
		queued.Query(func(rows pgx.Rows) error {
			for rows.Next() {
				if err := q.take(rows.Scan); err != nil {
					return err
				}
			}
			answered = answered || rows.Err() == nil
			return rows.Err()
		})
	}
	err = conn.Raw(func(driverConn any) error {
		c, ok := driverConn.(*stdlib.Conn)
		if !ok {
			return fmt.Errorf("the connection is %T", driverConn)
		}
		return c.Conn().SendBatch(ctx, &b).Close()
	})
	return answered, err
}

// postgresLock is the number of the advisory lock that migrations take; any that
// no other program uses will do.
const postgresLock = "7235403165208571"

func postgresMigrations() migrations {
	return migrations{
		begin: func(ctx context.Context, db *sql.DB) (Session, func(error) error, error) {
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

		hasFlyway:     "SELECT 1 WHERE to_regclass('flyway_schema_history') IS NOT NULL",
		flywayApplied: "SELECT 1 FROM flyway_schema_history WHERE version = '1' AND success",
		createHistory: "CREATE TABLE IF NOT EXISTS ${HISTORY} (SCRIPT_NM VARCHAR(100) NOT NULL PRIMARY KEY," +
			" CHECKSUM_TX VARCHAR(64) NOT NULL, APPLIED_TS TIMESTAMPTZ NOT NULL)",
	}
}

// classifyPostgres looks at SQLSTATE, see appendix A of PostgreSQL's manual.
func classifyPostgres(err error) failure {
	var e *pgconn.PgError
	switch {
	case errors.As(err, &e):
		f := classifySQLState(e)
		f.undone = e.Severity == "ERROR" // others end the session, and may come after the commit
		return f
	case errors.As(err, new(*pgconn.ConnectError)):
		return failure{kind: Unavailable}
	case pgconn.Timeout(err), strings.Contains(err.Error(), "conn closed"), strings.Contains(err.Error(), "closed pool"):
		return failure{kind: Passing}
	}
	return failure{}
}

// poolerRefusals are parts of PgBouncer's errors for rejected logins. Their code is that of a protocol
// violation.
var poolerRefusals = []string{"password authentication failed", "no such user", "no such database", "does not exist"}

func classifySQLState(e *pgconn.PgError) failure {
	switch class := e.Code[:min(2, len(e.Code))]; {
	case e.Code == "08P01" && mentions(e, poolerRefusals):
		return failure{}
	case e.Code == "23505":
		return duplicate(e.ConstraintName)
	case e.Code == "40001", e.Code == "40P01": // serialization, deadlock
		return failure{kind: Passing}
	case e.Code == "55P03", e.Code == "57014": // lock not available; cancelled, as by statement_timeout
		return failure{kind: Held}
	case e.Code == "25006": // read-only: what was the primary is a replica now
		return failure{kind: Passing, stale: true, readOnly: true}
	case e.Code == "25P03": // idle in transaction for too long
		return failure{kind: Passing}
	case e.Code == "57P01", e.Code == "57P02", e.Code == "57P05", class == "08":
		// shut down, crashed, idle, connection lost
		return failure{kind: Passing, stale: true}
	case e.Code == "53100", e.Code == "53200": // the disk or the memory is full
		return failure{kind: Unavailable, full: true}
	case e.Code == "57P03", class == "53", class == "58": // starting up; no resources such as connections; the disk fails
		return failure{kind: Unavailable}
	case slices.Contains([]string{"42P01", "42703", "42883", "3F000"}, e.Code): // unknown table, column, function, schema
		return failure{schema: true}
	case e.Code == "0A000" && strings.Contains(e.Message, "cached plan"): // the schema was migrated meanwhile
		return failure{kind: Passing}
	}
	return failure{}
}
