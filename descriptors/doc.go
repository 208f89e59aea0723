// Package descriptors compiles rules into an immutable matcher.
//
// [Build] compiles rules from any source, given as a [Spec]. [Set.Match] finds the rule for one descriptor; the time
// that this takes depends on the number of regular expressions, but on no other number of rules. The package rulefile
// reads rules from YAML, and the package watch follows files as they change.
//
// # To change it
//
//   - rules from another source than YAML: spec.go, build.go, builder.go and buildresources.go; go test ./descriptors
//     -run Build
//   - bounds on rules: terms.go, checks.go and criteria.go; go test ./descriptors
//   - which rules are taken from the set before: rebuild.go, xds/domain.go and ratelimit/ruleset.go; go test
//     ./descriptors/... ./ratelimit -run 'Rebuil|Branches'
//   - which values and rules a load warns of, because they can never match: doubtful.go; go test
//     ./descriptors/rulefile -run Warns
//   - which rule matches: match.go; go test ./descriptors -run 'Reference|Match'
//   - networks of addresses: networks.go; go test ./descriptors -run 'Network|Address|Except'
//   - what requests to a resource are counted by: countby.go; go test ./descriptors -run 'Counted|By|Spelling'
//
// # More
//
// Rules come in two kinds. Those under descriptors match entries one by one; those under resources match requests by
// method, path and criteria, which arrive as a descriptor too ([Needs] says with which entries). Either becomes a
// [Rule], with limits per time, a [Concurrency] of requests in flight, or both.
//
// The package keeps no counters and answers no requests.
package descriptors
