package sqldb

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-sql-driver/mysql"
)

// MySQL is MySQL and MariaDB.
var MySQL = &Dialect{
	Name:       "mysql",
	Now:        "UTC_TIMESTAMP(6)", // a session's time zone may have hours that come twice
	Clock:      "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))",
	Instant:    func(us int64) any { return time.UnixMicro(us).UTC().Format(textLayout) },
	Micros:     micros(func(text []byte) (int64, error) { return textMicros(string(text)) }),
	Bound:      func(place string) string { return "CAST(" + place + " AS DATETIME(6))" },
	Selected:   plain,
	schemes:    []string{"mysql", "mariadb"},
	parse:      parseMySQL,
	batch:      mysqlBatch,
	classify:   classifyMySQL,
	migrations: mysqlMigrations(),
}

// mysqlSession makes a session what the statements expect, whatever the server's
// settings. The names are those that MySQL and MariaDB share.
const mysqlSession = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"

// mysqlIdle has the server end a session that a process which is frozen, or gone without a word,
// leaves in a transaction. MariaDB knows such sessions; MySQL, for which the comment is one, ends all that
// are idle for longer than the pool keeps them.
func mysqlIdle(inTransaction time.Duration) string {
	return fmt.Sprintf("SET SESSION wait_timeout = 330 /*M!100300 , idle_transaction_timeout = %d */",
		wholeSeconds(inTransaction))
}

// wholeSeconds rounds up, to one at least.
func wholeSeconds(d time.Duration) int64 { return max(1, int64((d+time.Second-1)/time.Second)) }

// mysqlSettings are set together, in the same round trip as the character set.
const mysqlSettings = "'STRICT_TRANS_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION'"

// parseMySQL reads mysql://user:password@host:3306/database?parameters, with one host or with several.
func parseMySQL(address string, c Config) (*source, error) {
	u, err := parseURL(address)
	if err != nil {
		return nil, err
	}
	config := mysql.NewConfig()
	config.Net = "tcp"
	hosts, err := mysqlHosts(u.Host)
	if err != nil {
		return nil, err
	}
	if config.DBName = strings.TrimPrefix(u.Path, "/"); config.DBName == "" {
		return nil, fmt.Errorf("database url: it has no database name; want %s://host:port/database", u.Scheme)
	}
	parameters := u.Query()
	config.User = cmp.Or(c.Username, u.User.Username(), parameters.Get("user"))
	config.Passwd = cmp.Or(c.Password, password(u, parameters))
	if config.TLSConfig, err = mysqlTLS(parameters); err != nil {
		return nil, err
	}
	if c.Relaxed {
		return nil, fmt.Errorf("database url: on %s the server decides whether a commit waits for the disk "+
			"(innodb_flush_log_at_trx_commit); a session cannot change that", u.Scheme)
	}
	config.Timeout = dialTimeout
	config.ClientFoundRows = true   // an update that changes nothing has found its row all the same
	config.InterpolateParams = true // one round trip instead of two; safe with this character set
	config.MultiStatements = true   // for mysqlBatch; values are never part of a text
	config.Params = map[string]string{"sql_mode": mysqlSettings,
		"innodb_lock_wait_timeout": strconv.FormatInt(wholeSeconds(c.LockWait), 10)}
	if err := config.Apply(mysql.Charset("utf8mb4", "utf8mb4_bin"), mysql.EnableCompression(false)); err != nil {
		return nil, scrub(err, config.Passwd)
	}
	config.Logger = mysqlSilence{} // every error is returned, too
	return &source{shown: u.Scheme + "://" + strings.Join(hosts, ",") + "/" + config.DBName, open: func(db *DB) error {
		connector, err := newMySQLHosts(config, hosts)
		if err != nil {
			return scrub(err, config.Passwd)
		}
		prepared := &mysqlConnector{Connector: connector, idle: mysqlIdle(c.withDefaults().IdleInTransaction)}
		db.onePool(prepared, c)
		db.returning = prepared.returning.Load
		return nil
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
	for _, name := range slices.Sorted(maps.Keys(parameters)) {
		if name == "user" || name == "password" {
			continue
		}
		known, ok := modes[strings.ToLower(name+"="+parameters.Get(name))]
		if !ok {
			return "", fmt.Errorf("database url: unknown parameter %q of mysql, or an unknown value of it; want tls=true, "+
				"tls=skip-verify, tls=preferred or tls=false", name)
		}
		mode = known
	}
	return mode, nil
}

// mysqlSilence is a logger for the driver.
type mysqlSilence struct{}

// Print implements mysql.Logger.
func (mysqlSilence) Print(...any) {}

// mysqlConnector prepares each session.
type mysqlConnector struct {
	driver.Connector
	idle      string
	returning atomic.Bool // the server is a MariaDB that knows INSERT … RETURNING
}

// Connect implements driver.Connector.
func (c *mysqlConnector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, unsent(err)
	}
	if err := c.prepare(ctx, conn); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

func (c *mysqlConnector) prepare(ctx context.Context, conn driver.Conn) error {
	returning := false
	for _, text := range []string{mysqlSession, c.idle, "SELECT 1 FROM DUAL WHERE 0 /*M!100500 OR 1 */"} {
		var err error
		if returning, err = hasRow(ctx, conn, text); err != nil {
			return err
		}
	}
	c.returning.Store(returning)
	return nil
}

// hasRow runs a statement on a connection, and reports whether it returns a row.
func hasRow(ctx context.Context, conn driver.Conn, text string) (bool, error) {
	queryer, ok := conn.(driver.QueryerContext)
	if !ok {
		return false, errors.New("the driver cannot run a statement")
	}
	rows, err := queryer.QueryContext(ctx, text, nil)
	if err != nil {
		return false, err
	}
	err = rows.Next(make([]driver.Value, 1))
	if errors.Is(err, io.EOF) {
		return false, rows.Close()
	}
	return err == nil, errors.Join(err, rows.Close())
}

// unsent finds the driver's name for a connection that broke before anything was
// sent, which it does not always translate, so that database/sql tries another.
func unsent(err error) error {
	if err.Error() == "bad connection" {
		return driver.ErrBadConn
	}
	return err
}

// mysqlBatch implements Dialect.batch.
func mysqlBatch(ctx context.Context, conn *sql.Conn, queries []Query) (answered bool, err error) {
	var texts []string
	var args []any
	var reads []Query
	for _, q := range queries {
		texts, args = append(texts, q.Text), append(args, q.Args...)
		if q.reads() {
			reads = append(reads, q)
		}
	}
	rows, err := conn.QueryContext(ctx, strings.Join(texts, "; "), args...)
	if err != nil {
		return false, err // the driver returns when the first rows are there
	}
	defer rows.Close()
	for i := 0; ; i++ {
		for rows.Next() {
			if err := reads[i].take(rows.Scan); err != nil {
				return true, err
			}
		}
		if !rows.NextResultSet() {
			return true, rows.Err()
		}
	}
}

// mysqlLock is the name of the lock that migrations of a database take: locks are
// the whole server's. mysqlWait bounds the wait for it, in seconds.
const (
	mysqlLock = "CONCAT('headgate.', LEFT(SHA2(DATABASE(), 256), 32))"
	mysqlWait = "600"
)

func mysqlMigrations() migrations {
	return migrations{
		begin:     beginMySQL,
		values:    mysqlValues,
		version:   "SELECT VERSION()",
		printHead: "DELIMITER //\nSET time_zone = '+00:00'//\nDO GET_LOCK(" + mysqlLock + ", " + mysqlWait + ")//\n",
		printEnd:  "//",
		printTail: "DO RELEASE_LOCK(" + mysqlLock + ")//\nDELIMITER ;\n",

		hasFlyway: "SELECT 1 FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = " +
			"'flyway_schema_history'",
		flywayApplied: "SELECT 1 FROM flyway_schema_history WHERE version = '1' AND success = 1",
		createHistory: "CREATE TABLE IF NOT EXISTS ${HISTORY} (SCRIPT_NM VARCHAR(100) CHARACTER SET ascii COLLATE " +
			"ascii_bin NOT NULL PRIMARY KEY," +
			" CHECKSUM_TX VARCHAR(64) NOT NULL, APPLIED_TS DATETIME(6) NOT NULL) ENGINE = InnoDB",

		present: func(_ string, err error) bool {
			var e *mysql.MySQLError
			// Table, column, key name exists; a key to drop does not.
			return errors.As(err, &e) && slices.Contains([]uint16{1050, 1060, 1061, 1091}, e.Number)
		},
	}
}

// beginMySQL takes the lock on a connection of its own, and ends that connection, whose
// settings are changed, afterwards.
func beginMySQL(ctx context.Context, db *sql.DB) (Session, func(error) error, error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, nil, err
	}
	drop := func() error {
		_ = conn.Raw(func(any) error { return driver.ErrBadConn }) // the pool forgets it, the server frees the lock
		if err := conn.Close(); !errors.Is(err, sql.ErrConnDone) {
			return err
		}
		return nil
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

// mysqlValues has the collation of ids, which compares bytes and does not pad.
func mysqlValues(of string) map[string]string {
	if strings.Contains(strings.ToLower(of), "mariadb") {
		return map[string]string{"COLLATION": "utf8mb4_nopad_bin"}
	}
	return map[string]string{"COLLATION": "utf8mb4_0900_bin"}
}

// classifyMySQL looks at the server's error numbers.
func classifyMySQL(err error) failure {
	var e *mysql.MySQLError
	if errors.Is(err, mysql.ErrInvalidConn) || errors.Is(unsent(err), driver.ErrBadConn) {
		return failure{kind: Passing}
	}
	if !errors.As(err, &e) {
		return failure{}
	}
	f := classifyMySQLNumber(e)
	f.undone = !slices.Contains(mysqlMidway, e.Number)
	return f
}

// mysqlMidway are errors that may come in the middle of a commit.
var mysqlMidway = []uint16{1053, 1180, 1317, 1927, 3100, 3169}

func classifyMySQLNumber(e *mysql.MySQLError) failure {
	switch e.Number {
	case 1047: // unknown command; from Galera: the node has lost its cluster
		if strings.Contains(e.Message, "WSREP") {
			return failure{kind: Passing, stale: true}
		}
	case 1062:
		return duplicate(mysqlIndex(e.Message))
	case 1213, 1020, 1317, 1412, 1927, 3101, 3169:
		// deadlock, changed since read, interrupted, killed, not certified by a group
		return failure{kind: Passing}
	case 1205, 3572, 1969, 3024: // waited for a lock for too long, or not at all; a statement took too long
		return failure{kind: Held}
	case 1053, 1152, 1158, 1159, 1160, 1161, 1184, 2006, 2013, 4031: // shut down, connection lost
		return failure{kind: Passing, stale: true}
	case 1290, 1792, 1836, 3100: // read-only: what was the primary is a replica now, or has left its group
		return failure{kind: Passing, stale: true, readOnly: true}
	case 1146, 1054, 1305: // unknown table, column, procedure
		return failure{schema: true}
	case 1040, 1129, 1203, 1226, 9001: // too many connections, or too many that broke off; ProxySQL reaches no server
		return failure{kind: Unavailable}
	case 3, 1021, 1026, 1030, 1114, 1180, 1598: // no room on the disk, or in a table; files cannot be written
		return failure{kind: Unavailable, full: true}
	}
	return failure{}
}

// mysqlIndex is the index in a message such as "Duplicate entry 'a' for key
// 'RL_EVENT_SLOT_DTL.RL_EVENT_SLOT_DTL_IUX'"; the entry may hold anything.
func mysqlIndex(message string) string {
	return strings.TrimSuffix(afterLast(message, "for key '"), "'")
}

// mysqlHosts are the addresses that the host of a URL has, separated by commas.
func mysqlHosts(text string) (all []string, err error) {
	for host := range strings.SplitSeq(text, ",") {
		if _, _, err := net.SplitHostPort(host); err != nil {
			host = net.JoinHostPort(strings.Trim(host, "[]"), "3306")
		}
		if strings.HasPrefix(host, ":") {
			return nil, errors.New("database url: a host has no name; want host:3306, or host:3306,host:3306")
		}
		all = append(all, host)
	}
	return all, nil
}

// mysqlConnectors connect to the first of several hosts that takes writes. Each of them has an equal
// part of the time: one that is silent leaves enough for those after it.
type mysqlConnectors []driver.Connector

// Driver implements driver.Connector.
func (c mysqlConnectors) Driver() driver.Driver { return c[0].Driver() }

// newMySQLHosts returns a connector that asks for no more than a connection if there is one host.
func newMySQLHosts(config *mysql.Config, hosts []string) (driver.Connector, error) {
	all := make(mysqlConnectors, len(hosts))
	for i, host := range hosts {
		own := config.Clone()
		own.Addr = host
		var err error
		if all[i], err = mysql.NewConnector(own); err != nil {
			return nil, err
		}
	}
	if len(all) == 1 {
		return all[0], nil
	}
	return all, nil
}

// Connect implements driver.Connector.
func (c mysqlConnectors) Connect(ctx context.Context) (driver.Conn, error) {
	var failed []error
	for i, host := range c {
		conn, err := connectInPart(ctx, host, len(c)-i)
		if err == nil {
			return conn, nil
		}
		failed = append(failed, unsent(err))
	}
	return nil, errors.Join(failed...)
}

// connectInPart connects to a host that takes writes, within a part of the time that is left.
func connectInPart(ctx context.Context, host driver.Connector, part int) (driver.Conn, error) {
	within := dialTimeout
	if deadline, ok := ctx.Deadline(); ok {
		within = min(within, time.Until(deadline)/time.Duration(part))
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	conn, err := host.Connect(ctx)
	if err != nil {
		return nil, err
	}
	writable, err := hasRow(ctx, conn, takesWrites)
	if err == nil && !writable {
		err = errReadOnly
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// errReadOnly is the error that a read-only server returns to a write.
var errReadOnly = &mysql.MySQLError{Number: 1290,
	Message: "the server is read-only, as replicas are, or has lost its cluster"}

// takesWrites returns a row if a server is not read-only and, where it is a MariaDB that is a node of a
// Galera cluster, has not lost the others.
const takesWrites = `SELECT 1 FROM DUAL WHERE @@GLOBAL.read_only IN ('0', 'OFF') /*M!100500 AND NOT EXISTS (
	SELECT 1 FROM information_schema.GLOBAL_VARIABLES V, information_schema.GLOBAL_STATUS S
	WHERE V.VARIABLE_NAME = 'WSREP_ON' AND V.VARIABLE_VALUE = 'ON'
	AND S.VARIABLE_NAME = 'WSREP_READY' AND S.VARIABLE_VALUE = 'OFF') */`
