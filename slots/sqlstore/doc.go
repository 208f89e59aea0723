// Package sqlstore keeps slots in a database: SQLite, PostgreSQL, MySQL, MariaDB
// or Oracle. It is the Store of package slots over database/sql.
//
// Every database has a dialect: the texts of its statements and the few
// functions that differ. Migrations are embedded, one folder for each.
//
// Instants never pass through a session's time zone: they are bound and read as
// UTC, to the microsecond. Sessions run at READ COMMITTED, and SQLite
// serially.
package sqlstore
