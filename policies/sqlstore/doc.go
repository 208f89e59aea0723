// Package sqlstore keeps policies in SQLite, PostgreSQL, MySQL, MariaDB and Oracle.
//
// One row, the state, has a generation. A process that changes policies locks the row, so that generations are
// committed in their order, and each policy says in which of them it was changed. One statement reads what has changed
// since a generation, together with the generation that it leads to: both are of one moment.
//
// # To change it
//
//   - how serve and the library follow policies: source.go, internal/app/server/policies.go and limiter.go; go test .
//     ./internal/app/server -run Polic
//   - how headgate policy changes them: cmd/headgate/policy.go and cmd/headgate/policyfile.go; go test ./cmd/headgate
//     -run Polic
//   - how policies are stored: dialect.go (texts), apply.go (transactions) and a new migrations/*/V*.sql for every
//     dialect; go test ./policies/sqlstore
package sqlstore
