// Package backends is the contract between headgate and the stores that keep
// rate-limit state. A backend decides nothing about policy: it knows no rules,
// no protocol and no opinion on what an error means for the caller.
//
// The meaning of a Take is package limit's: each backend must answer as
// limit.Decide does. backends/backendtest holds every backend, and every
// decorator around one, to this contract.
//
// To add a backend: make a folder beside memory/ with the same file names,
// state its [Caps], map its driver's errors to the errors here in one
// function, run backendtest in its test, and list it in cmd/headgate.
package backends
