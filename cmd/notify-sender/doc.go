// Command notify-sender sends the messages that notify-gateway has queued.
//
// # To change it
//
//   - how the program starts: main.go; go test ./cmd/notify-sender
package main
