package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Rules of the kinds that the reference's own examples have, written anew.
var referenceRules = map[string]string{
	"clusters.yaml": `domain: rl
descriptors:
  - key: from_cluster
    value: edge
    descriptors:
      - key: to_cluster
        value: shop
        rate_limit: {unit: minute, requests_per_unit: 1}
  - key: user
    rate_limit: {unit: minute, requests_per_unit: 2}
    descriptors:
      - {key: plan, rate_limit: {unit: minute, requests_per_unit: 3}}
      - {key: plan, value: banned, rate_limit: {unit: minute, requests_per_unit: 0}}
      - {key: plan, value: shady, shadow_mode: true, rate_limit: {unit: minute, requests_per_unit: 1}}
      - {key: any, rate_limit: {unlimited: true}}
`,
	"one.yaml": `domain: one
descriptors:
  - {key: database, rate_limit: {unit: second, requests_per_unit: 5}}
`,
	"quota.yaml": `domain: quota
descriptors:
  - {key: service, value: a, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 1}}
`,
	"odd.txt": `domain: odd
descriptors:
  - {key: path, rate_limit: {unit: day, requests_per_unit: 5}}
  - {key: path_of, rate_limit: {unit: day, requests_per_unit: 5}}
  - key: host
    value: "*.example.com"
    detailed_metric: true
    metadata: {team: a}
    rate_limit: {unit: day, requests_per_unit: 5}
`,
}

// headgate check --reference prints each rule that the reference decides differently, at
// its place, and nothing of rules that both decide alike.
func TestCheckReferenceFindsWhatDiffers(t *testing.T) {
	dir := t.TempDir()
	for name, text := range referenceRules {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	code, out := headgate(t, "check", "--reference", dir)
	var got []string
	for line := range strings.Lines(out) {
		place, what, _ := strings.Cut(strings.TrimPrefix(line, dir+string(filepath.Separator)), " ")
		if strings.Contains(what, "differs: ") {
			got = append(got, place+" "+strings.TrimPrefix(strings.TrimPrefix(what, "warning: "), "differs: "))
		}
	}
	want := []string{
		"odd.txt:1: the name of the file: ",
		"clusters.yaml:1:9: a request that one of the domain's rules refuses: the reference charges ",
		"clusters.yaml:14:9: a request with a limit of its own: ",
		"odd.txt:1:9: a request that one of the domain's rules refuses: ",
		`odd.txt:4:5: the counters of key "path_of" and of key "path" in ` + dir + "/odd.txt:3: ",
		`odd.txt:5:5: an entry whose key begins with "host_": `,
		"odd.txt:5:5: the metadata of the rule: the reference loses ",
		"quota.yaml:3:5: a request whose quotas are all spent: ",
	}
	if code != exitNo || len(got) != len(want) {
		t.Fatalf("exit code %d, %d findings, want %d:\n%s", code, len(got), len(want), out)
	}
	for i := range want {
		if !strings.HasPrefix(got[i], want[i]) {
			t.Errorf("finding %d is\n%s want\n%s", i, got[i], want[i])
		}
	}
	if code, out := headgate(t, "check", "--reference", filepath.Join(dir, "one.yaml")); code != exitOK ||
		strings.Contains(out, "differs") {
		t.Errorf("rules that both decide alike: exit code %d: %s", code, out)
	}
	two := filepath.Join(t.TempDir(), "two.txt")
	rules := "domain: d\ndescriptors: [{key: a, rate_limit: {unit: day, requests_per_unit: 1}}, " +
		"{key: b, rate_limit: {unit: day, requests_per_unit: 1}}]\n"
	if err := os.WriteFile(two, []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, out := headgate(t, "check", "--reference", two); code != exitNo || strings.Count(out, "differs: ") != 2 {
		t.Errorf("rules that headgate ratelimit decides alike, for serve: exit code %d: %s", code, out)
	}
	if code, out := headgate(t, "check", "--reference", "--for", "ratelimit", two); code != exitOK ||
		strings.Contains(out, "differs") {
		t.Errorf("rules that headgate ratelimit decides alike: exit code %d: %s", code, out)
	}
	if code, out := headgate(t, "check", "--for", "ratelimit", two); code != exitProblems ||
		!strings.Contains(out, "--for needs --reference") {
		t.Errorf("--for alone: exit code %d: %s", code, out)
	}
	if code, out := headgate(t, "check", dir); code != exitOK || strings.Contains(out, "differs") {
		t.Errorf("without --reference: exit code %d: %s", code, out)
	}
	broken := writeRules(t, "domain: d\ndescriptors:\n- {key: k, rate_limit: {unit: day}}\n")
	if code, out := headgate(t, "check", "--reference", broken); code != exitProblems || !strings.Contains(out, ":3:") {
		t.Errorf("rules that headgate refuses: exit code %d: %s", code, out)
	}
	if code, out := headgate(t, "check", "--reference", dir, "--format", "json"); code != exitNo ||
		!strings.Contains(out, `"differs: the metadata`) {
		t.Errorf("as JSON: exit code %d: %s", code, out)
	}
}
