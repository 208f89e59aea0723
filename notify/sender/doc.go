// Package sender sends the messages that were consumed: to the log, and to a webhook if there is one.
//
// # To change it
//
//   - what becomes of a message that was consumed: sender.go; go test ./notify/sender
package sender
