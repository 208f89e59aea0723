// Package sqlstore keeps slots in a database: SQLite, PostgreSQL, MySQL, MariaDB or Oracle. It is the Store of package
// slots over package sqldb, which reaches the database and says what its errors mean.
//
// Every database has a dialect beside that of sqldb: the texts of its statements and the few functions that differ.
// Migrations are embedded, one folder for each.
//
// # To change it
//
//   - SQL of slots: statements.go and <dialect>.go; go test ./slots/sqlstore ./slots/internal/slotstest
//   - the schema of slots: a new migrations/*/V*.sql for every dialect; go test ./slots/sqlstore -run Migrat
//   - add a database for slots: a file in internal/kit/sqldb, and a file and migrations in slots/sqlstore; go test
//     ./slots/internal/slotstest ./slots/sqlstore
package sqlstore
