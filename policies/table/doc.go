// Package table has what the table of policies in a database is to a program: how it is followed and edited, and how
// people say policies. Only programs that keep policies in a database have it.
//
// # To change it
//
//   - how soon a change of a policy is in force: edit.go and follow.go; go test ./policies/sqlstore -run 'Force|Idle';
//     go test ./test/e2e -run PoliciesChange
//   - what the history of policies has, and for how long: store.go, policies/sqlstore/history.go and
//     cmd/headgate/policy.go; go test ./policies/... ./cmd/headgate -run History
//
// # More
//
//   - [Follower] keeps a [policies.Set], the snapshot in force, true to a [Store].
//   - [Editor] changes the policies of a store, so that each follower knows soon.
//   - [Entry] is one change in the history that a store keeps.
//   - [Given] is what somebody says of a policy.
//
// policies/sqlstore has the stores.
package table
