// Package sqlstore keeps policies in SQLite, PostgreSQL, MySQL, MariaDB and Oracle.
//
// One row, the state, has a generation. A process that changes policies locks the row, so that
// generations are committed in their order, and each policy says in which of them it was changed.
// One statement reads what has changed since a generation, together with the generation that it
// leads to: both are of one moment.
package sqlstore
