// Package descriptors turns rules into an immutable matcher, and reads such rules
// from YAML.
//
// The language is that of github.com/envoyproxy/ratelimit, which loads
// unchanged, and a strict superset of it; docs/rules.md has it in full and
// docs/compatibility.md the differences. [Load] reads rules and reports every
// problem with its place; [Build] compiles rules from any other source, given as
// a [Spec]; [Set.Match] finds the rule for one descriptor in
// time independent of the number of rules, but for regular expressions;
// the package watch follows files as they change.
//
// Rules come in two kinds. Those under descriptors match entries one by one;
// those under resources match requests by method, path and criteria, which
// arrive as a descriptor too ([Needs] says with which entries). Either becomes a
// [Rule], with limits per time, a [Concurrency] of requests in flight, or both.
//
// What the package does not do: it keeps no counters and answers no requests.
package descriptors
