// Package serve has what the programs notify-gateway and notify-sender share: their start, their listeners, waiting for
// what they need, readiness. It also has all that notify-sender runs.
//
// # To change it
//
//   - a setting of both programs: a field and a row in settings.go; go test ./test/repo -update (renews docs/notify.md)
//   - start, readiness and end: program.go and lifecycle.go; go test ./notify/serve ./test/notify
//   - what notify-sender runs: sender.go; go test ./notify/serve ./test/notify
package serve
