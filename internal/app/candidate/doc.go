// Package candidate decides live requests a second time, by rules on trial with counters of their own, and counts where
// the answers differ. It sees requests before their answers leave, copies them into a bounded queue, and decides later:
// no answer waits for it, and none is changed by it.
//
// # To change it
//
//   - rules on trial beside the live ones: candidate.go (decides), tally.go (counts) and own.go (their counters); go
//     test ./internal/app/candidate
//   - how the server follows them: internal/app/server/candidate.go; go test ./internal/app/candidate; go test
//     ./cmd/headgate -run Candidate
//   - how they are reported: cmd/headgate/diff.go; go test ./cmd/headgate -run Candidate
//   - that live answers do not wait: candidate.go; go test ./internal/app/candidate -run xxx -bench Live
package candidate
