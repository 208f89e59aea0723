// Package sqlstore keeps rate-limit state in PostgreSQL, MySQL, MariaDB, Oracle or SQLite.
//
// A Take is one transaction of two round trips: the first one locks the rows of all keys of the slice and reads the
// database's clock, then package limit decides, and the second one writes what has changed and commits. README.md
// states what is guaranteed, and what a decision costs.
//
// # To change it
//
//   - how limits are kept in databases: texts in <dialect>.go, transactions in work.go, tables in migrations (a new
//     migrations/*/V*.sql for every dialect); go test ./backends/sqlstore
//
// # More
//
// Files from below: the texts of each database (dialect.go, <dialect>.go), rows, keys and parts of logs (parts.go), the
// settings (config.go), errors (errors.go), one transaction with its repetitions (work.go), and what is done in such
// transactions: slices are decided (slice.go, held.go, which looks whether others hold their rows), registry.go,
// janitor.go. sqlstore.go puts them together.
//
// What the package does not do: it does not decide what happens when the database is away, it keeps no local state, and
// it does not drop state that still counts.
package sqlstore
