package rulefile

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/internal/kit/spell"
	"github.com/headgate-rls/headgate/test/golden"
)

func lines(problems []descriptors.Problem) string {
	var b strings.Builder
	for _, p := range problems {
		fmt.Fprintln(&b, p)
	}
	return b.String()
}

// schema is the JSON Schema of a file of rules, for editors. It accepts what Load does, but for yes, no, on and off,
// which only YAML 1.1 takes for true and false. What a schema cannot express, such as duplicates, Load alone refuses.
//
//go:embed rules.schema.json
var schema []byte

func compiledSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("rules.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("rules.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestSchemaIsValid holds our schema against that of all schemas.
func TestSchemaIsValid(t *testing.T) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema))
	if err != nil {
		t.Fatal(err)
	}
	meta := jsonschema.NewCompiler().MustCompile("https://json-schema.org/draft/2020-12/schema")
	if err := meta.Validate(doc); err != nil {
		t.Error(err)
	}
}

func testFiles(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", dir, "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatal("no files", err)
	}
	return files
}

func TestGoodFiles(t *testing.T) {
	schema := compiledSchema(t)
	for _, file := range testFiles(t, "good") {
		t.Run(filepath.Base(file), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			set, problems := Load([]Source{{Name: file, Data: data}}, Options{})
			if set == nil {
				t.Fatal(lines(problems))
			}
			for _, p := range problems {
				slow := filepath.Base(file) == "limits.yaml" && strings.Contains(p.Message, "a token bucket refills all the time")
				if !strings.Contains(p.Message, exemptsAll) && filepath.Base(file) != "empty.yaml" && !slow {
					t.Errorf("unexpected: %v", p)
				}
			}
			var v any
			if err := yaml.Unmarshal(data, &v); err != nil {
				t.Fatal(err)
			}
			if err := schema.Validate(v); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestBadFiles(t *testing.T) {
	schema := compiledSchema(t)
	for _, file := range testFiles(t, "bad") {
		t.Run(filepath.Base(file), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			set, problems := Load([]Source{{Name: filepath.Base(file), Data: data}}, Options{})
			if set != nil {
				t.Error("was accepted")
			}
			// A new algorithm leaves these files as they are.
			got := strings.ReplaceAll(lines(problems), spell.OneOf(algorithmNames()), "ALGORITHMS")
			golden.Check(t, strings.TrimSuffix(file, ".yaml")+".golden", got)
			if strings.HasPrefix(string(data), "# schema: cannot express — ") {
				return
			}
			var v any
			if err := yaml.Unmarshal(data, &v); err != nil {
				t.Fatal(err)
			}
			if schema.Validate(v) == nil {
				t.Error("the schema accepts it")
			}
		})
	}
}

// TestDocsHaveOnlyValidRules loads every YAML block of the documents about rules.
func TestDocsHaveOnlyValidRules(t *testing.T) {
	block := regexp.MustCompile("(?s)```yaml\n(.*?)```")
	for _, name := range []string{"rules.md", "resources.md", "compatibility.md"} {
		file := filepath.Join("..", "..", "docs", name)
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		blocks := block.FindAllSubmatchIndex(data, -1)
		if len(blocks) == 0 {
			t.Errorf("%s has no YAML", file)
		}
		for _, b := range blocks {
			line := bytes.Count(data[:b[2]], []byte("\n"))
			set, problems := Load([]Source{{Name: file, Data: data[b[2]:b[3]]}}, Options{})
			if set == nil || len(problems) > 0 {
				t.Errorf("%s: block after line %d: %v", file, line, problems)
			}
		}
	}
}

// TestDocsFields holds the tables of fields in docs/rules.md and docs/resources.md against the
// loader.
func TestDocsFields(t *testing.T) {
	var data []byte
	for _, name := range []string{"rules.md", "resources.md"} {
		text, err := os.ReadFile(filepath.Join("..", "..", "docs", name))
		if err != nil {
			t.Fatal(err)
		}
		data = append(data, text...)
	}
	for _, level := range keyLevels {
		for _, key := range level.keys {
			if !bytes.Contains(data, []byte("| `"+key+"`")) {
				t.Errorf("docs/rules.md and docs/resources.md have no row for %s of %s", key, level.what)
			}
		}
	}
}

func TestUselessSettingsGiveWarnings(t *testing.T) {
	for _, tc := range []struct{ name, rules, want string }{
		{"empty value", "  - key: a\n    value: ''\n    rate_limit: {unit: second, requests_per_unit: 1}",
			"rules.yaml:4:12: warning: the value is empty, so the rule applies to every value of the key; " +
				"leave value out to say so (at d/a)"},
		{"replaces nobody", "  - key: a\n    rate_limit: {unit: second, requests_per_unit: 1, replaces: [{name: x}]}",
			`rules.yaml:4:65: warning: replaces "x", but no limit of the domain has this name (at d/a)`},
		{"octal number", "  - key: a\n    rate_limit: {unit: second, requests_per_unit: 0600}",
			"rules.yaml:4:51: warning: requests_per_unit 0600 is octal and means 384; write 384, or leave the 0 out (at d/a)"},
		{"small octal number", "  - key: a\n    rate_limit: {unit: second, requests_per_unit: 007}", ""},
		{"count beside unlimited", "  - key: a\n    rate_limit: {unlimited: true, requests_per_unit: 1}",
			"rules.yaml:4:54: warning: requests_per_unit has no effect beside unlimited (at d/a)"},
		{"mode without limit", "  - key: a\n    shadow_mode: true",
			"rules.yaml:4:18: warning: shadow_mode has no effect: the rule itself has no rate_limit, " +
				"no limits and no concurrency (at d/a)"},
		{"metric without limit", "  - key: a\n    value_to_metric: true",
			"rules.yaml:4:22: warning: value_to_metric has no effect: neither the rule nor one below it has a limit (at d/a)"},
		{"wildcard behind a wider one", "  - {key: a, value: 'x*'}\n  - {key: a, value: 'x*y'}",
			`rules.yaml:4:5: warning: the rule applies only to its own text, * included: the earlier "a_x*" in rules.yaml:3 ` +
				`matches all it would (at d/a_x*y)`},
		{"wildcard behind a wider key", "  - {key: 'a*'}\n  - {key: 'ab*', value: 'y*'}",
			`rules.yaml:4:5: warning: the rule applies only to its own text, * included: the earlier "a*" in rules.yaml:3 ` +
				`matches all it would (at d/ab*_y*)`},
		{"default behind a star", "  - {key: a}\n  - {key: a, value: '*'}",
			`rules.yaml:3:5: warning: the rule never applies: wildcards come before it, and "a_*" in rules.yaml:4 matches all ` +
				`it would (at d/a)`},
		{"neighbours", "  - {key: a, value: 'x*y'}\n  - {key: a, value: 'x*'}\n  - {key: a}\n  - {key: 'b*', value: 'x'}\n" +
			"  - {key: 'b*'}", ""},
		{"no effect if false", "  - key: a\n    shadow_mode: false\n    value_to_metric: no", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			data := []byte("domain: d\ndescriptors:\n" + tc.rules)
			set, problems := Load([]Source{{Name: "rules.yaml", Data: data}}, Options{})
			if set == nil {
				t.Error("refused")
			}
			problems = slices.DeleteFunc(problems, func(p descriptors.Problem) bool { return p.Message == exemptsAll })
			if got := strings.TrimSpace(lines(problems)); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

// TestCutFilesDoNotLoadInSilence: of a file that was cut off anywhere, what loads without a word has a limit in
// each of its rules.
func TestCutFilesDoNotLoadInSilence(t *testing.T) {
	const file = `domain: shop
descriptors:
- key: tenant
  value: acme
  descriptors:
  - key: path
    rate_limit: {unit: minute, requests_per_unit: 600}
- key: tenant
  rate_limit:
    unit: hour
    requests_per_unit: 3
resources:
- path: /pay
  limits:
  - {algorithm: token_bucket, rate: 10/s}
`
	for n := range len(file) {
		set, problems := Load([]Source{{Name: "rules.yaml", Data: []byte(file[:n])}}, Options{})
		if set == nil || len(problems) > 0 {
			continue
		}
		if len(set.Rules()) == 0 {
			t.Errorf("no rules, no warning:\n%s", file[:n])
		}
		for _, r := range set.Rules() {
			if len(r.Limits) == 0 {
				t.Errorf("%s has no limit, and there is no warning:\n%s", r.Path, file[:n])
			}
		}
	}
	for _, tc := range []struct{ rules, want string }{
		{"descriptors:\n- {key: a}\n- {key: b, rate_limit: {unlimited: true}}",
			"r:2:3: warning: " + exemptsAll + " (at d/a)"},
		{"descriptors:\n- key: a\n  descriptors:", "r:2:3: warning: " + exemptsAll + " (at d/a)"},
		{"resources:\n- {path: /a}", "r:2:3: warning: " + exemptsAll + " (at d/*:/a)"},
		{"plugin: rest\nresources:\n- {path: /a}", ""},
		{"descriptors: []",
			"r:1:1: warning: the domain has no descriptors and no resources, so nothing in it is limited (at d)"},
	} {
		_, problems := Load([]Source{{Name: "r", Data: []byte(tc.rules + "\ndomain: d")}}, Options{})
		if got := strings.TrimSpace(lines(problems)); got != tc.want {
			t.Errorf("%q\ngot  %s\nwant %s", tc.rules, got, tc.want)
		}
	}
}

func TestSeveralSources(t *testing.T) {
	rule := func(key string) string {
		return "domain: d\ndescriptors:\n  - key: " + key + "\n    rate_limit: {unit: second, requests_per_unit: 1}\n"
	}
	load := func(merge bool, rules ...string) (*descriptors.Set, string) {
		var sources []Source
		for i, r := range rules {
			sources = append(sources, Source{Name: fmt.Sprintf("%d.yaml", i), Data: []byte(r)})
		}
		set, problems := Load(sources, Options{MergeDomains: merge})
		return set, lines(problems)
	}
	if set, got := load(false, rule("a"), rule("b")); set != nil ||
		got != "1.yaml:1:9: domain \"d\" is already in 0.yaml; put its rules into one file, or allow merging domains "+
			"(--merge-domains; headgate ratelimit: MERGE_DOMAIN_CONFIG=true) (at d)\n" {
		t.Error(got)
	}
	if set, got := load(true, rule("b"), rule("a")); got != "" || len(set.Rules()) != 2 || set.Rules()[0].Path != "b" {
		t.Error(got)
	}
	if set, got := load(true, rule("a"), rule("a")); set != nil ||
		got != "1.yaml:3:5: duplicate rule \"a\", first in 0.yaml:3 (at d/a)\n" {
		t.Error(got)
	}
	// All problems of all files at once, ordered.
	if set, got := load(false, rule("''"), rule("a"), "nonsense"); set != nil || strings.Count(got, "\n") != 3 ||
		!strings.HasPrefix(got, "0.yaml:3:10: ") {
		t.Error(got)
	}
	if set, got := load(false); set == nil || got != "" || len(set.Domains()) != 0 {
		t.Error("no sources are an empty set", got)
	}
	three := []string{"domain: c", "domain: a", "domain: b"}
	if set, _ := load(false, three...); !slices.Equal(set.Domains(), []string{"a", "b", "c"}) {
		t.Error(set.Domains())
	}
}

func TestProblemJSON(t *testing.T) {
	got, err := json.Marshal(descriptors.Problem{File: "f", Line: 3, Col: 4, Path: "d/a", Message: "m", Warning: true})
	if err != nil || string(got) != `{"file":"f","line":3,"col":4,"path":"d/a","message":"m","warning":true}` {
		t.Error(string(got), err)
	}
}

// TestFilesBeyondTheBoundsAreRefused tries what is too large for a file in testdata.
func TestFilesBeyondTheBoundsAreRefused(t *testing.T) {
	const head = "domain: d\ndescriptors:\n"
	huge := head + strings.Repeat("#", MaxSourceBytes)
	many := &strings.Builder{}
	many.WriteString(head)
	for i := range 1000 {
		fmt.Fprintf(many, "  - {key: a, value: 'x*%d*%d*y'}\n", i, i+1)
	}
	bomb := &strings.Builder{}
	bomb.WriteString(head + "  - {key: l0, descriptors: &l0 [{key: a}]}\n")
	for i := 1; i < 20; i++ {
		fmt.Fprintf(bomb, "  - {key: l%d, descriptors: &l%d [", i, i)
		for j := range 10 {
			fmt.Fprintf(bomb, "{key: a%d, descriptors: *l%d},", j, i-1)
		}
		bomb.WriteString("]}\n")
	}
	wrong := head + strings.Repeat("  - x\n", 10_000+10)
	for _, tc := range []struct{ name, rules, want string }{
		{"file", huge, "at most"},
		{"wildcards", many.String(), "differ only between"},
		{"aliases", bomb.String(), "aliases expand to too much"},
		{"problems", wrong, "the rest is not shown"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			set, problems := Load([]Source{{Name: "f", Data: []byte(tc.rules)}}, Options{})
			if set != nil || !strings.Contains(lines(problems), tc.want) || len(problems) > 10_000 {
				t.Errorf("%d problems, last %v", len(problems), problems[max(0, len(problems)-1):])
			}
		})
	}
}

func FuzzLoad(f *testing.F) {
	for _, dir := range []string{"good", "bad"} {
		files, _ := filepath.Glob(filepath.Join("testdata", dir, "*.yaml"))
		for _, file := range files {
			if data, err := os.ReadFile(file); err == nil && len(data) < 4096 {
				f.Add(data)
			}
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		set, problems := Load([]Source{{Name: "f", Data: data}, {Name: "g", Data: data}},
			Options{MergeDomains: len(data)%2 == 0})
		if set == nil && !slices.ContainsFunc(problems, func(p descriptors.Problem) bool { return !p.Warning }) {
			t.Error("refused without an error")
		}
		if set == nil {
			return
		}
		var m descriptors.Match
		for i, r := range set.Rules() {
			if r.ID != i {
				t.Error("numbers are not in order")
			}
			set.Match(r.Domain, []descriptors.Entry{{Key: "a", Value: "b"}, {Key: "", Value: ""}}, &m)
			set.Match(r.Domain, []descriptors.Entry{{Key: "method", Value: "POST"}, {Key: "path", Value: "/a/b?c=d"},
				{Key: "soap_action", Value: "a"}}, &m)
			set.Needs(r.Domain)
		}
		if err := set.Dump(&bytes.Buffer{}); err != nil {
			t.Error(err)
		}
	})
}

// TestWideMappingsAreReadInTime: a file with many misplaced keys is rejected in time, and an error
// among its problems counts even if it is not shown.
func TestWideMappingsAreReadInTime(t *testing.T) {
	var wide strings.Builder
	wide.WriteString("domain: d\ndescriptors:\n- key: a\n  rate_limit: {unit: hour, requests_per_unit: 1}\n  metadata:\n")
	for i := range 150_000 {
		fmt.Fprintf(&wide, "    k%d: 1\n", i)
	}
	for i := range 150_000 {
		fmt.Fprintf(&wide, "k%d: 1\n", i)
	}
	began := time.Now()
	set, problems := Load([]Source{{Name: "wide.yaml", Data: []byte(wide.String())}}, Options{})
	if set != nil || len(problems) != 10_000 || !strings.Contains(problems[0].Message, "more than 10000 problems") {
		t.Errorf("%d problems, the first: %v", len(problems), problems[0])
	}
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("reading takes %v", took)
	}
}
