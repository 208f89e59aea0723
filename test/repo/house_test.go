// Package repo holds the repository to its own rules: which package may know
// which, where the clock may be read, what an image is made of.
package repo

import (
	"path/filepath"
	"strings"
	"testing"
)

func TestImportsFollowTheTable(t *testing.T) {
	for _, p := range packages(t, root(t)) {
		for _, finding := range checkImports(p) {
			t.Error(finding)
		}
	}
}

func TestSourceFollowsTheHouseRules(t *testing.T) {
	dir := root(t)
	files, err := goFiles(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 5 {
		t.Fatalf("only %d Go files are found under %s, so something is wrong with the search", len(files), dir)
	}
	for _, file := range files {
		name, err := filepath.Rel(dir, file)
		if err != nil {
			t.Fatal(err)
		}
		for _, finding := range checkSource(filepath.ToSlash(name), readFile(t, file)) {
			t.Error(finding)
		}
	}
}

// TestImportRules shows each rule a package that breaks it, and one that looks
// like it but is in order.
func TestImportRules(t *testing.T) {
	const redis, yaml = "github.com/redis/go-redis/v9", "go.yaml.in/yaml/v3"
	for _, c := range []struct {
		path, imported string
		want           string // part of the finding, or empty
	}{
		{"limit", "math/bits", ""},
		{"limit", module + "/internal/kit/spell", "pure core"},
		{"descriptors", module + "/internal/kit/spell", ""},
		{"limit", "yaml", ""},
		{"limit", yaml, "pure core"},
		{"limit", module + "/backends", "pure core"},
		{"limit/sub", module + "/limit", ""},
		{"limit/sub", redis, "pure core"},
		{"limiter", redis, ""},

		{"backends", module + "/limit", ""},
		{"backends", module + "/descriptors", "contract"},
		{"backends", module + "/backends/redis", "contract"},
		{"backends/redis", redis, ""},
		{"backends/redis", module + "/limit", ""},
		{"backends/redis", module + "/backends", ""},
		{"backends/redis", module + "/backends/internal/rmw", ""},
		{"backends/redis", module + "/backends/redis/script", ""},
		{"backends/redis/script", module + "/backends/redis/other", ""},
		{"backends/redis", module + "/backends/memory", "no other store"},
		{"backends/redis/script", module + "/backends/memory/sub", "no other store"},
		{"backends/redis", module + "/backends/layers", ""},
		{"backends/redis", module + "/backends/layers/observe", "no other store"},
		{"backends/redis", module + "/ratelimit", "no other store"},
		{"backends/redis", module + "/internal/anything", "no other store"},
		{"backends/layers/coalesce", module + "/backends/layers/observe", ""},
		{"backends/layers/coalesce", module + "/ratelimit", "a layer knows"},
		{"backends/layers/observe", module + "/backends", ""},
		{"backends/layers/observe", module + "/backends/redis", "no store"},
		{"backends/internal/rmw", module + "/backends/redis", "knows no store"},
		{"backends/stack", module + "/backends/redis", "no store but memory"},
		{"backends/stack", module + "/backends/layers/observe", ""},
		{"backends/stack", module + "/backends/layers/prefetch", "no store but memory"},
		{"backends/layers", module + "/backends/layers/prefetch", ""},
		{"backends/stack", module + "/internal/app/server", "nothing above"},

		{"descriptors", module + "/limit", ""},
		{"descriptors", module + "/descriptors/rulefile", "no source of rules"},
		{"descriptors/rulefile", yaml, ""},
		{"descriptors/rulefile", module + "/descriptors", ""},
		{"descriptors/rulefile", module + "/ratelimit", "sources of rules know"},
		{"descriptors", module + "/backends", "descriptors knows"},

		{"ratelimit", module + "/limit", ""},
		{"ratelimit", module + "/descriptors", ""},
		{"ratelimit", module + "/backends", ""},
		{"ratelimit", module + "/internal/wire/unary", "limit, descriptors and the contract"},
		{"internal/wire/unary", "golang.org/x/net/http2", ""},
		{"internal/wire/unary", module + "/limit", "knows no rate limiting"},
		{"ratelimit", module + "/backends/redis", "ratelimit knows"},
		{"ratelimit", module + "/backends/layers/observe", "ratelimit knows"},

		{"slots", module + "/slots/plan", ""},
		{"slots", module + "/limit", "stands alone"},
		{"slots/plan", module + "/slots", "pure arithmetic"},
		{"slots/plan", "math/bits", ""},
		{"slots/sqlstore", module + "/slots", ""},
		{"slots/sqlstore", "modernc.org/sqlite", ""},
		{"slots/httpapi", module + "/internal/kit/web", ""},
		{"slots/httpapi", module + "/slots/sqlstore", "knows no store"},
		{"slots/internal/slotstest", module + "/slots", ""},
		{"cmd/headgate", module + "/slots/sqlstore", ""},
		{"cmd/headgate", module + "/slots/internal/slotstest", "tests only"},

		{"cmd/headgate", module + "/backends/redis", "come from backends/stack"},
		{"cmd/headgate", module + "/backends/layers/denycache", "come from backends/stack"},
		{"cmd/headgate", module + "/backends/stack", ""},
		{"slots", module + "/internal/kit/metrics", ""},
		{"limit", module + "/internal/kit/metrics", "standard library only"},
		{"internal/kit/metrics/prom", module + "/slots", "knows no feature"},
		{"test/bench", module + "/backends/stack", ""},
		{"test/bench", module + "/backends/layers/coalesce", ""},
		{"test/bench", module + "/backends/layers/denycache", "come from backends/stack"},
		{"test/bench", module + "/backends/redis", ""},
		{"internal/app/server", module + "/backends/redis", "backends/stack"},
		{"internal/app/server", module + "/backends/stack", ""},
		{"internal/app/server", module + "/backends", ""},
		{"internal/app/server", module + "/backends/layers/observe", "backends/stack"},
		{"internal/app/server", module + "/cmd/headgate", "commands"},
		{"internal/app/client", module + "/internal/kit/settings", ""},
		{"internal/app/client", module + "/internal/app/config", "how it works"},
		{"internal/kit/settings", module + "/slots", "no program and no feature"},
		{"internal/app/client", module + "/internal/app/server", "how it works"},
		{"internal/kit/sqldb", module + "/slots", "databases know"},

		{"cmd/headgate", module + "/test/testenv", "tests only"},
		{"cmd/headgate", module + "/backends/backendtest", "tests only"},
		{"cmd/headgate", module + "/test/random", "tests only"},
		{"backends/backendtest", module + "/test/random", ""},
		{"slots/internal/slotstest", module + "/test/random", ""},
		{"backends/layers/prefetch", module + "/backends/internal/remote", "tests only"},
		{"test/bench", module + "/test/testenv", ""},
		{"test/testenv/engines", module + "/test/testenv", ""},
	} {
		found := checkImports(pkg{path: c.path, imports: []string{c.imported}})
		expect(t, c.path+" importing "+c.imported, found, c.want)
	}
	for path, want := range map[string]string{"internal/app/server": "", "internal/app/config": "no store",
		"cmd/headgate": "come from backends/stack"} {
		redis := []string{module + "/backends/redis"}
		expect(t, path+" linking Redis", checkImports(pkg{path: path, imports: redis, linked: redis}), want)
	}
}

func TestSourceRules(t *testing.T) {
	for _, c := range []struct {
		name, file, src string
		want            string
	}{
		{"in order", "limit/a.go", "package a\n", ""},
		{"broken", "limit/a.go", "package\n", "does not parse"},
		{"not formatted", "limit/a_test.go", "package  a\n", "not formatted"},
		{"init", "cmd/headgate/a.go", "package a\n\nfunc init() {}\n", "init"},
		{"init of a store", "backends/redis/kind.go", "package a\n\nfunc init() {}\n", ""},
		{"init elsewhere in a store", "backends/redis/a.go", "package a\n\nfunc init() {}\n", "init"},
		{"init in a test", "cmd/headgate/a_test.go", "package a\n\nfunc init() {}\n", ""},
		{"a method init", "cmd/headgate/a.go", "package a\n\ntype T int\n\nfunc (T) init() {}\n", ""},
		{"generated init", "a/a.go", "// Code generated by x. DO NOT EDIT.\n\npackage a\n\nfunc init() {}\n", ""},
		{"clock", "limit/a.go", "package a\n\nimport \"time\"\n\nvar a = time.Now()\n", "limit/a.go:5:9: time.Now"},
		{"clock since", "backends/redis/a.go", "package a\n\nimport \"time\"\n\nvar a = time.Since(b)\n", "time.Since"},
		{"clock as a value", "backends/redis/a.go", "package a\n\nimport \"time\"\n\nvar a = time.Now\n", "time.Now"},
		{"clock by another name", "limit/a.go", "package a\n\nimport clock \"time\"\n\nvar a = clock.Now()\n", "time.Now"},
		{"clock with a dot", "limit/a.go", "package a\n\nimport . \"time\"\n\nvar a = Now()\n", "dot"},
		{"other time", "limit/a.go", "package a\n\nimport \"time\"\n\nvar a = time.Unix(1, 0)\n", ""},
		{"another Now", "limit/a.go", "package a\n\nimport \"time\"\n\nvar a = clock.Now() + time.Second\n", ""},
		{"clock in a test", "limit/a_test.go", "package a\n\nimport \"time\"\n\nvar a = time.Now()\n", ""},
		{"clock of slots", "slots/plan/a.go", "package a\n\nimport \"time\"\n\nvar a = time.Now()\n", "time.Now"},
		{"clock elsewhere", "ratelimit/a.go", "package a\n\nimport \"time\"\n\nvar a = time.Now()\n", ""},
		{"clock of the observer", "backends/layers/observe/a.go", "package a\n\nimport \"time\"\n\nvar a = time.Now()\n", ""},
	} {
		expect(t, c.name, checkSource(c.file, []byte(c.src)), c.want)
	}
}

// expect compares findings with part of the one that is wanted.
func expect(t *testing.T, name string, found []string, want string) {
	t.Helper()
	switch {
	case want == "" && len(found) > 0:
		t.Errorf("%s: found %q, want nothing", name, found)
	case want != "" && len(found) != 1:
		t.Errorf("%s: found %q, want one thing about %q", name, found, want)
	case want != "" && !strings.Contains(found[0], want):
		t.Errorf("%s: found %q, want %q in it", name, found[0], want)
	}
}
