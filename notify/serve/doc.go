// Package serve has what the programs notify-gateway and notify-sender share: their start, their listeners, waiting for
// what they need, readiness. It also has all that notify-sender runs.
//
// # To change it
//
//   - a setting of its programs: a field and a row in notify/gateway/settings.go or settings.go, go test ./test/repo
//     -update renews docs/notify.md; go test ./test/repo
package serve
