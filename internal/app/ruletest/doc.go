// Package ruletest runs tests of rules: files in YAML that say what is asked when, and what must be answered. Time is
// virtual, so that a test of a day takes as long as its requests.
//
// # To change it
//
//   - tests of rules, steps, what they can want: a field of step in file.go, compare in run.go, docs/change.md; go test
//     ./internal/app/ruletest
package ruletest
