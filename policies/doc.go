// Package policies has limits that operators keep in a database and change while services run: one customer gets more
// at 3 a.m., without new rules. Rules opt in by a template of keys.
//
// # To change it
//
//   - keys of policies, and how templates make them: key.go, template.go; go test ./policies
//   - how policies are kept in memory: snapshot.go; go test ./policies -run Snapshot
//
// # More
//
//   - [Policy] is one row: a key and the figures of a limit. [Figures.Limit] says what is wrong with them.
//   - [Normalize] gives each key one spelling, and [Template] makes the key of a request.
//   - [Snapshot] has all policies, immutable and compact. Decisions look policies up there and never wait for the
//     database.
//   - [Set] has the snapshot in force.
//
// The package imports limit and the standard library. policies/table follows and edits the table of policies,
// policies/sqlstore has it in databases.
package policies
