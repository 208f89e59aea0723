// Package ruletest runs tests of rules: files in YAML that say what is asked when, and what must be answered. Time is
// virtual, so that a test of a day takes as long as its requests.
//
// # To change it
//
//   - steps of tests of rules, and what they can want: file.go (a field of step), run.go (compare) and docs/change.md;
//     go test ./internal/app/ruletest
package ruletest
