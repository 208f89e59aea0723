package sqldb

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// SQLite is a file, or memory, of this process. One connection writes.
var SQLite = &Dialect{
	Name:       "sqlite",
	inProcess:  true,
	Now:        sqliteNow,
	Clock:      sqliteNow,
	Instant:    func(us int64) any { return us },
	Micros:     micros(func(us int64) (int64, error) { return us, nil }),
	Bound:      plain,
	Selected:   plain,
	schemes:    []string{"sqlite"},
	parse:      parseSQLite,
	classify:   classifySQLite,
	migrations: sqliteMigrations(),
}

// sqliteBusy is how long SQLite waits for other processes, unless a Config says so.
const sqliteBusy = 5 * time.Second

// sqliteNow is the present in microseconds; SQLite's clock has milliseconds.
const sqliteNow = "CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000"

// memories numbers the databases in memory of this process.
var memories atomic.Int64

// parseSQLite reads sqlite:PATH and sqlite::memory:.
func parseSQLite(address string, c Config) (*source, error) {
	path, query, _ := strings.Cut(strings.TrimPrefix(address, "sqlite:"), "?")
	synchronous, err := sqliteSynchronous(query)
	if err != nil {
		return nil, err
	}
	if path == "" {
		return nil, errors.New("database url: want sqlite:PATH, or sqlite::memory: for a database in memory")
	}
	if host, found := strings.CutPrefix(path, "//"); found && !strings.HasPrefix(host, "/") {
		return nil, fmt.Errorf("database url: sqlite:%s names a host, and a file has none; write sqlite:%s", path, host)
	}
	if c.Relaxed {
		synchronous = "normal"
	}
	busy := cmp.Or(c.LockWait, sqliteBusy)
	parameters := url.Values{
		"_txlock": {"immediate"}, // a transaction that reads first could not wait for another
		"_pragma": {"busy_timeout(" + milliseconds(busy) + ")", "synchronous(" + synchronous + ")"},
	}
	s := &source{shown: "sqlite:" + path}
	s.open = func(db *DB) error {
		if path == ":memory:" {
			return openSQLiteMemory(db, parameters, c)
		}
		if info, err := os.Stat(filepath.Dir(path)); err != nil || !info.IsDir() {
			return fmt.Errorf("database url: there is no directory %q for the file %q: make it, or name another file",
				filepath.Dir(path), path)
		}
		file := "file:" + (&url.URL{Path: path}).EscapedPath()
		switch err := writable(path, c.Existing); {
		case err != nil && c.ReadsSuffice && readable(path):
			db.Log.Warn("the database can only be read; to change what is in it, make it writable and start again", "error", err)
			return openSQLiteToRead(db, file, parameters, path, c)
		case err != nil:
			return err
		}
		parameters.Add("_pragma", "journal_mode(WAL)")
		return openSQLite(db, file+"?"+parameters.Encode(), &sqliteFile{path: path}, c)
	}
	return s, nil
}

// writable reports whether this process may write the file and others beside it. A
// database elsewhere may come back; one without permissions will not. It makes the file unless
// existing says that it has to be there.
func writable(path string, existing bool) error {
	flags := os.O_RDWR | os.O_CREATE
	if existing {
		flags = os.O_RDWR
	}
	f, err := os.OpenFile(path, flags, 0o644)
	if existing && errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("database url: there is no file %q; headgate migrate makes it", path)
	}
	if err == nil {
		err = f.Close()
	}
	if where, ok := errors.AsType[*fs.PathError](err); ok {
		err = where.Err
	}
	if err != nil {
		return fmt.Errorf("database url: the file %q cannot be written: %w", path, err)
	}
	return besideWritable(path)
}

// besideWritable reports whether this process may make files beside the file.
func besideWritable(path string) error {
	beside, err := os.CreateTemp(filepath.Dir(path), ".headgate-*")
	if err != nil {
		return fmt.Errorf("database url: the directory %q cannot be written, and sqlite keeps more files beside %q",
			filepath.Dir(path), path)
	}
	return errors.Join(beside.Close(), os.Remove(beside.Name()))
}

// sqliteSynchronous reads the only parameter there is.
func sqliteSynchronous(query string) (string, error) {
	values, err := url.ParseQuery(query)
	if err != nil {
		return "", errors.New("database url: the parameters after the ? cannot be parsed")
	}
	for name := range values {
		if name != "synchronous" {
			return "", fmt.Errorf("database url: unknown parameter %q of sqlite; want synchronous=full or synchronous=normal",
				name)
		}
	}
	switch value := values.Get("synchronous"); value {
	case "", "full":
		return "full", nil
	case "normal":
		return value, nil
	default:
		return "", fmt.Errorf("database url: synchronous=%q: want full or normal", value)
	}
}

// openSQLiteMemory opens a database of its own in memory. It lives as long as its
// connections: one is kept.
func openSQLiteMemory(db *DB, parameters url.Values, c Config) error {
	parameters.Set("vfs", "memdb")
	// The slash makes it one database for all connections of the name.
	dsn := fmt.Sprintf("file:/headgate-%d?%s", memories.Add(1), parameters.Encode())
	if err := openSQLite(db, dsn, new(sqliteFile), c); err != nil {
		return err
	}
	keep, err := db.Write.Conn(context.Background())
	if err != nil {
		return errors.Join(err, db.Write.Close(), db.Read.Close())
	}
	db.Write.SetMaxOpenConns(2) // one of them is kept
	db.release = keep.Close
	return nil
}

// openSQLite makes one connection for writing, so that writers of this process
// queue instead of trying repeatedly, and others for reading.
func openSQLite(db *DB, dsn string, file *sqliteFile, c Config) error {
	driver, err := sqlite.NewConnector(dsn)
	if err != nil {
		return fmt.Errorf("database url: %w", err)
	}
	return poolSQLite(db, sqliteConnector{Connector: driver, file: file}, c)
}

// poolSQLite makes the pools of a connector.
func poolSQLite(db *DB, connector sqliteConnector, c Config) error {
	db.Read, db.Write = newPool(connector, c), newPool(connector, c)
	db.Write.SetMaxOpenConns(1)
	return nil
}

func sqliteMigrations() migrations {
	return migrations{
		begin: func(ctx context.Context, db *sql.DB) (Session, func(error) error, error) {
			tx, err := db.BeginTx(ctx, nil) // at once the only one that writes
			if err != nil {
				return nil, nil, err
			}
			return tx, finishTx(tx), nil
		},
		printHead: "BEGIN IMMEDIATE;\n",
		printEnd:  ";",
		printTail: "COMMIT;\n",

		hasFlyway:     "SELECT 1 FROM sqlite_master WHERE type = 'table' AND lower(name) = 'flyway_schema_history'",
		flywayApplied: "SELECT 1 FROM flyway_schema_history WHERE version = '1' AND success = 1",
		createHistory: "CREATE TABLE IF NOT EXISTS ${HISTORY} (SCRIPT_NM TEXT NOT NULL PRIMARY KEY, " +
			"CHECKSUM_TX TEXT NOT NULL, APPLIED_TS INTEGER NOT NULL)",
	}
}

// classifySQLite looks at the result codes of sqlite.org/rescode.html.
func classifySQLite(err error) failure {
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return failure{}
	}
	switch e.Code() & 0xff {
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_INTERRUPT:
		return failure{kind: Passing}
	case sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR:
		return failure{kind: Unavailable}
	case sqlite3.SQLITE_READONLY:
		return failure{readOnly: true}
	case sqlite3.SQLITE_CONSTRAINT:
		return duplicate(sqliteIndex(e.Error()))
	}
	return failure{schema: strings.Contains(e.Error(), "no such table") || strings.Contains(e.Error(), "no such column")}
}

// sqliteIndex is the column that a message such as "UNIQUE constraint failed:
// RL_EVENT_SLOT_DTL.EVENT_ID" is about.
func sqliteIndex(message string) string {
	column, _, _ := strings.Cut(afterLast(message, "constraint failed: "), " ")
	return column
}
