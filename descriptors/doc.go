// Package descriptors turns rules written in YAML into an immutable matcher.
//
// The language is that of github.com/envoyproxy/ratelimit, which loads
// unchanged, and a strict superset of it; docs/rules.md has it in full and
// docs/compatibility.md the differences. [Load] reads rules and reports every
// problem with its place; [Set.Match] finds the rule for one descriptor in
// time independent of the number of rules; [Watcher] follows files as they
// change.
//
// What the package does not do: it keeps no counters and answers no requests.
package descriptors
