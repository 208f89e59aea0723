// Package remote is for tests only. It has a store that behaves like one on a network but is in memory. Backends that
// stand before a store are tested with it: the test owns its clock, and says what happens while a call is under way and
// which requests fail.
//
// # To change it
//
//   - the store of tests that is slow or fails: moody.go, remote.go, table.go; go test ./backends/internal/remote
package remote
