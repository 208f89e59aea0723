// Package bounded reads files up to a bound, because a file may be too long for memory and a device has no end. It is a
// package of its own because stores, brokers and commands share nothing else that reads files.
//
// # To change it
//
//   - how much is read at most: bounded.go; go test ./internal/kit/bounded
package bounded
