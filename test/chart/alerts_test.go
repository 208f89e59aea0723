package chart

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/headgate-rls/headgate/test/testenv"
)

// ruleFile is charts/headgate/files/rules.yaml.
type ruleFile struct {
	Groups []struct {
		Name  string
		Rules []struct {
			Alert, Record, Expr, For string
			Labels                   map[string]string
			Annotations              struct{ Summary, RunbookURL string }
		}
	}
}

func readRules(t *testing.T) (text string, rules ruleFile) {
	t.Helper()
	text = read(t, filepath.Join(chartDir, "files/rules.yaml"))
	if err := yaml.Unmarshal([]byte(strings.ReplaceAll(text, "runbook_url", "runbookurl")), &rules); err != nil {
		t.Fatal(err)
	}
	return text, rules
}

// TestAlertsFireInTheirUnitTests: promtool accepts the rules, and the unit tests in
// alerts*.yaml see each alert fire.
func TestAlertsFireInTheirUnitTests(t *testing.T) {
	promtool := testenv.UseClient(t, testenv.Promtool)
	text, rules := readRules(t)
	dir := t.TempDir()
	write(t, filepath.Join(dir, "rules.yaml"), text)
	files := []string{"alerts.yaml", "alerts-slow.yaml", "alerts-calm.yaml", "alerts-flap.yaml"}
	for _, file := range files {
		write(t, filepath.Join(dir, file), read(t, file))
	}
	tests, calm := read(t, "alerts.yaml"), read(t, "alerts-calm.yaml")
	if code, out, errOut := testenv.RunProgram(t, promtool, nil, "check", "rules", "--lint-fatal",
		filepath.Join(dir, "rules.yaml")); code != 0 {
		t.Fatalf("%s%s", out, errOut)
	}
	for _, file := range files {
		if code, out, errOut := testenv.RunProgram(t, promtool, nil, "test", "rules", filepath.Join(dir, file)); code != 0 {
			t.Errorf("%s%s", out, errOut)
		}
	}
	fires := regexp.MustCompile(`alertname: (\w+)\n +exp_alerts:`)
	tested := map[string]bool{}
	for _, m := range fires.FindAllStringSubmatch(tests, -1) {
		tested[m[1]] = true
	}
	for _, group := range rules.Groups {
		for _, r := range group.Rules {
			if r.Alert != "" && !tested[r.Alert] {
				t.Errorf("no unit test sees %s fire", r.Alert)
			}
			if r.Alert != "" && !strings.Contains(calm, "alertname: "+r.Alert+",") {
				t.Errorf("no unit test sees that %s does not fire on a calm day", r.Alert)
			}
		}
	}
}

// TestQueriesByPolicyOfTheDocumentation: promtool accepts the alert about a policy in
// docs/reference.md, and the unit tests in policies.yaml see it fire, and what the queries there
// return.
func TestQueriesByPolicyOfTheDocumentation(t *testing.T) {
	promtool := testenv.UseClient(t, testenv.Promtool)
	_, section, _ := strings.Cut(read(t, "../../docs/reference.md"), "\n### By policy\n")
	section, _, _ = strings.Cut(section, "\n## ")
	_, rules, found := strings.Cut(section, "```yaml\n")
	rules, _, _ = strings.Cut(rules, "```")
	queries := regexp.MustCompile("(?m)\\| `(.+)` \\|$").FindAllStringSubmatch(section, -1)
	if !found || len(queries) != 4 {
		t.Fatalf("docs/reference.md has %d queries by policy, and the alert: %v", len(queries), found)
	}
	tests := read(t, "policies.yaml")
	for _, q := range queries {
		if !strings.Contains(tests, "expr: "+q[1]+"\n") {
			t.Errorf("no unit test of the query %s", q[1])
		}
	}
	dir := t.TempDir()
	write(t, filepath.Join(dir, "rules.yaml"), rules)
	write(t, filepath.Join(dir, "policies.yaml"), tests)
	for _, args := range [][]string{{"check", "rules", "--lint-fatal", "rules.yaml"}, {"test", "rules", "policies.yaml"}} {
		args[len(args)-1] = filepath.Join(dir, args[len(args)-1])
		if code, out, errOut := testenv.RunProgram(t, promtool, nil, args...); code != 0 {
			t.Errorf("%s%s", out, errOut)
		}
	}
}

// TestRunbookHasEveryAlert: every alert links to a section of docs/alerts.md, whose table has
// its severities. No document names an alert that does not exist.
func TestRunbookHasEveryAlert(t *testing.T) {
	_, rules := readRules(t)
	document := read(t, "../../docs/alerts.md")
	alerts := map[string][]string{}
	for _, group := range rules.Groups {
		for _, r := range group.Rules {
			if r.Alert == "" {
				continue
			}
			severity, link := r.Labels["severity"], "/docs/alerts.md#"+strings.ToLower(r.Alert)
			if !slices.Contains(alerts[r.Alert], severity) {
				alerts[r.Alert] = append(alerts[r.Alert], severity)
			}
			if !strings.HasSuffix(r.Annotations.RunbookURL, link) || r.Annotations.Summary == "" || severity == "" {
				t.Errorf("%s: runbook %q, summary %q, severity %q", r.Alert, r.Annotations.RunbookURL,
					r.Annotations.Summary, severity)
			}
			if !strings.Contains(document, "\n## "+r.Alert+"\n") {
				t.Errorf("docs/alerts.md has no section %s", r.Alert)
			}
		}
	}
	for alert, severities := range alerts {
		row := fmt.Sprintf("\n| [%s](#%s) | %s |", alert, strings.ToLower(alert), strings.Join(severities, ", "))
		if !strings.Contains(document, row) {
			t.Errorf("the table of docs/alerts.md has no row %q", row)
		}
	}
	for _, file := range []string{"../../docs/kubernetes.md", "../../docs/alerts.md"} {
		for _, m := range regexp.MustCompile(`\b(Headgate[A-Z]\w+)`).FindAllStringSubmatch(read(t, file), -1) {
			if alerts[m[1]] == nil {
				t.Errorf("%s: there is no alert %s", file, m[1])
			}
		}
	}
}

var (
	metricName   = regexp.MustCompile(`\b(headgate_\w+)`)
	metricInDocs = regexp.MustCompile("(?m)^\\| `(headgate_\\w+)` ")
)

// TestMetricsOfBoardAndAlerts: both name metrics that docs/reference.md lists, which is
// made of the code.
func TestMetricsOfBoardAndAlerts(t *testing.T) {
	known := map[string]bool{}
	for _, m := range metricInDocs.FindAllStringSubmatch(read(t, "../../docs/reference.md"), -1) {
		known[m[1]] = true
	}
	for _, file := range []string{"files/rules.yaml", "files/dashboard/board.yaml", "files/dashboard.json"} {
		names := metricName.FindAllStringSubmatch(read(t, filepath.Join(chartDir, file)), -1)
		if len(names) < 10 {
			t.Errorf("%s: only %d metrics", file, len(names))
		}
		for _, m := range names {
			if !known[m[1]] && !known[regexp.MustCompile(`_(bucket|count|sum)$`).ReplaceAllString(m[1], "")] {
				t.Errorf("%s: there is no metric %s", file, m[1])
			}
		}
	}
}
