// Package bounded reads no more than fits: a file may be longer than anybody meant, and a device has no end. It is a
// package of its own because stores, brokers and commands share nothing else that reads files.
//
// # To change it
//
//   - how much is read at most: bounded.go; go test ./internal/kit/bounded
package bounded
