// Package gateway is what the program notify-gateway runs. It is apart from package serve, so that notify-sender has no
// database and no Redis in it.
//
// # To change it
//
//   - a setting of its programs: a field and a row in settings.go or notify/serve/settings.go, go test ./test/repo
//     -update renews docs/notify.md; go test ./test/repo
package gateway
