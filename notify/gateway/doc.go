// Package gateway is what the program notify-gateway runs. It is apart from package serve, so that notify-sender has no
// database and no Redis in it.
//
// # To change it
//
//   - a setting of the gateway: a field and a row in settings.go, or in notify/serve/settings.go if notify-sender has
//     it too; go test ./test/repo -update (renews docs/notify.md)
package gateway
