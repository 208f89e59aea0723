// Package circuit is what circuit breakers have in common: it counts failures, opens after too many, and finds out by
// one probe at a time whether to close again. What a call is and what counts as a failure is for its users to say.
//
// # To change it
//
//   - when a circuit breaker opens: circuit.go, state.go, tally.go; go test ./backends/internal/circuit
//     ./backends/layers/breaker
package circuit
