//go:build !rlsonly

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestExitCodesOfTest(t *testing.T) {
	dir := filepath.Dir(writeRules(t,
		"domain: d\ndescriptors: [{key: a, rate_limit: {unit: minute, requests_per_unit: 1}}]\n"))
	write := func(name, want string) string {
		file := filepath.Join(dir, name)
		text := "rules: rules.yaml\ntests:\n- name: one\n  steps: [{ask: a=1, times: 2, " + want + "}]\n"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	good, bad, wrong := write("good.yaml", "refused: 1"), write("bad.yaml", "want: OK"), write("wrong.yaml", "wants: 1")
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{good}, exitOK, "ok   " + good + ": 1 test, 1 step, 2 requests"},
		{[]string{good, bad}, exitNo, "FAIL " + bad},
		{[]string{wrong}, exitProblems, "field wants not found"},
		{[]string{good, "--run", "two"}, exitProblems, `no test has "two" in its name`},
		{[]string{filepath.Join(dir, "none.yaml")}, exitError, "no such file"},
		{[]string{good, "--format", "xml"}, exitProblems, "--format must be text, json or junit"},
		{nil, exitProblems, "arguments are missing"},
	} {
		code, out := headgate(t, append([]string{"test"}, c.args...)...)
		if code != c.code || !strings.Contains(out, c.says) {
			t.Errorf("test %v exits with %d, want %d and %q:\n%s", c.args, code, c.code, c.says, out)
		}
	}
}
