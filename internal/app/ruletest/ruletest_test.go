package ruletest

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const shop = `
domain: shop
descriptors:
- key: tenant
  rate_limit: {name: per-tenant, unit: minute, requests_per_unit: 3}
  policy: tenant:{tenant}
- key: slow
  limits: [{algorithm: token_bucket, rate: 1/s, burst: 2}]
- key: log
  limits: [{algorithm: sliding_log, limit: 2, window: 10s}]
- key: window
  limits: [{algorithm: sliding_window, limit: 2, window: 10s}]
- key: month
  rate_limit: {unit: month, requests_per_unit: 1, calendar: true}
- key: busy
  concurrency:
  - {threshold: 1, response: {delay: 2s}}
  - {threshold: 2, response: {statusCode: 503}}
`

// runText runs a file of tests of the shop's rules.
func runText(t *testing.T, text string) (Result, error) {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string]string{"shop.yaml": shop, "bad.yaml": "domain: shop\nx: 1\n", "t.yaml": text} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return Run(filepath.Join(dir, "t.yaml"), "")
}

// A step that wants what is so passes, and one that wants something else fails and says what it got.
func TestSteps(t *testing.T) {
	for _, c := range []struct{ step, got string }{
		{"{ask: tenant=a, times: 3, want: OK}", ""},
		{"{ask: tenant=a, times: 4, want: OK}",
			"request 4 of 4: OVER_LIMIT rule shop/tenant:per-tenant, remaining 0, retry 1m"},
		{"{ask: tenant=a, times: 4, refused: 1, rule: 'shop/tenant:per-tenant', retry: 1m}", ""},
		{"{ask: tenant=a, times: 4, refused: 2}", "1 of 4 refused"},
		{"{ask: tenant=a, times: 4, every: 20s, want: OK}", ""},
		{"{ask: tenant=a, hits: 4, want: OVER_LIMIT, rule: shop/tenant}", `rule "shop/tenant:per-tenant"`},
		{"{ask: tenant=a, hits: 4, want: OVER_LIMIT, retry: 2s}", "retry never"},
		{"{ask: tenant=a, want: OK, remaining: 1}", "remaining 2"},
		{"{ask: tenant=a, want: OVER_LIMIT}", "OK rule shop/tenant:per-tenant, remaining 2"},
		{"{ask: [tenant=a, slow=a], times: 3, refused: 1, rule: 'shop/slow', retry: 1s}", ""},
		{"{ask: log=a, times: 5, every: 5s, want: OK}", ""},
		{"{ask: log=a, times: 5, every: 4s, refused: 1}", ""},
		{"{ask: window=a, times: 3, every: 1s, want: OK}", "request 3 of 3: OVER_LIMIT rule shop/window"},
		{"{ask: month=a, times: 2, every: 30d, refused: 1}", ""},
		{"{ask: month=a, times: 2, every: 31d, want: OK}", ""},
		{"{ask: busy=a, hold: 1s, times: 3, refused: 1, status: 503}", ""},
		{"{ask: busy=a, hold: 1s, every: 1s, times: 9, want: OK, delay: 0s}", ""},
		{"{ask: busy=a, hold: 1100ms, every: 1s, times: 9, want: OK, delay: 0s}", "delay 2s"},
		{"{ask: busy=a, hold: 1s, times: 3, refused: 1, status: 429}", "request 3 of 3: status 503"},
		{"{ask: tenantt=a, want: OVER_LIMIT}", "no limit applies"},
		{"{ask: tenant=a, times: 5, want: OK, policies: [{key: 'tenant:a', algorithm: fixed_window, limit: 5, window: 1m}]}",
			""},
		{"{ask: tenant=b, times: 5, want: OK, policies: [{key: 'tenant:a', algorithm: fixed_window, limit: 5, window: 1m}]}",
			"request 4 of 5"},
	} {
		r, err := runText(t, "rules: shop.yaml\ntests:\n- name: x\n  steps:\n  - "+c.step+"\n")
		if err != nil {
			t.Errorf("%s: %v", c.step, err)
			continue
		}
		got := ""
		if !r.OK {
			got = r.Tests[0].Failures[0].Got
		}
		if (got == "") != (c.got == "") || !strings.Contains(got, c.got) {
			t.Errorf("%s: got %q, want %q", c.step, got, c.got)
		}
	}
}

// Each test begins with unused counters, and time passes between steps.
func TestTestsAreApart(t *testing.T) {
	r, err := runText(t, `
rules: [shop.yaml]
start: 2026-01-31T23:59:59Z
tests:
- steps:
  - {at: 0s, ask: month=a, want: OK}
  - {at: 0.9s, ask: month=a, want: OVER_LIMIT, retry: 100ms}
  - {at: 1s, ask: month=a, want: OK}
- start: 2026-01-31T23:00:00Z
  steps:
  - {at: 0s, ask: month=a, want: OK}
  - {at: 1s, ask: month=a, want: OVER_LIMIT, retry: 59m59s}
`)
	if err != nil || !r.OK || len(r.Tests) != 2 || r.Tests[1].Name != "test 2" {
		t.Errorf("%+v, %v", r, err)
	}
}

// What is wrong with a file is said with its place.
func TestBadFiles(t *testing.T) {
	one := func(step string) string { return "rules: shop.yaml\ntests:\n- name: x\n  steps:\n  - " + step + "\n" }
	for _, c := range []struct{ text, want string }{
		{"", "t.yaml: the file is empty"},
		{"rules: [", "t.yaml:1: not valid YAML"},
		{"domain: d\ndescriptors: [{key: a}]\n", "t.yaml: this is a file of rules; headgate test wants a file of tests"},
		{"resources: [{path: /a}]\n", "t.yaml: this is a file of rules"},
		{"rules: [shop.yaml]\n", "tests is missing"},
		{"tests: [{steps: []}]\n", "rules is missing"},
		{"rules: [shop.yaml]\ntests:\n-\n", "t.yaml:3: a test is empty"},
		{"rules: [shop.yaml]\ntests:\n- name: x\n  steps:\n  -\n", "t.yaml:5: a step of the test \"x\" is empty"},
		{"<<: {tests: [null]}\nrules: [shop.yaml]\n", "t.yaml:1: a test is empty"},
		{"rules: [shop.yaml]\ntests:\n- name: x\n", "t.yaml:3: the test \"x\" has no steps"},
		{"rules: bad.yaml\ntests: [{steps: [{ask: a=b, want: OK}]}]", "bad.yaml:2"},
		{one("{ask: tenant=a, wants: OK}"), "line 5: field wants not found"},
		{one("{ask: tenant, want: OK}"), "t.yaml:5: ask: descriptor \"tenant\""},
		{one("{ask: tenant=a}"), "t.yaml:5: want is missing"},
		{one("{ask: tenant=a, want: ok}"), `want: "ok" must be OK or OVER_LIMIT`},
		{one("{ask: tenant=a, want: OK, refused: 1}"), "exclude each other"},
		{one("{ask: tenant=a, times: 2, refused: 3}"), "outside 0 to 2"},
		{one("{ask: tenant=a, want: OK, retry: 1s}"), "retry and status are of refusals"},
		{one("{ask: tenant=a, times: -1, want: OK}"), "times: -1"},
		{one("{at: soon, ask: tenant=a, want: OK}"), `line 5: "soon" is not a duration`},
		{one("{ask: tenant=a, want: OK, domain: shopp}"), `t.yaml:5: the rules have no domain "shopp"; did you mean "shop"?`},
		{one("{at: 2s, ask: tenant=a, want: OK}\n  - {at: 1s, ask: tenant=a, want: OK}"), "t.yaml:6: at: 1s is before"},
		{one("{ask: tenant=a, want: OK, policies: [{key: a, algorithm: fixed_window}]}"), "line 5: policy: limit is missing"},
		{one("{ask: tenant=a, want: OK, policies: [{key: a, size: 3}]}"), "unknown field size"},
		{one("{ask: tenant=a, want: OK}") + "---\n{}\n", "a second document"},
	} {
		_, err := runText(t, c.text)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "ruletest.") {
			t.Errorf("%q: %v, want %q", c.text, err, c.want)
		}
	}
	if _, err := Run("/dev/zero", ""); err == nil || !strings.Contains(err.Error(), "/dev/zero: larger than 16 MiB") {
		t.Errorf("a file without an end: %v", err)
	}
	if _, err := Run(filepath.Join(t.TempDir(), "none.yaml"), ""); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
}

// Reports can be read by programs.
func TestReports(t *testing.T) {
	r, err := runText(t, "rules: shop.yaml\ntests:\n- name: a <b>\n  steps: [{ask: tenant=a, times: 4, want: OK}]\n"+
		"- name: good\n  steps: [{ask: tenant=a, want: OK}]\n")
	if err != nil {
		t.Fatal(err)
	}
	var text, list, junit bytes.Buffer
	results := []Result{r}
	if err := errors.Join(WriteText(&text, results), json.NewEncoder(&list).Encode(results),
		WriteJUnit(&junit, results)); err != nil {
		t.Fatal(err)
	}
	if s := text.String(); !strings.HasPrefix(s, "FAIL ") || !strings.Contains(s, "t.yaml:4: at 0s ask tenant=a\n") {
		t.Errorf("as text:\n%s", s)
	}
	var again []Result
	if err := json.Unmarshal(list.Bytes(), &again); err != nil || again[0].OK || again[0].Tests[0].Failures[0].Line != 4 ||
		again[0].Tests[1].Requests != 1 {
		t.Errorf("as JSON: %v\n%s", err, list.String())
	}
	var suites struct {
		Suites []junitFile `xml:"testsuite"`
	}
	if err := xml.Unmarshal(junit.Bytes(), &suites); err != nil || suites.Suites[0].Failures != 1 ||
		suites.Suites[0].Cases[0].Name != "a <b>" || suites.Suites[0].Cases[0].Failure == nil ||
		suites.Suites[0].Cases[1].Failure != nil {
		t.Errorf("as JUnit: %v\n%s", err, junit.String())
	}
}

// Every example has a test, which passes.
func TestExamples(t *testing.T) {
	var tests []string
	for _, pattern := range []string{"examples/*/*.test.yaml", "internal/app/*/*.test.yaml"} {
		found, err := filepath.Glob(filepath.Join("../../..", pattern))
		if err != nil {
			t.Fatal(err)
		}
		tests = append(tests, found...)
	}
	tested := map[string]bool{}
	for _, name := range tests {
		f, err := read(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, rules := range f.Rules {
			tested[rules] = true
		}
		r, err := Run(name, "")
		if err != nil {
			t.Error(err)
		}
		for _, test := range r.Tests {
			for _, f := range test.Failures {
				t.Errorf("%s:%d: got %s, want %s", name, f.Line, f.Got, f.Want)
			}
		}
	}
	for _, pattern := range []string{"examples/*/*.yaml", "examples/*/rules/*.yaml", "internal/app/*/*.yaml"} {
		found, _ := filepath.Glob(filepath.Join("../../..", pattern))
		for _, name := range found {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains("\n"+string(text), "\ndomain: ") && !strings.HasSuffix(name, ".test.yaml") && !tested[name] {
				t.Errorf("%s has rules and no test", name)
			}
		}
	}
}

// TestReservationsInTests: requests reserve, and their ends settle that.
func TestReservationsInTests(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write("rules.yaml", `
domain: d
descriptors:
  - key: token
    reserve: {amount: estimate, default: 40, ttl: 1m}
    limits: [{name: tpm, algorithm: fixed_window, limit: 100, window: 1h}]
  - key: oldest
    reserve: {amount: 40, match: oldest}
    limits: [{name: tpm, algorithm: fixed_window, limit: 100, window: 1h}]
  - key: busy
    lease_ttl: 10s
    concurrency: [{threshold: 2, response: {statusCode: 503}}]
`)
	file := write("x.test.yaml", `
rules: [rules.yaml]
tests:
- name: by token
  steps:
  - {at: 1s, ask: token=a, times: 2, hold: 5s, cost: 10, want: OK}
  - {at: 2s, ask: token=a, want: OVER_LIMIT, remaining: 20}
  - {at: 7s, ask: token=a, estimate: 70, cost: 80, want: OK, remaining: 10}
  - {at: 8s, ask: token=a, estimate: 1, want: OVER_LIMIT, remaining: 0}
- name: the oldest
  steps:
  - {at: 1s, ask: oldest=a, hits: 0, times: 2, every: 1s, want: OK}
  - {at: 3s, ask: oldest=a, hits: 0, want: OVER_LIMIT}
  - {at: 4s, ask: oldest=a, hits: 10, want: OK}
  - {at: 5s, ask: oldest=a, hits: 0, want: OK, remaining: 10}
- name: longer than a lease lives unless it is renewed
  steps:
  - {at: 0s, ask: token=a, hold: 20m, cost: 10, want: OK}
  - {at: 1s, ask: busy=a, hold: 20m, want: OK}
  - {at: 2s, ask: [busy=a, oldest=a], hits: 0, hold: 15m, want: OK}
  - {at: 3s, ask: busy=a, hold: 15m, want: OK}
  - {at: 4s, ask: busy=a, times: 89, every: 10s, want: OVER_LIMIT}
  - {at: 16m, ask: busy=a, hold: 1m, want: OK}
  - {at: 16m, ask: busy=a, want: OVER_LIMIT}
  - {at: 19m, ask: token=a, hits: 0, want: OK, remaining: 60}
  - {at: 20m, ask: token=a, hits: 0, want: OK, remaining: 90}
  - {at: 20m1s, ask: busy=a, times: 2, want: OK}
`)
	r, err := Run(file, "")
	if err != nil || !r.OK {
		t.Fatalf("%v: %+v", err, r)
	}
	for text, want := range map[string]string{
		"{ask: token=a, hits: 1, cost: 2, want: OK}": "hits exclude",
		"{ask: token=a, cost: -1, want: OK}":         "cost at least 0",
		"{ask: token=a, estimate: 0, want: OK}":      "estimate must be at least 1",
	} {
		bad := write("bad.test.yaml", "rules: [rules.yaml]\ntests:\n- {steps: ["+text+"]}\n")
		if _, err := Run(bad, ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
