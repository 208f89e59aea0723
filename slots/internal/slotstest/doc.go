// Package slotstest has what tests of slots need: [Run] and [RunChaos], the conformance suite of stores and engines;
// [RunEarliest] and [RunPause], which hold them to the earliest window with room and to changes that are in force at
// once; [Model], a database in memory with every unkindness that a real one may show; [Schedule], which interleaves
// callers of a Model by a seed, so that a run can be repeated; and [Count] and [Watch], which look at the statements
// that are sent to any store.
//
// It is for tests only.
//
// # To change it
//
//   - what every store and engine must pass: suite.go and suite_*.go; go test ./slots/internal/slotstest
//     ./slots/sqlstore
//   - the earliest window, and changes at once: earliest.go, earliest_play.go and earliest_pause.go; go test
//     ./slots/internal/slotstest ./slots/sqlstore
//   - processes that are killed: chaos.go and chaos_child.go; go test ./slots/internal/slotstest ./slots/sqlstore
//   - the database in memory: model.go, model_*.go and schedule.go; go test ./slots/internal/slotstest
package slotstest
