// Package script has the scripts that decide in Redis, in parts, and puts them together.
//
// Three scripts are made of the parts: common.lua for windows and buckets, full.lua for everything, and envoy.lua for
// layout=envoy. A line "--@include PART" stands for the text of that part, and a name of constants.lua for its value.
// The head of each part says what it makes and what it uses.
//
// # To change it
//
//   - how an algorithm decides: fixed_window.lua, sliding_window.lua, token_bucket.lua, log_decide.lua, lease_take.lua,
//     after limit/step_*.go; go test ./backends/redis
//   - what a slice and its answer look like: constants.lua, input.lua, answer.lua, backends/redis/take.go; go test
//     ./backends/redis
//   - how states are read and written: states.lua, state_read.lua, state_write.lua, log_view.lua, log_write.lua,
//     lease_view.lua; go test ./backends/redis
//   - how what a later version has written is recognised: unreadable.lua; go test ./backends/redis -run Later
//   - alternatives: common.lua, alternatives.lua, after limit/alternatives.go; backends/redis/choices.go; go test
//     ./backends/redis -run 'Alternatives|TestListLayout'
//   - debt: debt.lua, debt_windows.lua; go test ./backends/redis
//   - reservations, refunds: reserved.lua, settlement.lua, refund.lua, log_refund.lua; go test ./backends/redis
//   - how scripts are put together: script.go; go test ./backends/redis/script
//
// # More
//
// [Script.Locate] says in which line of which part an error of Redis is. README.md of package redis says how to change
// an algorithm here and in package limit, and what the scripts cost.
package script
