// Package sqldb opens databases by URL: SQLite, PostgreSQL, MySQL, MariaDB and Oracle. Every package with a database
// uses it. It does not know which tables they have.
//
// # To change it
//
//   - URLs of databases, pools, what errors of drivers mean: <dialect>.go, dialect.go, errors.go; go test
//     ./internal/kit/sqldb
//   - SQLite: which file is open, also for reading only, which statements are kept: sqlite_*.go; go test
//     ./internal/kit/sqldb, and ./test/e2e -run CanOnlyBeRead
//   - how migrations are applied and printed: migrate.go, <dialect>.go; go test ./internal/kit/sqldb ./slots/sqlstore
//     -run Migrat
//
// # More
//
// A package that keeps something in a database, its owner, has statements, scripts that make its tables, and methods
// over both. It gets from here:
//
//   - Open: a URL becomes a DB, which has pools of connections and a Dialect. Sessions run at READ COMMITTED, and
//     SQLite serially.
//   - DB.Row, Rows, Change and Transact run queries; Begin gives a Tx, which takes two round trips where the driver
//     allows it.
//   - Every error is the error of the caller's context or an Error, whose Kind says what the caller may do about it. An
//     owner whose callers know errors of their own translates it in one place.
//   - DB.Migrate brings a Schema up to date: scripts in a folder for each dialect, and the name of the table that notes
//     which were applied.
//
// The Dialect has the differences between databases, as data: an owner never asks which database it has. It may keep
// more data for each, by Dialect.Name.
//
// Instants never pass through a session's time zone: they are bound by Dialect.Instant and read by Dialect.Into, as UTC
// and to the microsecond.
package sqldb
