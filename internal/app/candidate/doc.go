// Package candidate decides live requests a second time, by rules on trial with counters of their own, and counts where
// the answers differ. It sees requests before their answers leave, copies them into a bounded queue, and decides later:
// no answer waits for it, and none is changed by it.
//
// # To change it
//
//   - rules on trial beside the live ones: candidate.go decides, tally.go counts, own.go has their counters,
//     internal/app/server/candidate.go follows them, cmd/headgate/diff.go; go test ./internal/app/candidate; with -run
//     xxx -bench . for live answers; go test ./cmd/headgate -run Candidate
package candidate
