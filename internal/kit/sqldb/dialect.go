package sqldb

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// A Dialect is everything that differs between databases, as data and a few functions.
// Outside the files of the dialects nothing asks which one it is.
type Dialect struct {
	Name string // for people, and of the folder of an owner's migrations

	// Now is the database's clock in SQL: an instant to the microsecond, SQLite's to the
	// millisecond.
	Now string
	// Instant is how an instant, in microseconds since the epoch, is bound; Micros reads what
	// the driver gives for one. Neither depends on a session's time zone.
	Instant func(us int64) any
	Micros  func(src any) (us int64, err error)
	// Bound is the SQL for the instant that a placeholder stands for, and Selected that for
	// a column whose instants are read.
	Bound, Selected func(text string) string
	// Clock is Now as a number of microseconds; empty: an owner's scripts make a function for that.
	Clock string

	inProcess bool     // it computes in this process: who waits for it computes
	number    string   // before the number of a placeholder; empty: they are ?
	schemes   []string // of its URLs, without "jdbc:"
	// parse checks a URL, whose prefix "jdbc:" is gone, and gives it the Config's
	// user name and password. It does not connect. Errors hold no password.
	parse func(url string, c Config) (*source, error)
	// batch sends queries in one round trip. After an error the database does not run what follows.
	// answered reports whether the first query that returns rows did not fail. Nil: each query takes
	// a round trip of its own.
	batch func(ctx context.Context, conn *sql.Conn, queries []Query) (answered bool, err error)
	// classify says what an error of the driver means. Context errors never come
	// here.
	classify   func(err error) failure
	migrations migrations
}

// Kind says what an error of the driver means; Failed if it is nil.
func (d *Dialect) Kind(err error) Kind {
	if err == nil {
		return Failed
	}
	return d.meaning(err).kind
}

// meaning is what an error of the driver, or of its connection, means.
func (d *Dialect) meaning(err error) failure {
	if f, ok := lost(err); ok {
		return f
	}
	return d.classify(err)
}

// Query makes a query of a text with ? for each argument.
func (d *Dialect) Query(text string, args ...any) Query {
	if d.number != "" {
		parts := strings.Split(text, "?")
		for i := 1; i < len(parts); i++ {
			parts[i] = d.number + strconv.Itoa(i) + parts[i]
		}
		text = strings.Join(parts, "")
	}
	return Query{Text: text, Args: args}
}

// Repeated returns text n times, separated by commas.
func Repeated(text string, n int) string {
	return strings.TrimSuffix(strings.Repeat(text+", ", n), ", ")
}

// Listed returns a placeholder for each element of list, separated by commas, and the arguments for them.
func Listed[T any](list []T) (places string, args []any) {
	args = make([]any, len(list))
	for i, one := range list {
		args[i] = one
	}
	return Repeated("?", len(list)), args
}

// micros makes Dialect.Micros of a function of what the driver gives for an instant.
func micros[T any](of func(T) (us int64, err error)) func(src any) (us int64, err error) {
	return func(src any) (int64, error) {
		given, ok := src.(T)
		if !ok {
			return 0, fmt.Errorf("an instant is %T instead of %T", src, given)
		}
		return of(given)
	}
}

// textLayout is that of instants which are bound and read as text in UTC.
const textLayout = "2006-01-02 15:04:05.000000"

func textMicros(text string) (us int64, err error) {
	t, err := time.Parse(textLayout, text)
	return t.UnixMicro(), err
}

// plain is Dialect.Bound and Selected where instants cross as they are.
func plain(text string) string { return text }

// migrations is how a schema is brought up to date. ${HISTORY} in a text is the name of the
// history's table.
type migrations struct {
	// begin waits until nobody else migrates, and returns where to run statements.
	// finish ends that; with nil it keeps what was done.
	begin func(ctx context.Context, db *sql.DB) (s Session, finish func(error) error, err error)
	// values returns the text that replaces each ${NAME} in scripts; nil: scripts have no ${NAME}. of is
	// the result of the query version, or a scheme if scripts are printed without a database.
	values  func(of string) map[string]string
	version string // () → the version of the server
	// Printed, every statement ends with printEnd; printHead comes first and printTail
	// last, and then printPackage for each package of the schema.
	printHead, printEnd, printTail, printPackage string

	hasFlyway     string // () → a row if the current schema has the table flyway_schema_history
	flywayApplied string // () → a row if flyway_schema_history has version 1 as applied; run only if that table exists
	// (): creates ${HISTORY}(SCRIPT_NM key, CHECKSUM_TX of 64, APPLIED_TS). If the table exists, it has no
	// effect, or it fails and present reports that
	createHistory string

	// present reports whether an error of a statement means that its work was done
	// before, where statements cannot say IF NOT EXISTS and are no transaction.
	present func(text string, err error) bool
	// check looks for mistakes that the database reports only when asked, after a
	// file was run; nil means none.
	check func(ctx context.Context, s Session, schema Schema) error
}

// finishTx keeps what a transaction did if there was no error.
func finishTx(tx *sql.Tx) func(error) error {
	return func(err error) error {
		if err != nil {
			_ = tx.Rollback() // if it fails the connection is lost, and so is what was done
			return nil
		}
		return tx.Commit()
	}
}

// instant reads an instant.
type instant struct {
	us   *int64
	null *bool // set to whether it is NULL; nil if it cannot be
	read func(any) (int64, error)
}

// Scan implements sql.Scanner.
func (i instant) Scan(src any) (err error) {
	if src == nil && i.null != nil {
		*i.null = true
		return nil
	}
	*i.us, err = i.read(src)
	return err
}

// Into reads an instant into us, in microseconds since the epoch.
func (d *Dialect) Into(us *int64) sql.Scanner { return instant{us: us, read: d.Micros} }

// IntoNull is Into for an instant that may be NULL: it sets null then, and leaves us.
func (d *Dialect) IntoNull(us *int64, null *bool) sql.Scanner {
	return instant{us: us, null: null, read: d.Micros}
}

// A source is a database to connect to.
type source struct {
	shown string // for people: without a password
	// open fills in the connections of a DB, and what goes with them.
	open func(db *DB) error
}

// onePool reads and writes on the same connections.
func (db *DB) onePool(c driver.Connector, config Config) {
	db.Write = newPool(c, config)
	db.Read = db.Write
}

// newPool applies the limits of a Config.
func newPool(c driver.Connector, config Config) *sql.DB {
	config = config.withDefaults()
	db := sql.OpenDB(c)
	db.SetMaxOpenConns(config.PoolMax)
	// Connections beyond PoolMin end by maxIdle instead: to open and close them
	// under changing load would cost more than to keep them.
	db.SetMaxIdleConns(config.PoolMax)
	db.SetConnMaxIdleTime(maxIdle)
	db.SetConnMaxLifetime(maxLife)
	return db
}
