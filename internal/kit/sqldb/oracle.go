package sqldb

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Oracle is Oracle 19c and later.
//
// Instants cross as text in UTC: drivers bind times with a zone, and Oracle would
// then convert the column by the zone of the session.
var Oracle = &Dialect{
	Name:       "oracle",
	Now:        oracleNow,
	Instant:    func(us int64) any { return oracleText(us) },
	Micros:     micros(textMicros),
	Bound:      func(place string) string { return "TO_TIMESTAMP(" + place + ", " + oracleFormat + ")" },
	Selected:   func(column string) string { return "TO_CHAR(" + column + ", " + oracleFormat + ")" },
	number:     ":",
	schemes:    []string{"oracle"},
	parse:      oracleParse,
	classify:   oracleClassify,
	migrations: oracleMigrations(),
}

// oracleParse reads oracle://user:password@host:1521/service, or what follows
// "jdbc:" in jdbc:oracle:thin:user/password@host:1521/SERVICE.
func oracleParse(url string, c Config) (*source, error) {
	a, err := oracleAddressOf(url)
	if err != nil {
		return nil, fmt.Errorf("database url: %w", err)
	}
	a.user, a.password = cmp.Or(c.Username, a.user), cmp.Or(c.Password, a.password)
	if a.user == "" || a.password == "" {
		return nil, errors.New("database: Oracle wants a username and a password")
	}
	a.relaxed = c.Relaxed
	connector, err := oracleConnector(a)
	if err != nil {
		return nil, fmt.Errorf("database url: %w", err)
	}
	return &source{
		shown: "oracle://" + a.connect,
		open: func(db *DB) error {
			db.onePool(oracleConnection{connector}, c)
			return nil
		},
	}, nil
}

var errOracleURL = errors.New("want oracle://host:1521/service or jdbc:oracle:thin:@host:1521/SERVICE, " +
	"with user:password@ or user/password@ before the host if they are given here")

func oracleAddressOf(text string) (oracleAddress, error) {
	rest, ok := strings.CutPrefix(text, "oracle:thin:")
	if !ok {
		return oracleURL(text)
	}
	login, connect, ok := strings.Cut(rest, "@")
	if at := strings.LastIndex(rest, "@"); !strings.HasPrefix(rest, "@") && at >= 0 {
		login, connect = rest[:at], rest[at+1:] // a password may hold an @
	}
	connect = strings.TrimPrefix(connect, "//")
	if !ok || connect == "" {
		return oracleAddress{}, errOracleURL
	}
	a := oracleAddress{connect: oracleSID(connect)}
	a.user, a.password, _ = strings.Cut(login, "/")
	return a, nil
}

// oracleSID makes a description of Java's older host:port:SID.
func oracleSID(connect string) string {
	parts := strings.Split(connect, ":")
	if len(parts) != 3 || strings.ContainsAny(connect, "()/[]") {
		return connect
	}
	return fmt.Sprintf("(DESCRIPTION=(ADDRESS=(PROTOCOL=TCP)(HOST=%s)(PORT=%s))(CONNECT_DATA=(SID=%s)))", parts[0],
		parts[1], parts[2])
}

func oracleURL(text string) (oracleAddress, error) {
	u, err := url.Parse(text)
	// The error would hold the text, and so perhaps a password.
	if err != nil || u.Host == "" || strings.Trim(u.Path, "/") == "" || u.RawQuery != "" || u.Fragment != "" {
		return oracleAddress{}, errOracleURL
	}
	password, _ := u.User.Password()
	return oracleAddress{connect: u.Host + "/" + strings.Trim(u.Path, "/"), user: u.User.Username(),
		password: password}, nil
}

// oracleConnection is a Connector whose error about a missing client says what to do.
type oracleConnection struct{ driver.Connector }

func (c oracleConnection) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil && strings.Contains(err.Error(), "DPI-1047") {
		err = fmt.Errorf("install Oracle Instant Client and have the system find it (LD_LIBRARY_PATH or ldconfig): %w", err)
		// database/sql would take it for a broken connection of the pool.
		return nil, &Error{Kind: Failed, Op: "connect to Oracle", Err: err}
	}
	return conn, err
}

// Close is called by database/sql.
func (c oracleConnection) Close() error {
	if closer, ok := c.Connector.(io.Closer); ok {
		return closer.Close()
	}
	return nil
}

// oracleNow is the present.
const oracleNow = "SYS_EXTRACT_UTC(SYSTIMESTAMP)"

// oracleFormat is textLayout as Oracle writes it.
const oracleFormat = "'YYYY-MM-DD HH24:MI:SS.FF6'"

// The earliest and the latest instant that textLayout can write.
var (
	oracleFirstUs = time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()
	oracleLastUs  = time.Date(9999, 12, 31, 23, 59, 59, 999_999_000, time.UTC).UnixMicro()
)

// oracleText writes an instant; one beyond the calendar becomes the last of it,
// which compares with all others in the same way.
func oracleText(us int64) string {
	us = min(max(us, oracleFirstUs), oracleLastUs)
	return time.UnixMicro(us).UTC().Format(textLayout)
}

// oracleFailure classifies an error ORA-xxxxx by its code. Codes for which a retry does not help are Failed.
func oracleFailure(code int) failure {
	switch code {
	case 60, 8177, // deadlock, cannot serialize
		28, 1012, 1013, 3113, 3114, 3135, 25408, // the connection is lost
		4061, 4065, 4068, 6508: // the package was compiled meanwhile
		return failure{kind: Passing}
	case 54, 30006: // a lock was not to be had
		return failure{kind: Held}
	case 12170, 12514, 12528, 12537, 12541, 12543, 12545, 12547, // no listener, no service
		18, 20, 2391, 12516, 12519, 12520: // no session to spare
		return failure{kind: Unavailable}
	case 1033, 1034, 1089, 1090, 16000: // starting, stopping, or a standby now: so are the other connections
		return failure{kind: Unavailable, stale: true}
	case 904, 942: // unknown column, table
		return failure{schema: true}
	}
	return failure{}
}

var (
	oracleUnique = regexp.MustCompile(`ORA-00001:[^(]*\((?:[^()]*\.)?([^().]+)\)`)
	oracleClient = regexp.MustCompile(`DPI-(\d+)`)
	oracleServer = regexp.MustCompile(`ORA-(\d{5})`)
)

// oracleCode returns the number of an ORA-xxxxx, zero for other errors. The driver's
// type is not named, so that this works without the driver.
func oracleCode(err error) int {
	var coded interface {
		error
		Code() int
	}
	if !errors.As(err, &coded) {
		return 0
	}
	return coded.Code()
}

// oracleClassify knows errors of the server by their codes, and those of Oracle's
// client library, which have code zero, by their texts.
func oracleClassify(err error) failure {
	code := oracleCode(err)
	if code == 0 {
		return oracleClientFailure(err.Error())
	}
	if m := oracleUnique.FindStringSubmatch(err.Error()); code == 1 && m != nil {
		return failure{kind: Duplicate, index: m[1], undone: true}
	}
	f := oracleFailure(code)
	// A block that fails is undone, unless the session has ended or the call was broken off.
	f.undone = f.kind != Unavailable && !slices.Contains(oracleMidway, code)
	return f
}

// oracleMidway are codes that a commit may get although it has been done.
var oracleMidway = []int{28, 1012, 1013, 3113, 3114, 3135, 25408}

// oracleClientFailure classifies by DPI-xxxx: 1010 is a connection that is not
// there any more, 1067 a call that took too long, 1080 a connection that was closed for the
// reason that the text goes on with.
func oracleClientFailure(text string) failure {
	m := oracleClient.FindStringSubmatch(text)
	if m == nil {
		return failure{}
	}
	switch m[1] {
	case "1010", "1067":
		return failure{kind: Passing}
	case "1080":
		for _, reason := range oracleServer.FindAllStringSubmatch(text, -1) {
			code, _ := strconv.Atoi(reason[1])
			if f := oracleFailure(code); f.kind == Unavailable {
				return f
			}
		}
		return failure{kind: Passing}
	}
	return failure{}
}

// oracleMigrations: DDL commits, so every statement can be run again.
func oracleMigrations() migrations {
	return migrations{
		begin: oracleBegin,
		// SQL*Plus would ask for values of & and stop statements at empty lines.
		printHead: "SET DEFINE OFF\nSET SQLBLANKLINES ON\nWHENEVER SQLERROR EXIT FAILURE ROLLBACK\n\n",
		printEnd:  "\n/\n",
		printTail: "COMMIT\n/\n",
		// SQL*Plus shows what does not compile.
		printPackage: "SHOW ERRORS PACKAGE BODY ${PACKAGE}\n",
		hasFlyway: "SELECT 1 FROM ALL_TABLES WHERE OWNER = SYS_CONTEXT('USERENV', 'CURRENT_SCHEMA')" +
			" AND TABLE_NAME = 'flyway_schema_history'",
		flywayApplied: `SELECT 1 FROM "flyway_schema_history" WHERE "version" = '1' AND "success" = 1`,
		createHistory: "CREATE TABLE ${HISTORY} (SCRIPT_NM VARCHAR2(128) NOT NULL, CHECKSUM_TX VARCHAR2(64) NOT NULL," +
			" APPLIED_TS TIMESTAMP(6) NOT NULL, CONSTRAINT ${HISTORY}_PK PRIMARY KEY (SCRIPT_NM))",
		present: oraclePresent,
		check:   oracleCheck,
	}
}

const (
	oracleMakeLock = "CREATE TABLE RL_SCHEMA_LOCK (LOCK_ID NUMBER(1))"
	oracleTakeLock = "LOCK TABLE RL_SCHEMA_LOCK IN EXCLUSIVE MODE"
)

// oracleBegin holds a lock in a transaction on a second session, as DDL would end
// it on the first.
func oracleBegin(ctx context.Context, db *sql.DB) (Session, func(error) error, error) {
	if db.Stats().MaxOpenConnections == 1 {
		return nil, nil, errors.New("migrations of Oracle need two connections: set the pool's maximum to 2 or more")
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, nil, err
	}
	lock, err := oracleLock(ctx, db, conn)
	if err != nil {
		return nil, nil, errors.Join(err, conn.Close())
	}
	return conn, func(error) error {
		err := lock.Rollback()
		if errors.Is(err, sql.ErrTxDone) {
			err = nil // the end of ctx has freed it
		}
		return errors.Join(err, conn.Close())
	}, nil
}

// oracleLock waits for the lock as long as ctx allows.
func oracleLock(ctx context.Context, db *sql.DB, conn *sql.Conn) (*sql.Tx, error) {
	if _, err := conn.ExecContext(ctx, oracleMakeLock); err != nil && !oraclePresent(oracleMakeLock, err) {
		return nil, fmt.Errorf("make RL_SCHEMA_LOCK: %w", err)
	}
	lock, err := db.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	if _, err := lock.ExecContext(ctx, oracleTakeLock); err != nil {
		return nil, errors.Join(err, lock.Rollback())
	}
	return lock, nil
}

// oraclePresent: a name is used already, a column is there, a key is there (twice),
// an index on these columns is there, a key or a constraint is gone. Where a constraint
// is added the name may be that of an index, and the constraint is missing.
func oraclePresent(text string, err error) bool {
	code := oracleCode(err)
	if code == 955 {
		return strings.HasPrefix(uncommented(text), "CREATE ")
	}
	return slices.Contains([]int{1430, 2260, 2261, 1408, 2441, 2443}, code)
}

// oracleErrors lists what does not compile: CREATE succeeds all the same.
const oracleErrors = "SELECT NAME, TYPE, LINE, POSITION, TEXT FROM ALL_ERRORS" +
	" WHERE OWNER = SYS_CONTEXT('USERENV', 'CURRENT_SCHEMA') AND ATTRIBUTE = 'ERROR'" +
	" AND NAME IN ('%s')" +
	" ORDER BY NAME, TYPE, SEQUENCE FETCH FIRST 10 ROWS ONLY"

func oracleCheck(ctx context.Context, s Session, schema Schema) error {
	names := slices.Concat(schema.Packages, schema.Functions)
	if len(names) == 0 {
		return nil
	}
	rows, err := s.QueryContext(ctx, fmt.Sprintf(oracleErrors, strings.Join(names, "', '")))
	if err != nil {
		return fmt.Errorf("look for what does not compile: %w", err)
	}
	defer rows.Close()
	var found []string
	for rows.Next() {
		var name, kind, text string
		var line, position int64
		if err := rows.Scan(&name, &kind, &line, &position, &text); err != nil {
			return err
		}
		found = append(found, fmt.Sprintf("%s %s, line %d, column %d: %s", strings.ToLower(kind), name, line, position,
			strings.TrimSpace(text)))
	}
	if err := rows.Err(); err != nil || len(found) == 0 {
		return err
	}
	return fmt.Errorf("it does not compile: %s", strings.Join(found, "; "))
}
