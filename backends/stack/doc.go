// Package stack opens the store that a URL names and puts the layers around it. The server, the benchmark, the command
// line and the library get their stores here. A store registers itself by [backends.Register]: what a program can open
// is what it imports.
//
// The package knows no store but memory, no rules, no protocol and no metrics library. [Stack.Figures] returns the
// metrics of the store and its layers.
//
// # To change it
//
//   - how a URL becomes a store with its layers: clock.go, options.go, stack.go, stores.go; go test ./backends/stack
package stack
