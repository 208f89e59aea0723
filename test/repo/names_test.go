package repo

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// ourNames are the kinds of names in the last columns of docs/names.md, and how one that exists is found in the texts
// of some files: $1 stands for what the pattern has in brackets.
var ourNames = []struct {
	kind, pattern string
	files         []string
	found         string
}{
	{"metric", `^(headgate_[a-z_]+)$`, []string{"docs/reference.md", "docs/notify.md"},
		"(?m)^\\| `$1` \\| (counter|gauge|histogram)"},
	{"outcome", `^outcome="([a-z_]+)"$`, []string{"docs/reference.md"}, "(?m)^\\| `headgate_decisions_total`.*`$1`"},
	{"label", `^(policy)$`, []string{"docs/reference.md"},
		"(?m)^\\| `headgate_policy_remaining_units` \\| gauge \\| [a-z, ]*$1"},
	{"flag", `^(--[a-z-]+)( .*)?$`, []string{"docs/reference.md"}, "(?m)^\\| `$1` "},
	{"table", `^([A-Z_]{4,}|rate_limit_store)$`, []string{"*.sql"},
		`(?m)CREATE (OR REPLACE )?(TABLE|VIEW)( IF NOT EXISTS)? $1\b`},
	{"call", `^((?:GET|POST|PUT|DELETE) /\S+)$`, []string{"openapi.json"}, `(?m)^$1$`},
	{"algorithm", `^(token_bucket|sliding_log)$`, []string{"docs/policies.md"}, "(?m)^\\| `algorithm: $1`"},
	{"word of a policy", `^(key|algorithm|limit|window|rate|burst)$`, []string{"docs/policies.md"}, "(?m)^\\| `$1` \\|"},
	{"word of rules", `^(counter): value$`, []string{"docs/rules.md"}, "(?m)^\\| `$1` \\|"},
	{"key", `^((?:RateLimiterCache|rate_limit):)[A-Z]+$`, []string{"docs/notify.md", "backends/redis/README.md"}, "`$1"},
	{"command", `^headgate ([a-z ]+)$`, []string{"docs/commands.md"}, "`$1`"},
}

// TestOurNamesExist: what docs/names.md says something is called here is called so.
func TestOurNamesExist(t *testing.T) {
	texts := map[string]string{"*.sql": allSQL(t), "openapi.json": allCalls(t)}
	page := read(t, "docs/names.md")
	n := 0
	for line := range strings.Lines(page) {
		cells := strings.Split(strings.Trim(line, "|\n "), " | ")
		if !strings.HasPrefix(line, "| ") || len(cells) != 2 {
			continue
		}
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[1], -1) {
			n++
			if problem := missing(t, m[1], texts); problem != "" {
				t.Errorf("docs/names.md: %s", problem)
			}
		}
	}
	if n < 50 {
		t.Errorf("only %d names are found", n)
	}
}

// missing says why a name is none of ours; "" if it is one.
func missing(t *testing.T, name string, texts map[string]string) string {
	t.Helper()
	for _, kind := range ourNames {
		m := regexp.MustCompile(kind.pattern).FindStringSubmatch(name)
		if m == nil {
			continue
		}
		found := regexp.MustCompile(strings.ReplaceAll(kind.found, "$1", regexp.QuoteMeta(m[1])))
		for _, file := range kind.files {
			if texts[file] == "" {
				texts[file] = read(t, file)
			}
			if found.MatchString(texts[file]) {
				return ""
			}
		}
		return "there is no " + kind.kind + " " + name
	}
	return "nobody knows what `" + name + "` is: a row of ourNames says how to find such names"
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../..", file))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// allSQL is the text of all migrations.
func allSQL(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir("../..", func(path string, _ fs.DirEntry, err error) error {
		if err == nil && filepath.Ext(path) == ".sql" {
			all.WriteString(read(t, strings.TrimPrefix(path, "../../")))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}

// allCalls are the calls of all documents of OpenAPI, one in each line: GET /path.
func allCalls(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, of := range []string{"policies", "ratelimit", "slots", "notify"} {
		var document struct {
			Paths map[string]map[string]json.RawMessage `json:"paths"`
		}
		if err := json.Unmarshal([]byte(read(t, of+"/httpapi/openapi.json")), &document); err != nil {
			t.Fatal(of, err)
		}
		for path, methods := range document.Paths {
			for method := range methods {
				all.WriteString(strings.ToUpper(method) + " " + path + "\n")
			}
		}
	}
	return all.String()
}
