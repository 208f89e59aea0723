package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/test/testenv"
)

// Two sets of rules that differ in every answer. The counter of key=counted is
// the same in both, so it must survive every change.
const (
	rulesA = `
domain: e2e
descriptors:
- {key: key, value: counted, rate_limit: {name: a, unit: year, requests_per_unit: 1000000}}
- {key: other, value: closed, rate_limit: {name: a, unit: year, requests_per_unit: 0}}
`
	rulesB = `
domain: e2e
descriptors:
- {key: other, value: closed, rate_limit: {name: b, unit: year, requests_per_unit: 0}, response: {content: b}}
- {key: key, value: counted, rate_limit: {name: b, unit: year, requests_per_unit: 2000000}}
`
	brokenRules = "domain: e2e\ndescriptors:\n- {key: key, rate_limit: {unit: fortnight}}\n"
)

// admittedByAOrB checks an answer to key=counted.
func admittedByAOrB(a answer) string {
	limit := a.Header.Get("x-ratelimit-limit")
	byA := strings.HasPrefix(limit, "1000000, ") && strings.HasSuffix(limit, `name="a"`)
	byB := strings.HasPrefix(limit, "2000000, ") && strings.HasSuffix(limit, `name="b"`)
	if a.Code != 200 || byA == byB {
		return fmt.Sprintf("neither set of rules answers %v", a)
	}
	return ""
}

// refusedByAOrB checks an answer to other=closed.
func refusedByAOrB(a answer) string {
	byA := a.Rule() == "e2e/other_closed:a" && a.Body == ""
	byB := a.Rule() == "e2e/other_closed:b" && a.Body == "b"
	if a.Code != 429 || byA == byB {
		return fmt.Sprintf("neither set of rules answers %v", a)
	}
	return ""
}

// A replacer puts new content in the place of the rules that are there, in one
// step, as some tool does.
type replacer func(t *testing.T, dir, content string)

// byRename is how editors and configuration management replace a file.
func byRename(t *testing.T, dir, content string) {
	t.Helper()
	temp := filepath.Join(dir, ".rules.tmp")
	if err := os.WriteFile(temp, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(temp, filepath.Join(dir, "rules.yaml")); err != nil {
		t.Fatal(err)
	}
}

// byLink is how Kubernetes replaces a ConfigMap: rules.yaml leads to
// ..data/rules.yaml, and ..data to a directory that is exchanged.
func byLink(t *testing.T, dir, content string) {
	t.Helper()
	fresh, err := os.MkdirTemp(dir, "..")
	if err != nil {
		t.Fatal(err)
	}
	data, old := filepath.Join(dir, "..data"), ""
	if to, err := os.Readlink(data); err == nil {
		old = filepath.Join(dir, to)
	}
	link := filepath.Join(dir, "..data_tmp")
	for _, err := range []error{
		os.WriteFile(filepath.Join(fresh, "rules.yaml"), []byte(content), 0o600),
		os.Symlink(filepath.Base(fresh), link),
		os.Rename(link, data),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if old != "" {
		err = os.RemoveAll(old)
	} else {
		err = os.Symlink(filepath.Join("..data", "rules.yaml"), filepath.Join(dir, "rules.yaml"))
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestReloadUnderLoad(t *testing.T) {
	onEnvoys(t, func(t *testing.T, env environment) {
		for name, replace := range map[string]replacer{"rename": byRename, "link": byLink} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				replace(t, dir, rulesA)
				s := startService(t, "--rules", dir)
				f := startFront(t, env.envoy, setup{Services: []string{s.GRPC}})
				admitted := startLoad(t, f, 3, "/", []string{"x-key", "counted"}, admittedByAOrB)
				refused := startLoad(t, f, 1, "/", []string{"x-other", "closed"}, refusedByAOrB)
				flip(t, s, dir, replace)
				refused.Stop(t)
				total := admitted.Stop(t)
				a := f.Get("/", "x-key", "counted")
				if want := 1000000 - total - 1; a.Remaining() != want {
					t.Errorf("after %d requests and one more the answer is %v, want %d left: counters must survive new rules",
						total, a, want)
				}
			})
		}
	})
}

// flip changes the rules to and fro, with broken ones in between, and ends
// with rulesA.
func flip(t *testing.T, s *service, dir string, replace replacer) {
	t.Helper()
	for i, content := range []string{rulesB, rulesA, brokenRules, rulesB, rulesA, rulesB, brokenRules, rulesA,
		rulesB, rulesA} {
		ok, failed := s.loads("ok"), s.loads("error")
		replace(t, dir, content)
		testenv.Eventually(t, 10*time.Second, "have change "+strconv.Itoa(i)+" of the rules noticed", func() string {
			if content == brokenRules && s.loads("error") > failed || content != brokenRules && s.loads("ok") > ok {
				return ""
			}
			return fmt.Sprintf("%v loads, %v failures", s.loads("ok"), s.loads("error"))
		})
	}
	if !strings.Contains(s.Log(), "fortnight") {
		t.Error("the log does not say what was wrong with the broken rules")
	}
}

func (s *service) loads(result string) float64 {
	s.t.Helper()
	return s.Metric("headgate_rules_loads_total", `result="`+result+`"`)
}
