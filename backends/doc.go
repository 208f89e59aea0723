// Package backends is the contract between headgate and the stores that keep rate-limit state. A backend decides
// nothing about policy: it knows no rules, no protocol and no opinion on what an error means for the caller.
//
// The meaning of a Take is package limit's: each backend must answer as limit.Decide does. backends/backendtest holds
// every backend, and every layer around one, to this contract.
//
// # To change it
//
//   - the contract of a store: backends.go, docs/design.md; go test ./backends/backendtest
//   - add a store: a folder in backends/, whose kind.go registers it, lines in kind.go, internal/app/server/build.go;
//     go test ./backends/...
//
// # More
//
// To add a store, make a folder beside memory/ with the same file names. State its [Caps], map its driver's errors to
// the errors here in one function, run backendtest in its test, and [Register] it in its kind.go. The example of
// [Backend] is a store in forty lines; that of backendtest is its test.
package backends
