package main

import (
	"strings"
	"testing"

	"github.com/headgate-rls/headgate/ratelimit/httpapi"
)

// A domain that no rules have is named by each command that a person asks: with its calls, what may be meant, and exit
// code 3 where the question was about it.
func TestUnknownDomainsAreNamed(t *testing.T) {
	t.Setenv("HEADGATE_ADMIN_TOKEN", adminToken)
	file := writeRules(t, sharedRules)
	r := startServe(t, "--rules", file)
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"ask exampel client=a --rules " + file, exitNo,
			`"exampel": no such domain; there are: "example"; did you mean "example"?`},
		{"explain exampel client=a --rules " + file, exitNo, `no such domain; there are: "example"`},
		{"coverage --addr " + r.HTTP, exitOK, "nothing was asked"},
		{"ask exampel client=a --addr " + r.GRPC, exitNo,
			`"exampel": no such domain; there are: "example"; did you mean "example"?`},
		{"coverage --addr " + r.HTTP, exitOK, `NO RULES have the domain "exampel" (did you mean "example"?): 1 call since `},
		{"status --addr " + r.HTTP, exitOK, `NO RULES have the domain "exampel" (did you mean "example"?): 1 call since `},
		{"explain exampel client=a --addr " + r.HTTP, exitNo, `rule      none: no such domain; there are: "example"`},
		{"explain exampel client=a --addr " + r.HTTP, exitNo, `domain    no rules have the domain "exampel"`},
	} {
		if code, out := headgate(t, strings.Fields(c.args)...); code != c.code || !strings.Contains(out, c.want) {
			t.Errorf("%s: exit code %d, want %d, and %q in\n%s", c.args, code, c.code, c.want, out)
		}
	}
}

// ask says which tier of a rule with concurrency decides, and what it does: the status of a refusal, or the delay.
func TestAskNamesTheTier(t *testing.T) {
	args := "ask shop method=POST,path=/api/heavy-operation -n 6 --rules ../../examples/inflight/heavy.yaml"
	code, out := headgate(t, strings.Fields(args)...)
	for _, want := range []string{"OK         delay=1s [", " tier=", " status=503 ["} {
		if code != exitNo || !strings.Contains(out, want) {
			t.Errorf("exit code %d, %q is not in\n%s", code, want, out)
		}
	}
	if strings.Count(out, "delay=1s") != 3 {
		t.Errorf("three of five that pass are delayed:\n%s", out)
	}
}

// While most calls meet no rule, the first word of status is not a plain ready.
func TestStatusSaysThatMostCallsMeetNoRule(t *testing.T) {
	for percent, want := range map[float64]string{0: "ready, headgate v1\n", 50: "ready, headgate v1\n",
		97.5: "ready, but 97.5% of calls meet no rule and are not limited, headgate v1\n"} {
		s := httpapi.StatusAnswer{Status: "READY", Version: "v1"}
		s.Traffic.UnmatchedPercent = percent
		var out strings.Builder
		if err := showStatus(&out, s); err != nil || !strings.HasPrefix(out.String(), want) {
			t.Errorf("%v%%: %v, %s", percent, err, out.String())
		}
	}
}
