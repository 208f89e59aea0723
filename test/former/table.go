// Package former shows what two builds of headgate may share. Its tests run the build of the commit in COMMIT beside
// this one, on one store, in both orders and with a rollback.
//
// # To change it
//
//   - which build is the former one: COMMIT, at each release; go test ./test/former
//   - what is shown and written into docs/versions.md: table.go and former_test.go (a row and its check); then
//     go test ./test/repo -update
//   - what a store full of a later version does: later_test.go; go test ./test/former -run Later
package former

import (
	_ "embed"
	"strings"
)

//go:embed COMMIT
var commit string

// Commit is the commit of the former build.
func Commit() string { return strings.TrimSpace(commit) }

// A Share is something that two builds share on one store.
type Share struct {
	What   string   // as documents call it
	Check  string   // of former_test.go that shows it
	Kinds  []string // keys of rules that the check asks about
	Stores []string // on which the test shows it, as documents call them
	Shown  string   // what holds while both run, in either order, and after a rollback
}

// Stores of counters, and of slots and policies.
var all, databases = []string{"Redis", "PostgreSQL", "MariaDB", "SQLite", "DynamoDB"},
	[]string{"PostgreSQL", "MariaDB", "SQLite"}

// Shares is what the test shows of this build and the former one.
var Shares = []Share{
	{"fixed window", "counters", []string{"fixed window"}, all, "exactly its limit passes"},
	{"sliding window", "counters", []string{"sliding window"}, all, "exactly its limit passes"},
	{"sliding log", "counters", []string{"sliding log"}, all, "exactly its limit passes"},
	{"token bucket", "counters", []string{"token bucket"}, all, "exactly its burst passes"},
	{"several limits, `charge: each`, `overflow: saturate` and `debt`", "counters",
		[]string{"several limits", "each", "saturate", "debt window", "debt bucket"}, all, "exactly the limit passes"},
	{"`layout=zset`", "counters", []string{"fixed window", "sliding window", "sliding log", "token bucket"},
		[]string{"Redis layout=zset"}, "exactly the limit passes"},
	{"`layout=envoy`", "counters", []string{"fixed window", "saturate", "each"}, []string{"Redis layout=envoy"},
		"exactly the limit passes"},
	{"requests in flight", "in flight", []string{"in flight"}, all,
		"leases that one grants the other ends; never above the limit, none is left"},
	{"budgets of tokens", "tokens", []string{"tokens"}, all, "reservations that one makes the other settles, to the unit"},
	{"policies", "policies", []string{"policy"}, databases, "what one sets the other follows"},
	{"slots", "slots", nil, databases, "each event has one slot, whichever is asked; no window above its limit"},
}

// Table returns Shares as a table of Markdown.
func Table() string {
	var b strings.Builder
	b.WriteString("| what two builds share | stores | shown by `go test ./test/former` |\n|---|---|---|\n")
	for _, s := range Shares {
		stores := strings.Join(s.Stores, ", ")
		if len(s.Stores) == len(all) {
			stores = "all"
		}
		b.WriteString("| " + s.What + " | " + stores + " | " + s.Shown + " |\n")
	}
	return b.String()
}
