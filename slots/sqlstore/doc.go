// Package sqlstore keeps slots in a database: SQLite, PostgreSQL, MySQL, MariaDB
// or Oracle. It is the Store of package slots over package sqldb, which reaches the
// database and says what its errors mean.
//
// Every database has a dialect beside that of sqldb: the texts of its statements and the
// few functions that differ. Migrations are embedded, one folder for each.
package sqlstore
