// Package ruletest runs tests of rules: files in YAML that say what is asked when, and what must be answered. Time is
// virtual, so that a test of a day takes as long as its requests.
package ruletest
