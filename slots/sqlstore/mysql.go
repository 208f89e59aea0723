package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/headgate-rls/headgate/slots"
)

func mysqlDialect() *dialect {
	return &dialect{
		name:       "mysql",
		schemes:    []string{"mysql", "mariadb"},
		parse:      parseMySQL,
		instant:    mysqlInstant,
		micros:     mysqlMicros,
		find:       findIn,
		claim:      claimRows("UTC_TIMESTAMP(6)", mysqlInstant),
		pipeline:   &pipeline{begin: mysqlBegin, end: mysqlEnd},
		statements: mysqlStatements(),
		migrations: mysqlMigrations(),
		classify:   classifyMySQL,

		purgeWindows: mysqlPurgeWindows,
	}
}

// mysqlTime is how instants are bound and read: as UTC text, which no session's
// time zone touches.
const mysqlTime = "2006-01-02 15:04:05.000000"

// mysqlSession makes a session what the statements expect, whatever the server's
// settings. The names are those that MySQL and MariaDB share.
const mysqlSession = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"

// mysqlWaitLock bounds the wait for a lock, in seconds.
const mysqlWaitLock = "1"

// mysqlSettings are set together, in the same round trip as the character set.
const mysqlSettings = "'STRICT_TRANS_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION'"

// parseMySQL reads mysql://user:password@host:3306/database?parameters.
func parseMySQL(address string, c Config) (*source, error) {
	u, err := parseURL(address)
	if err != nil {
		return nil, err
	}
	config := mysql.NewConfig()
	config.Net = "tcp"
	config.Addr = u.Host
	if u.Port() == "" {
		config.Addr = net.JoinHostPort(u.Hostname(), "3306")
	}
	if config.DBName = strings.TrimPrefix(u.Path, "/"); config.DBName == "" {
		return nil, fmt.Errorf("database url: it names no database; want %s://host:port/database", u.Scheme)
	}
	parameters := u.Query()
	config.User, config.Passwd = parameters.Get("user"), password(u, parameters)
	if name := u.User.Username(); name != "" {
		config.User = name
	}
	if config.TLSConfig, err = mysqlTLS(parameters); err != nil {
		return nil, err
	}
	if c.Username != "" {
		config.User = c.Username
	}
	if c.Password != "" {
		config.Passwd = c.Password
	}
	config.Timeout = dialTimeout
	config.ClientFoundRows = true   // an update that changes nothing has found its row all the same
	config.InterpolateParams = true // one round trip instead of two; safe with this character set
	config.MultiStatements = true   // for the pipeline; values are never part of a text
	config.Params = map[string]string{"sql_mode": mysqlSettings, "innodb_lock_wait_timeout": mysqlWaitLock}
	if err := config.Apply(mysql.Charset("utf8mb4", "utf8mb4_bin"), mysql.EnableCompression(false)); err != nil {
		return nil, scrub(err, config.Passwd)
	}
	config.Logger = mysqlSilence{} // every error is returned, too
	return &source{shown: u.Scheme + "://" + config.Addr + "/" + config.DBName, open: func() (pools, error) {
		connector, err := mysql.NewConnector(config)
		if err != nil {
			return pools{}, scrub(err, config.Passwd)
		}
		db := newPool(mysqlConnector{connector}, c.withDefaults())
		return pools{read: db, write: db}, nil
	}}, nil
}

// mysqlTLS reads the parameters of a URL, of which only those of TLS are known,
// by our driver's name and by those of Java's.
func mysqlTLS(parameters url.Values) (string, error) {
	modes := map[string]string{
		"tls=true": "true", "tls=false": "", "tls=skip-verify": "skip-verify", "tls=preferred": "preferred",
		"usessl=true": "true", "usessl=false": "",
		"sslmode=disabled": "", "sslmode=preferred": "preferred", "sslmode=required": "skip-verify",
		"sslmode=verify_ca": "true", "sslmode=verify_identity": "true", // the name is verified in any case
		"sslmode=disable": "", "sslmode=trust": "skip-verify", "sslmode=verify-ca": "true", "sslmode=verify-full": "true",
	}
	mode := ""
	for _, name := range slices.Sorted(keysOf(parameters)) {
		if name == "user" || name == "password" {
			continue
		}
		known, ok := modes[strings.ToLower(name+"="+parameters.Get(name))]
		if !ok {
			return "", fmt.Errorf("database url: mysql knows no parameter %q with this value; want tls=true, tls=skip-verify, tls=preferred or tls=false", name)
		}
		mode = known
	}
	return mode, nil
}

// keysOf ranges over the names of parameters.
func keysOf(v url.Values) func(func(string) bool) {
	return func(yield func(string) bool) {
		for name := range v {
			if !yield(name) {
				return
			}
		}
	}
}

// mysqlSilence is a logger for the driver.
type mysqlSilence struct{}

// Print implements mysql.Logger.
func (mysqlSilence) Print(...any) {}

// mysqlConnector prepares each session.
type mysqlConnector struct{ driver.Connector }

// Connect implements driver.Connector.
func (c mysqlConnector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, unsent(err)
	}
	execer, ok := conn.(driver.ExecerContext)
	if !ok {
		return nil, errors.Join(errors.New("the driver cannot run a statement"), conn.Close())
	}
	if _, err := execer.ExecContext(ctx, mysqlSession, nil); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// unsent finds the driver's name for a connection that broke before anything was
// sent, which it does not always translate, so that database/sql tries another.
func unsent(err error) error {
	if err.Error() == "bad connection" {
		return driver.ErrBadConn
	}
	return err
}

func mysqlInstant(us int64) any { return time.UnixMicro(us).UTC().Format(mysqlTime) }

func mysqlMicros(src any) (int64, error) {
	text, ok := src.([]byte)
	if !ok {
		return 0, fmt.Errorf("an instant is %T instead of a text", src)
	}
	t, err := time.ParseInLocation(mysqlTime, string(text), time.UTC)
	return t.UnixMicro(), err
}

// mysqlBegin begins and locks in one round trip. Of the results the lock's is the
// last.
func mysqlBegin(ctx context.Context, conn *sql.Conn, before []query, lock query, to ...any) (ok bool, err error) {
	text, args := "START TRANSACTION; ", []any(nil)
	for _, q := range append(before, lock) {
		text += q.text + "; "
		args = append(args, q.args...)
	}
	rows, err := conn.QueryContext(ctx, strings.TrimSuffix(text, "; "), args...)
	if err != nil {
		return false, mysqlGateHeld(len(before) > 1, err)
	}
	defer rows.Close()
	for {
		columns, err := rows.Columns()
		if err != nil {
			return false, err
		}
		for rows.Next() {
			if ok = len(columns) == len(to); ok {
				err = rows.Scan(to...)
			}
			if err != nil {
				return false, err
			}
		}
		if !rows.NextResultSet() {
			return ok, rows.Err()
		}
	}
}

// mysqlGateHeld: the first statement that returns rows is the gate, if there is one, and its
// errors come first. A version that is being changed is no reason to pass over a window.
func mysqlGateHeld(gate bool, err error) error {
	if f := classifyMySQL(err); gate && f.kind == slots.Held {
		return &slots.StoreError{Kind: slots.Passing, Op: "hold the version of a config", Err: err}
	}
	return err
}

// mysqlEnd does the rest. After an error the server does not run what follows, the
// commit with it.
func mysqlEnd(ctx context.Context, conn *sql.Conn, claim []query) error {
	var text strings.Builder
	var args []any
	for _, q := range claim {
		text.WriteString(q.text + "; ")
		args = append(args, q.args...)
	}
	_, err := conn.ExecContext(ctx, text.String()+"COMMIT", args...)
	return err
}

func mysqlStatements() statements {
	const start = "TIMESTAMPADD(MICROSECOND, W.N * P.SIZE * 1000, P.STRT)"
	w := words{
		arg: func(kind byte, _ int) string {
			if kind == '@' {
				return "CAST(? AS DATETIME(6))"
			}
			return "?"
		},
		ordered: true,
		now:     "UTC_TIMESTAMP(6)",
		dual:    " FROM DUAL",
		lock:    " FOR UPDATE",
		wait:    " FOR UPDATE",
		first:   "LIMIT 1",
		most:    func(arg string) string { return "LIMIT " + arg },
		instant: func(column string) string { return column },
		plus:    func(at, ms string) string { return "TIMESTAMPADD(MICROSECOND, " + ms + " * 1000, " + at + ")" },
		insert:  func(table string) string { return "INSERT INTO " + table },
		// Unlike IGNORE this takes no shared lock, on which those who insert the same row
		// would wait for each other crosswise.
		skip: func(table string) string {
			return " ON DUPLICATE KEY UPDATE " + table + ".CREAT_TS = " + table + ".CREAT_TS"
		},
		key: func(arg string) string { return arg },
	}
	s := w.statements()
	s.addLeader = text("INSERT IGNORE INTO RL_SLOT_CTL (CTL_NM, GEN_CT) VALUES (?, 0)")
	s.gate = text("SELECT ACT_IN FROM RL_EVENT_WNDW_CONFIG WHERE RL_WNDW_CONFIG_ID = ? LOCK IN SHARE MODE")
	s.gateAll = text("SELECT ACT_IN FROM RL_EVENT_WNDW_CONFIG WHERE RL_WNDW_CONFIG_ID = ? FOR UPDATE")
	// By a range of one key: a row that is read by its whole key stays locked even
	// if its count is too high.
	s.lock = w.text("SELECT SLOT_CT, (SELECT ACT_IN FROM RL_EVENT_WNDW_CONFIG WHERE RL_WNDW_CONFIG_ID = :5) FROM RL_WNDW_CT" +
		" WHERE WNDW_SCOPE_NM = :1 AND WNDW_SIZE_MS = #2 AND WNDW_STRT_TS >= @3 AND WNDW_STRT_TS <= @3 AND SLOT_CT < #4 FOR UPDATE")
	s.provision = text(`INSERT IGNORE INTO RL_WNDW_CT (WNDW_SCOPE_NM, WNDW_SIZE_MS, WNDW_STRT_TS, SLOT_CT, CREAT_TS)
WITH RECURSIVE W (N) AS (SELECT 0 UNION ALL SELECT N + 1 FROM W WHERE N + 1 < ?),
P (SCOPE, SIZE, STRT) AS (SELECT ?, ?, CAST(? AS DATETIME(6))),
C (N, CT) AS (SELECT TIMESTAMPDIFF(MICROSECOND, ?, COMPUTED_SCHED_TS) DIV (? * 1000), COUNT(*) FROM RL_EVENT_SLOT_DTL
 WHERE WNDW_SCOPE_NM = ? AND COMPUTED_SCHED_TS >= ? AND COMPUTED_SCHED_TS < TIMESTAMPADD(MICROSECOND, ? * ? * 1000, CAST(? AS DATETIME(6))) GROUP BY 1)
SELECT P.SCOPE, P.SIZE, `+start+`, COALESCE(C.CT, 0), UTC_TIMESTAMP(6)
  FROM P JOIN W LEFT JOIN C ON C.N = W.N
 WHERE NOT EXISTS (SELECT 1 FROM RL_WNDW_CT T
        WHERE T.WNDW_SCOPE_NM = ? AND T.WNDW_SIZE_MS = ? AND T.WNDW_STRT_TS = `+start+`)
 ORDER BY W.N`, 3, 0, 1, 2, 2, 1, 0, 2, 3, 1, 2, 0, 1)
	s.recount = w.text("INSERT IGNORE INTO RL_WNDW_CT (WNDW_SCOPE_NM, WNDW_SIZE_MS, WNDW_STRT_TS, SLOT_CT, CREAT_TS)" +
		" SELECT :1, #2, TIMESTAMPADD(MICROSECOND, FLOOR(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', COMPUTED_SCHED_TS) / (#2 * 1000)) * #2 * 1000, '1970-01-01') W," +
		" COUNT(*), UTC_TIMESTAMP(6) FROM RL_EVENT_SLOT_DTL WHERE WNDW_SCOPE_NM = :1 AND COMPUTED_SCHED_TS >= @3 GROUP BY W")
	s.purgeFrontiers = text("DELETE F FROM RL_WNDW_FRONTIER_TRK F JOIN (SELECT WNDW_SCOPE_NM, WNDW_SIZE_MS, REQ_TS, WNDW_END_TS" +
		" FROM RL_WNDW_FRONTIER_TRK WHERE TIMESTAMPADD(MICROSECOND, WNDW_SIZE_MS * 1000, REQ_TS) <= ? AND CREAT_TS < ? LIMIT ?) D" +
		" ON F.WNDW_SCOPE_NM = D.WNDW_SCOPE_NM AND F.WNDW_SIZE_MS = D.WNDW_SIZE_MS AND F.REQ_TS = D.REQ_TS AND F.WNDW_END_TS = D.WNDW_END_TS")
	s.purgeSlots = text("DELETE FROM RL_EVENT_SLOT_DTL WHERE CREAT_TS < ? AND COMPUTED_SCHED_TS < ? ORDER BY CREAT_TS LIMIT ?", 0, 0, 1)
	return s
}

// mysqlPurgeWindows looks for the windows first, which locks nothing, and deletes
// each by its key: a DELETE that looks for rows itself, even by a list of keys,
// may lock all that it reads, and would wait for windows that are being claimed.
func mysqlPurgeWindows(ctx context.Context, db *DB, ended, made any, limit int) (purged int64, err error) {
	const op = "purge windows"
	const old = "SELECT WNDW_SCOPE_NM, WNDW_SIZE_MS, WNDW_STRT_TS FROM RL_WNDW_CT" +
		" WHERE TIMESTAMPADD(MICROSECOND, WNDW_SIZE_MS * 1000, WNDW_STRT_TS) <= ? AND CREAT_TS < ? LIMIT ?"
	const drop = "DELETE FROM RL_WNDW_CT WHERE WNDW_SCOPE_NM = ? AND WNDW_SIZE_MS = ? AND WNDW_STRT_TS = ?"
	var keys [][]any
	err = db.rows(ctx, db.pools.read, op, query{text: old, args: []any{ended, made, limit}}, func(rows *sql.Rows) error {
		var scope, start string
		var size int64
		err := rows.Scan(&scope, &size, &start)
		keys = append(keys, []any{scope, size, start})
		return err
	})
	if err != nil {
		return 0, err
	}
	for some := range slices.Chunk(keys, 100) { // a commit for each would cost more
		err := db.transact(ctx, op, func(tx *sql.Tx) error {
			for _, key := range some {
				n, err := db.change(ctx, tx, op, query{text: drop, args: key})
				if err != nil {
					return err
				}
				purged += n
			}
			return nil
		})
		if err != nil {
			return purged, err
		}
	}
	return purged, nil
}

// mysqlLock is the name of the lock that migrations of a database take: locks are
// the whole server's. mysqlWait bounds the wait for it, in seconds.
const (
	mysqlLock = "CONCAT('headgate.', LEFT(SHA2(DATABASE(), 256), 32))"
	mysqlWait = "600"
)

func mysqlMigrations() migrations {
	return migrations{
		begin:  beginMySQL,
		values: mysqlValues,
		printed: func(scheme string) map[string]string {
			return mysqlCollation(scheme == "mariadb")
		},
		printHead: "DELIMITER //\nSET time_zone = '+00:00'//\nDO GET_LOCK(" + mysqlLock + ", " + mysqlWait + ")//\n",
		printEnd:  "//",
		printTail: "DO RELEASE_LOCK(" + mysqlLock + ")//\nDELIMITER ;\n",

		hasFlyway:     text("SELECT 1 FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = 'flyway_schema_history'"),
		flywayApplied: text("SELECT 1 FROM flyway_schema_history WHERE version = '1' AND success = 1"),
		createHistory: text("CREATE TABLE IF NOT EXISTS RL_SCHEMA_HISTORY (SCRIPT_NM VARCHAR(100) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY," +
			" CHECKSUM_TX VARCHAR(64) NOT NULL, APPLIED_TS DATETIME(6) NOT NULL) ENGINE = InnoDB"),
		history:     text("SELECT SCRIPT_NM, CHECKSUM_TX FROM RL_SCHEMA_HISTORY"),
		addHistory:  text("INSERT INTO RL_SCHEMA_HISTORY (SCRIPT_NM, CHECKSUM_TX, APPLIED_TS) VALUES (?, ?, UTC_TIMESTAMP(6))"),
		dropHistory: text("DELETE FROM RL_SCHEMA_HISTORY WHERE SCRIPT_NM = ?"),

		present: func(_ string, err error) bool {
			var e *mysql.MySQLError
			// Table, column, key name exists; a key to drop does not.
			return errors.As(err, &e) && slices.Contains([]uint16{1050, 1060, 1061, 1091}, e.Number)
		},
	}
}

// beginMySQL takes the lock on a connection of its own, and ends that connection, whose
// settings are changed, afterwards.
func beginMySQL(ctx context.Context, db *sql.DB) (session, func(error) error, error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, nil, err
	}
	drop := func() error {
		_ = conn.Raw(func(any) error { return driver.ErrBadConn }) // the pool forgets it, the server frees the lock
		return ignoreDone(conn.Close())
	}
	var got sql.NullInt64
	// Columns that are TIMESTAMPs are converted by the session's time zone.
	_, err = conn.ExecContext(ctx, "SET time_zone = '+00:00'")
	if err == nil {
		err = conn.QueryRowContext(ctx, "SELECT GET_LOCK("+mysqlLock+", "+mysqlWait+")").Scan(&got)
	}
	if err == nil && got.Int64 != 1 {
		err = errors.New("another process has been migrating this database for " + mysqlWait + " s")
	}
	if err != nil {
		return nil, nil, errors.Join(err, drop())
	}
	return conn, func(error) error { return drop() }, nil
}

func ignoreDone(err error) error {
	if errors.Is(err, sql.ErrConnDone) {
		return nil
	}
	return err
}

// mysqlValues asks the server which of the two it is.
func mysqlValues(ctx context.Context, s session) (map[string]string, error) {
	var version string
	if err := s.QueryRowContext(ctx, "SELECT VERSION()").Scan(&version); err != nil {
		return nil, err
	}
	return mysqlCollation(strings.Contains(version, "MariaDB")), nil
}

// mysqlCollation is the collation of ids, which compares bytes and does not pad.
func mysqlCollation(mariaDB bool) map[string]string {
	if mariaDB {
		return map[string]string{"COLLATION": "utf8mb4_nopad_bin"}
	}
	return map[string]string{"COLLATION": "utf8mb4_0900_bin"}
}

// classifyMySQL goes by the server's error numbers.
func classifyMySQL(err error) failure {
	var e *mysql.MySQLError
	if errors.Is(err, mysql.ErrInvalidConn) || errors.Is(unsent(err), driver.ErrBadConn) {
		return failure{kind: slots.Passing}
	}
	if !errors.As(err, &e) {
		return failure{}
	}
	switch e.Number {
	case 1062:
		return duplicate(mysqlIndex(e.Message))
	case 1213, 1020, 1317, 1927: // deadlock, changed since read, interrupted, killed
		return failure{kind: slots.Passing}
	case 1205, 3572: // waited for a lock for too long, or not at all
		return failure{kind: slots.Held}
	case 1053, 1158, 1159, 1160, 1161, 2006, 2013: // shut down, connection lost
		return failure{kind: slots.Passing, stale: true}
	case 1290, 1792, 1836: // read-only: what was the primary is a replica now
		return failure{kind: slots.Passing, stale: true}
	case 1040, 1203, 1226: // too many connections
		return failure{kind: slots.Unavailable}
	}
	return failure{}
}

// mysqlIndex is the index in a message such as "Duplicate entry 'a' for key
// 'RL_EVENT_SLOT_DTL.RL_EVENT_SLOT_DTL_IUX'"; the entry may hold anything.
func mysqlIndex(message string) string {
	_, index, found := cutLast(message, "for key '")
	if !found {
		return ""
	}
	return strings.TrimSuffix(index, "'")
}

// cutLast is strings.Cut at the last separator.
func cutLast(s, separator string) (before, after string, found bool) {
	if i := strings.LastIndex(s, separator); i >= 0 {
		return s[:i], s[i+len(separator):], true
	}
	return s, "", false
}
