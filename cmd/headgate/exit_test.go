//go:build !rlsonly

package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/headgate-rls/headgate/test/testenv"
)

// commandCodes has arguments of a command that lead to the exit codes 0, 1, 2 and 3.
type commandCodes struct {
	command string
	args    [4]string
}

// TestExitCodes of all commands: 0 yes, 1 the input is wrong, 2 it could not be done, 3 the answer is no. An
// argument of - is for a code that the command does not have, or that another test has.
func TestExitCodes(t *testing.T) {
	testenv.UseSQLite(t)
	t.Setenv("HEADGATE_ADMIN_TOKEN", adminToken)
	dir := t.TempDir()
	t.Chdir(dir)
	write := func(name, text string) {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("rules.yaml", "domain: d\ndescriptors: [{key: k, rate_limit: {unit: hour, requests_per_unit: 0}}, {key: many, "+
		"rate_limit: {unit: hour, requests_per_unit: 100}}]\n")
	write("bad.yaml", "domain: d\nnonsense: 1\n")
	write("good_test.yaml", "rules: [rules.yaml]\ntests: [{name: n, steps: [{at: 0s, ask: \"k=v\", "+
		"want: OVER_LIMIT}]}]\n")
	write("fails_test.yaml", "rules: [rules.yaml]\ntests: [{name: n, steps: [{at: 0s, ask: \"k=v\", want: OK}]}]\n")
	write("none.jsonl", "")
	write("capture.jsonl", `{"t":"2026-01-01T00:00:00Z","domain":"d","descriptors":[{"entries":[{"key":"k",`+
		`"value":"v"}]}],"code":"OK"}`+"\n")
	write("policies.csv", "key,algorithm,limit,window,rate,burst\nuser:b,fixed_window,1,1m,,\n")
	database := "sqlite:" + filepath.Join(dir, "headgate.db")
	r := startServe(t, "--rules", "rules.yaml", "--policies", database, "--slots", database, "--slots-seed", "1/PT24H")
	replace := strings.NewReplacer("HTTP", "http://"+r.HTTP, "GRPC", r.GRPC, "DB", database, "AWAY",
		"http://127.0.0.1:1", "NODB", "sqlite:"+filepath.Join(dir, "none", "x.db"))
	const db, no = " --policies DB", " --policies NODB"
	codes := []commandCodes{
		{"serve", [4]string{"-", "--bakend memory://", "--rules rules.yaml --grpc 192.0.2.1:1", "-"}},
		{"ratelimit", [4]string{"--version", "-", "-", "-"}},
		{"ask", [4]string{"d many=v --addr GRPC", "d k --addr GRPC", "d k=v --addr 127.0.0.1:1",
			"d k=v --addr GRPC"}},
		{"health", [4]string{"--addr GRPC", "--adr x", "-", "-"}},
		{"top", [4]string{"--addr HTTP", "--by all", "--addr AWAY", "-"}},
		{"explain", [4]string{"d many=v --addr HTTP", "d k --addr HTTP", "d k=v --addr AWAY", "d k=v --addr HTTP"}},
		{"rules", [4]string{"--addr HTTP", "--rules bad.yaml", "--addr AWAY", "-"}},
		{"status", [4]string{"--addr HTTP", "--addr nowhere", "--addr AWAY", "-"}},
		{"coverage", [4]string{"--addr HTTP", "--format xml", "--addr AWAY", "-"}},
		{"reloads", [4]string{"--addr HTTP", "extra", "--addr AWAY", "-"}},
		{"diff", [4]string{"-", "--since x", "--addr AWAY", "-"}},
		{"capture", [4]string{"--for 1s --addr HTTP", "--sample 7 --for 1s --addr HTTP", "--addr AWAY", "-"}},
		{"check", [4]string{"rules.yaml", "bad.yaml", "none.yaml", "-"}},
		{"test", [4]string{"good_test.yaml", "bad.yaml", "none.yaml", "fails_test.yaml"}},
		{"replay", [4]string{"--rules rules.yaml --against rules.yaml capture.jsonl", "--rules bad.yaml capture.jsonl",
			"--rules rules.yaml none", "--rules rules.yaml capture.jsonl"}},
		{"envoy", [4]string{"rules.yaml --partial", "bad.yaml", "none.yaml", "-"}},
		{"policy set", [4]string{"user:a --limit 1 --window 1m" + db, "user:a --limit x" + db,
			"user:a --limit 1 --window 1m" + no, "-"}},
		{"policy get", [4]string{"user:a" + db, "a b" + db, "user:a" + no, "user:none" + db}},
		{"policy list", [4]string{"--addr HTTP", "extra" + db, "--addr AWAY", "-"}},
		{"policy history", [4]string{"--addr HTTP", "--limit -1" + db, "--addr AWAY", "-"}},
		{"policy export", [4]string{db, "--format text" + db, no, "-"}},
		{"policy import", [4]string{"policies.csv" + db, "bad.yaml" + db, "none.csv" + db, "-"}},
		{"policy delete", [4]string{"user:a" + db, "a b" + db, "user:a" + no, "user:none" + db}},
		{"slot", [4]string{"e1 --addr HTTP", "e --at noon --addr HTTP", "e --addr AWAY", "-"}},
		{"slots assign", [4]string{"e1 e1 --addr HTTP", "e --config none --addr HTTP", "e --addr AWAY", "-"}},
		{"slots reconcile", [4]string{"--slots DB", "--from noon --slots DB", "--slots NODB", "-"}},
		{"slots config list", [4]string{"--addr HTTP", "--slots DB --addr HTTP", "--slots NODB",
			"-"}},
		{"slots config get", [4]string{"default --slots DB", "--slots DB", "default --slots NODB", "none --slots DB"}},
		{"slots config set", [4]string{"default --max 2 --slots DB", "default --window x --slots DB",
			"default --max 1 --addr AWAY", "-"}},
		{"slots config pause", [4]string{"default --addr HTTP", "a b", "default --slots NODB", "none --slots DB"}},
		{"slot", [4]string{"-", "-", "-", "e9 --addr HTTP"}}, // paused
		{"migrate", [4]string{"--policies DB", "--format x", "--slots mysql://a@127.0.0.1:1/b", "-"}},
		{"version", [4]string{"--format json", "extra", "-", "-"}},
		{"help", [4]string{"slots config", "misspelt", "-", "-"}},
	}
	for name := range leaves(rootCommand()) {
		if !slices.ContainsFunc(codes, func(c commandCodes) bool { return c.command == name }) {
			t.Errorf("%s has no row here", name)
		}
	}
	for _, c := range codes {
		for code, args := range c.args {
			if args == "-" {
				continue
			}
			if got, out := headgate(t, strings.Fields(c.command+" "+replace.Replace(args))...); got != code {
				t.Errorf("%s %s: exit code %d, want %d: %s", c.command, args, got, code, out)
			}
		}
	}
}
