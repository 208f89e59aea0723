// Package limit is headgate's core: the rate-limit algorithms as total,
// deterministic functions of (state, operation, instant).
//
// It has no clock, no randomness and no I/O, and imports the standard library
// only. [Step] decides one operation, [Decide] a whole request. They are the
// reference model: every backend must answer as they do, and the conformance
// suite in backends/backendtest compares each backend with them.
//
// Arithmetic is on integers that stay below 2^53, so that Go, Lua (whose
// numbers are doubles) and SQL give the same answers. Where a division leaves
// a remainder, rounding goes against the caller: a wait is rounded up, what is
// left is rounded down, a rate is never exceeded.
//
// What the package does not do: it knows nothing of rules, of protocols, of
// what happens when a backend fails, or of who may ask.
package limit
