// Package sqlstore keeps policies in SQLite, PostgreSQL, MySQL and MariaDB.
//
// One row, the state, has a generation. Whoever changes policies locks it, so that generations are
// committed in their order, and each row says in which of them it was changed. What has changed
// since a generation is read by one statement, together with the generation that it leads to: both
// are of one moment.
package sqlstore
