// Package insight keeps what a process has seen of requests, for operators: how many it answers, who is refused, why,
// and who is near a limit. All of it together takes less than 2 MiB. It is a sink of package ratelimit.
//
// # To change it
//
//   - how refused and near keys are counted: keys.go (Space-Saving), minutes.go, watch.go and sink.go; go test
//     ./ratelimit/insight ./ratelimit -run 'Refus|Near|Watch'; go test ./ratelimit -run xxx -bench Decide
package insight
