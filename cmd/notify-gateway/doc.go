// Command notify-gateway limits how many messages each user may send, and queues those that are accepted.
//
// # To change it
//
//   - how the program starts: main.go; go test ./cmd/notify-gateway
package main
