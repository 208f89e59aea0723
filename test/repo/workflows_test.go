package repo

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

var (
	pinnedAction = regexp.MustCompile(`^([\w./-]+)@([0-9a-f]{40})$`)
	pinnedAs     = regexp.MustCompile(`^# v\d+\.\d+\.\d+$`)
)

// checkWorkflow returns what is wrong with a workflow, and the digest of each action that it uses, with its version:
// it must parse, say what its token may do, and name each action by its commit, since a tag can be moved.
func checkWorkflow(text string) (found []string, pins map[string]string) {
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(text), &doc); err != nil {
		return []string{err.Error()}, nil
	}
	if doc.Kind != yaml.DocumentNode || doc.Content[0].Kind != yaml.MappingNode {
		return []string{"is no mapping"}, nil
	}
	top := map[string]bool{}
	for i := 0; i < len(doc.Content[0].Content); i += 2 {
		top[doc.Content[0].Content[i].Value] = true
	}
	for _, key := range []string{"name", "on", "permissions", "jobs"} {
		if !top[key] {
			found = append(found, "has no "+key)
		}
	}
	pins = map[string]string{}
	var walk func(n *yaml.Node)
	walk = func(n *yaml.Node) {
		for i, child := range n.Content {
			if n.Kind == yaml.MappingNode && i%2 == 1 && n.Content[i-1].Value == "uses" {
				m := pinnedAction.FindStringSubmatch(child.Value)
				switch {
				case m == nil:
					found = append(found, fmt.Sprintf("line %d: %s is not pinned: want @ and the 40 hex digits of a commit",
						child.Line, child.Value))
				case !pinnedAs.MatchString(child.LineComment):
					found = append(found, fmt.Sprintf("line %d: %s has no version: want a comment such as # v1.2.3", child.Line,
						child.Value))
				default:
					pins[m[1]] = m[2] + " " + child.LineComment
				}
			}
			walk(child)
		}
	}
	walk(&doc)
	return found, pins
}

// TestWorkflowsPinTheirActions: every workflow parses, and names the same commit of an action as the others do.
func TestWorkflowsPinTheirActions(t *testing.T) {
	files, err := filepath.Glob("../../.github/workflows/*")
	if err != nil || len(files) < 5 {
		t.Fatalf("%d workflows: %v", len(files), err)
	}
	all := map[string]string{}
	for _, file := range files {
		found, pins := checkWorkflow(string(readFile(t, file)))
		for _, finding := range found {
			t.Errorf("%s: %s", file, finding)
		}
		for action, pin := range pins {
			if other := all[action]; other != "" && other != pin {
				t.Errorf("%s: %s is %s here and %s elsewhere", file, action, pin, other)
			}
			all[action] = pin
		}
	}
	if len(all) < 7 {
		t.Errorf("only %d actions are found", len(all))
	}
}

// TestReleasesAreSigned: the release workflow signs each image, the chart and each archive, and says where they are
// from.
func TestReleasesAreSigned(t *testing.T) {
	text := string(readFile(t, "../../.github/workflows/release.yml"))
	for want, n := range map[string]int{
		"cosign sign --yes ": 4, "cosign attest --yes --type cyclonedx": 3, "cosign sign-blob --yes --bundle": 1,
		"actions/attest-build-provenance@": 5, "push-to-registry: true": 4, "id-token: write": 1,
		"attestations: write": 1, "sha256sum --check --strict SHA256SUMS": 1,
	} {
		if got := strings.Count(text, want); got != n {
			t.Errorf("release.yml has %d times %q, want %d", got, want, n)
		}
	}
	for _, want := range []string{"cosign verify-blob", "cosign verify ", "gh attestation verify"} {
		if !strings.Contains(string(readFile(t, "../../SECURITY.md")), want) {
			t.Errorf("SECURITY.md does not say how to verify a release by %s", want)
		}
	}
}

func TestWorkflowRules(t *testing.T) {
	const good = "name: x\non: push\npermissions: {}\njobs:\n  a:\n    steps:\n      - uses: a/b@" +
		"0123456789012345678901234567890123456789 # v1.2.3\n      - run: make\n"
	for _, c := range []struct{ name, old, new, want string }{
		{"in order", "", "", ""},
		{"a tag", "0123456789012345678901234567890123456789", "v4", "line 7: a/b@v4 is not pinned"},
		{"a short commit", "0123456789012345678901234567890123456789", "0123456", "is not pinned"},
		{"no version", " # v1.2.3", "", "has no version"},
		{"a version that moves", "# v1.2.3", "# v1", "has no version"},
		{"all rights", "permissions: {}\n", "", "has no permissions"},
		{"no YAML", "name: x", "name: [x", "yaml"},
	} {
		found, _ := checkWorkflow(strings.Replace(good, c.old, c.new, 1))
		expect(t, c.name, found, c.want)
	}
}

// notOnOracle is what every page that speaks of Oracle says, until somebody has run make oracle-test and the tests
// have passed. Then this test goes, and the pages say on which version.
const notOnOracle = "not yet run on a real Oracle"

var speaksOfOracle = regexp.MustCompile(`(?i)\boracle`)

// checkOracleSentence returns what is wrong with a page.
func checkOracleSentence(text string) []string {
	if speaksOfOracle.MatchString(text) && !strings.Contains(strings.Join(strings.Fields(text), " "), notOnOracle) {
		return []string{fmt.Sprintf("speaks of Oracle and does not say %q", notOnOracle)}
	}
	return nil
}

func TestPagesAboutOracleSayThatNobodyHasRunIt(t *testing.T) {
	pages := documents(t)
	more, err := filepath.Glob("../../changelog/unreleased/*/*oracle*.md")
	if err != nil {
		t.Fatal(err)
	}
	speaking := 0
	for _, file := range append(pages, more...) {
		text := string(readFile(t, file))
		if speaksOfOracle.MatchString(text) {
			speaking++
		}
		for _, finding := range checkOracleSentence(text) {
			t.Errorf("%s %s", file, finding)
		}
	}
	if speaking < 10 {
		t.Errorf("only %d pages speak of Oracle", speaking)
	}
	expect(t, "another store", checkOracleSentence("PostgreSQL"), "")
	expect(t, "a claim", checkOracleSentence("It runs on Oracle."), "does not say")
	expect(t, "an honest page", checkOracleSentence("Oracle (not yet run on a\nreal Oracle)"), "")
}

var (
	demandsOracle = regexp.MustCompile(`RequireDSN\(t, testenv\.Oracle\)|emptyOracle\(t\)`)
	testFunction  = regexp.MustCompile(`(?ms)^func (Test\w+)\(t \*testing\.T\) \{$(.*?)^}$`)
)

// TestOracleTestsAreRun: make oracle-test runs every test that demands a real Oracle.
func TestOracleTestsAreRun(t *testing.T) {
	script := string(readFile(t, "../../scripts/oracle-test.sh"))
	if !strings.Contains(script, `-run "^TestRealOracle"`) {
		t.Error("scripts/oracle-test.sh does not run TestRealOracle…")
	}
	found := 0
	files, err := goFiles(root(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if !strings.HasSuffix(file, "_test.go") || strings.Contains(filepath.ToSlash(file), "/test/") {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range testFunction.FindAllSubmatch(text, -1) {
			if !demandsOracle.Match(m[2]) {
				continue
			}
			found++
			folder, err := filepath.Rel(root(t), filepath.Dir(file))
			if err != nil {
				t.Fatal(err)
			}
			if !strings.HasPrefix(string(m[1]), "TestRealOracle") || !strings.Contains(script, "./"+filepath.ToSlash(folder)) {
				t.Errorf("make oracle-test does not run %s of %s", m[1], folder)
			}
		}
	}
	if found < 5 {
		t.Errorf("only %d tests demand a real Oracle", found)
	}
}
