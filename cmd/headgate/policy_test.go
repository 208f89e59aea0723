//go:build !rlsonly

package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/headgate-rls/headgate/policies/table"
	"github.com/headgate-rls/headgate/test/testenv"
)

// policyDB is the URL of a new, migrated database of policies.
func policyDB(t *testing.T) string {
	t.Helper()
	testenv.UseSQLite(t)
	url := "sqlite:" + filepath.Join(t.TempDir(), "policies.db")
	if code, out := headgate(t, "migrate", "--policies", url); code != 0 ||
		!strings.Contains(out, "policies: applied V2__history.sql") {
		t.Fatalf("%d %s", code, out)
	}
	return url
}

// TestPolicySetWhileServing is the quick start: a policy changes what a running service decides,
// and without it the rule's own limit holds again.
func TestPolicySetWhileServing(t *testing.T) {
	url := policyDB(t)
	s := startServe(t, "--example", "--policies", url)
	ask := func(client, n string) (refused int) {
		_, out := headgate(t, "ask", "example", "client="+client, "-n", n, "--addr", s.GRPC, "--timeout", "5s")
		return strings.Count(out, "OVER_LIMIT")
	}
	if refused := ask("bob", "12"); refused == 0 {
		t.Error("the rule's own limit refuses nothing")
	}
	policy := func(args ...string) string {
		t.Helper()
		code, out := headgate(t, append(append([]string{"policy"}, args...), "--policies", url)...)
		if code != 0 {
			t.Fatalf("policy %q: %d %s", args, code, out)
		}
		return out
	}
	if out := policy("set", "client:alice", "--limit", "2", "--window", "1h"); !strings.Contains(out,
		"+ client:alice sliding_window 2/1h version=1") {
		t.Errorf("set says %s", out)
	}
	if refused := ask("alice", "2"); refused != 0 {
		t.Errorf("%d of 2 requests are refused", refused)
	}
	if refused := ask("alice", "1"); refused == 0 {
		t.Error("the third request is admitted")
	}
	if out := policy("get", "client:alice"); !strings.Contains(out, "sliding_window 2/1h") {
		t.Errorf("get says %s", out)
	}
	if code, body := s.Get(s.Debug, "/metrics"); code != 200 || !strings.Contains(body, "headgate_policies 1\n") {
		t.Errorf("no metrics of policies: %d", code)
	}
	if code, body := s.Get(s.HTTP, "/readyz?verbose"); code != 200 || !strings.Contains(body, "policies: ok") {
		t.Errorf("readiness: %d %s", code, body)
	}
	policy("delete", "client:alice")
	if refused := ask("alice", "1"); refused != 0 {
		t.Error("the rule's own limit does not hold after the policy is gone")
	}
}

func TestPolicyRulesWithoutADatabase(t *testing.T) {
	rules := writeRules(t, "domain: d\ndescriptors:\n- {key: a, policy: \"a:{a}\", rate_limit: {unit: day, "+
		"requests_per_unit: 1}}\n")
	s := startServe(t, "--rules", rules)
	if !strings.Contains(s.Log.String(), "--policies is not set") {
		t.Errorf("the log says %s", s.Log)
	}
}

// TestPoliciesWithoutTheirDatabase: a service that starts without the database is not ready, and
// decides by the rules' own limits.
func TestPoliciesWithoutTheirDatabase(t *testing.T) {
	s := startServe(t, "--example", "--policies", "postgres://headgate@127.0.0.1:1/policies")
	if code, body := s.Get(s.HTTP, "/readyz"); code != 503 || !strings.Contains(body, "policies: have not been read") {
		t.Errorf("readiness: %d %s", code, body)
	}
	if code, out := headgate(t, "ask", "example", "client=alice", "--addr", s.GRPC, "--timeout", "5s"); code != 0 {
		t.Errorf("%d %s", code, out)
	}
	if !strings.Contains(s.Log.String(), "rules decide by their own limits") {
		t.Errorf("the log says %s", s.Log)
	}
}

func TestPolicyFiles(t *testing.T) {
	url := policyDB(t)
	file := filepath.Join(t.TempDir(), "policies.csv")
	write := func(lines ...string) {
		t.Helper()
		text := strings.Join(append([]string{"key,type,capacity,refillRate,windowSeconds"}, lines...), "\n") + "\n"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := func(want string, wantCode int, args ...string) {
		t.Helper()
		code, out := headgate(t, append(append([]string{"policy"}, args...), "--policies", url)...)
		if code != wantCode || !strings.Contains(out, want) {
			t.Errorf("policy %q: %d %s\nwant %d %s", args, code, out, wantCode, want)
		}
	}
	write("user:alice,TOKEN_BUCKET,100,10,60", "user:a b,SLIDING_WINDOW,2,0,0.5", "*,FIXED_WINDOW,0,0,60")
	run("3 would be made", 0, "import", file, "--dry-run")
	run("key,algorithm,limit,window,rate,burst\n", 0, "export")
	run("3 made, 0 changed, 0 removed", 0, "import", file)
	all := "key,algorithm,limit,window,rate,burst\n*,fixed_window,0,1m,,\nuser:a%20b,sliding_log,2,500ms,,\n" +
		"user:alice,token_bucket,,,10/s,100\n"
	run(all, 0, "export")
	if err := os.WriteFile(file, []byte(all), 0o600); err != nil {
		t.Fatal(err)
	}
	run("0 made, 0 changed, 0 removed", 0, "import", file, "--replace")
	write("user:alice,TOKEN_BUCKET,50,10,60")
	run("0 made, 1 changed, 2 removed", 0, "import", file, "--replace")
	run("user:alice token_bucket 10/1s burst 50", 0, "list", "--prefix", "user:")
	for line, want := range map[string]string{
		"user:b,LEAKY,1,1,1":             "policies.csv:3:8: type \"LEAKY\" is unknown",
		"user:b,FIXED_WINDOW,-1,0,60":    "policies.csv:3:21: capacity -1 is negative",
		"user:b,FIXED_WINDOW,x,0,60":     "policies.csv:3:21: capacity \"x\"",
		"user:b,FIXED_WINDOW,1,0,0.001x": "policies.csv:3:25: windowSeconds \"0.001x\"",
		"user:b,FIXED_WINDOW,1,0":        "wrong number of fields",
		"%zz,FIXED_WINDOW,1,0,60":        "policies.csv:3:1: the key has",
		"user:c,FIXED_WINDOW,1,0,60":     "there twice",
	} {
		write("user:c,FIXED_WINDOW,9,0,60", line)
		run(want, 1, "import", file)
	}
	for _, dump := range []string{ // of a table as this program has it, whose words are the older ones
		"id,policy_key,type,capacity,refill_rate,window_seconds\n7,user:d,TOKEN_BUCKET,20,5,60\n",
		"id\tpolicy_key\ttype\tcapacity\trefill_rate\twindow_seconds\n7\tuser:d\tTOKEN_BUCKET\t20\t5\t60\n",
	} {
		if err := os.WriteFile(file, []byte(dump), 0o600); err != nil {
			t.Fatal(err)
		}
		run("+ user:d token_bucket 5/1s burst 20", 0, "import", file)
		run("removed", 0, "delete", "user:d")
	}
	for text, want := range map[string]string{
		"key,id,algorithm,limit,window\na,1,fixed_window,1,1s\n": "policies.csv:1: the columns are",
		"window,key,limit,algorithm\n1s,a,1,fixed_window\n5x,b,1,fixed_window\n": "policies.csv:3:1: " +
			"window \"5x\": is not a duration",
		"key,algorithm,limit,window\n" +
			"a,sliding_window,x,1s\n": "policies.csv:2:18: limit \"x\"",
		"key,algorithm,limit,window,type,capacity,windowSeconds\n" +
			"a,fixed_window,1,1s,FIXED_WINDOW,2,1": "policies.csv:2:16: limit 1 and capacity 2 contradict each other",
		"key,algorithm,capacity,windowSeconds\na,fixed_window,1,1\n": "policies.csv:2:3: algorithm is mixed with older words",
		"key,algorithm,limit,windows\n":                              "policies.csv:1: the columns are",
		"key,limit,limit\n":                                          "policies.csv:1: the columns are",
		"algorithm,limit,window\n":                                   "policies.csv:1: there is no column key",
		"key,algorithm\na,token_bucket\n":                            "policies.csv:2:1: rate is missing",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		run(want, 1, "import", file)
	}
	run("user:c: there is no such policy", 3, "get", "user:c")
	for want, args := range map[string][]string{
		"--limit is missing":                          {"set", "a"},
		"--window is missing":                         {"set", "a", "--limit", "1"},
		"--window \"soon\"":                           {"set", "a", "--limit", "1", "--window", "soon"},
		"--rate \"-1/s\"":                             {"set", "a", "--rate", "-1/s"},
		"--rate \"100/min\" is not a multiple of 0.0": {"set", "a", "--rate", "100/min"},
		"--burst is there, and sliding_log has none": {"set", "a", "--limit", "1", "--window", "1m", "--burst", "1",
			"--algorithm", "sliding_log"},
		"--algorithm \"leaky\" is unknown": {"set", "a", "--limit", "1", "--window", "1m", "--algorithm", "leaky"},
		"use only one set":                 {"set", "a", "--capacity", "1", "--rate", "1/s"},
		"--windowSeconds":                  {"set", "a", "--windowSeconds", "1"},
		"--capacity \"x\" is not":          {"set", "a", "--capacity", "x", "--window", "1m"},
		"--capacity is missing":            {"set", "a", "--refill", "1"},
		"--refill \"-1\"":                  {"set", "a", "--capacity", "1", "--refill", "-1"},
		"only token_bucket":                {"set", "a", "--capacity", "1", "--refill", "1", "--algorithm", "sliding_log"},
		"--algorithm \"Leaky\" is unknown": {"set", "a", "--capacity", "1", "--window", "1m", "--algorithm", "Leaky"},
	} {
		run(want, 1, args...)
	}
	run("there is no such policy", 3, "delete", "a")
	run("+ new sliding_log 3/1m version=1", 0, "set", "new", "--algorithm", "sliding_log", "--rate", "3/min")
	run("+ new token_bucket 100/1s burst 250 version=2", 0, "set", "new", "--rate", "100/s", "--burst", "250")
	run("+ new token_bucket 1/2s burst 50 version=3", 0, "set", "new", "--capacity", "50", "--refill", "0.5",
		"--window", "1m")
	run("+ new sliding_window 4/24h version=4", 0, "set", "new", "--capacity", "4", "--window", "1d")
	run("0 changed", 0, "set", "new", "--limit", "4", "--window", "24h")
}

// TestPolicyJSONFiles: what export prints import reads, with the same result, and a file with one
// mistake changes nothing and tells its place.
func TestPolicyJSONFiles(t *testing.T) {
	url := policyDB(t)
	file := filepath.Join(t.TempDir(), "policies.json")
	run := func(want string, wantCode int, args ...string) {
		t.Helper()
		code, out := headgate(t, append(append([]string{"policy"}, args...), "--policies", url)...)
		if code != wantCode || !strings.Contains(out, want) {
			t.Errorf("policy %q: %d %s\nwant %d %s", args, code, out, wantCode, want)
		}
	}
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run("[]\n", 0, "export", "--format", "json")
	write(` [{"key":"user:alice","type":"TOKEN_BUCKET","capacity":100,"refillRate":0.5},
 {"key":"user:a b","type":"SLIDING_WINDOW","capacity":2,"refillRate":0,"windowSeconds":0.5}]`)
	run("2 would be made", 0, "import", file, "--dry-run")
	run("[]\n", 0, "export", "--format", "json")
	run("2 made, 0 changed, 0 removed", 0, "import", file)
	all := `[
{"key":"user:a%20b","algorithm":"sliding_log","limit":2,"window":"500ms"},
{"key":"user:alice","algorithm":"token_bucket","rate":"1/2s","burst":100}
]
`
	run(all, 0, "export", "--format", "json")
	write(all)
	run("0 made, 0 changed, 0 removed", 0, "import", file, "--replace")
	write(`[{"key":"user:bob","type":"FIXED_WINDOW","capacity":1,"windowSeconds":60}]`)
	run("1 made, 0 changed, 2 removed", 0, "import", file, "--replace")
	write(`[{"id":7,"key":"user:bob","algorithm":"fixed_window","limit":1,"window":"1m","policyKey":"user:bob",
		"type":"FIXED_WINDOW",
		"capacity":1,"refillRate":0,"windowSeconds":60,"version":3,"changedBy":"x",
		"changedAt":"2026-01-01T00:00:00.000000Z"}]`)
	run("0 made, 0 changed, 0 removed", 0, "import", file, "--replace") // as the admin API answers it
	run("must be csv or json", 1, "export", "--format", "xml")
	for element, want := range map[string]string{
		`{"key":"a","type":"FIXED_WINDOW","capacity":1,"windows":60}`: "policies.json:3:2: " +
			"windows is an unknown field",
		`{"key":"a","key":"b","type":"FIXED_WINDOW","capacity":1,"windowSeconds":60}`: "policies.json:3:2: " +
			"key is there twice",
		`{"Key":"a","type":"FIXED_WINDOW","capacity":1,"windowSeconds":60}`: "did you mean",
		`{"type":"FIXED_WINDOW","capacity":1,"windowSeconds":60}`:           "policies.json:3:2: key is missing",
		`{"key":"a","type":"FIXED_WINDOW","capacity":-1,"windowSeconds":60}`: "policies.json:3:2: " +
			"capacity -1 is negative",
		`{"key":"a","type":"FIXED_WINDOW","capacity":"1","windowSeconds":60}`: "capacity must be a whole number",
		`{"key":"a","type":"FIXED_WINDOW","capacity":1,"windowSeconds":"60"}`: "policies.json:3:2: windowSeconds",
		`{"key":"a","type":"LEAKY","capacity":1,"windowSeconds":60}`: "policies.json:3:2: " +
			"type \"LEAKY\" is unknown",
		`{"key":"%zz","type":"FIXED_WINDOW","capacity":1,"windowSeconds":60}`:    "policies.json:3:2: the key has",
		`{"key":"user:c","type":"FIXED_WINDOW","capacity":1,"windowSeconds":60}`: "there twice",
		`{"key":"a","type":"FIXED_WINDOW","capacity":1,"window":"1m"}`: "policies.json:3:2: " +
			"window is mixed with older words",
		`{"key":"a","algorithm":"fixed_window","limit":1,"window":"0s"}`: "policies.json:3:2: window 0s is less than 1ms",
		`7`:      "policies.json:3:2: the body must be an object",
		`{"key"`: "policies.json:",
	} {
		write("[{\"key\":\"user:c\",\"type\":\"FIXED_WINDOW\",\"capacity\":9,\"windowSeconds\":60}\n,\n " + element + "]")
		run(want, 1, "import", file)
	}
	for text, want := range map[string]string{
		"[": "policies.json:1:2: EOF", "[]\n[]": "policies.json:2:2: something follows the array",
		"[\n{]": "policies.json:2:1: invalid character",
	} {
		write(text)
		run(want, 1, "import", file)
	}
	run(`[
{"key":"user:bob","algorithm":"fixed_window","limit":1,"window":"1m"}
]`, 0, "export", "--format", "json")
}

// TestPolicyHistory: who changed user:alice's limit, when, from what to what, and back as it was.
func TestPolicyHistory(t *testing.T) {
	url := policyDB(t)
	run := func(want string, wantCode int, args ...string) string {
		t.Helper()
		code, out := headgate(t, append(append([]string{"policy"}, args...), "--policies", url)...)
		if code != wantCode || !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("policy %q: %d %s\nwant %d %s", args, code, out, wantCode, want)
		}
		return out
	}
	run(`^$`, 0, "history")
	run(`^\[\]\n$`, 0, "history", "user:alice", "--format", "json")
	t.Setenv("USER", "alice")
	run("1 made", 0, "set", "user:alice", "--limit", "2", "--window", "1m")
	t.Setenv("USER", "eve\n9 2026-01-01T00:00:00Z user:alice by=admin-token: \x1b[31m")
	run("1 changed", 0, "set", "user:alice", "--rate", "1/2s", "--burst", "50")
	run("would be changed", 0, "set", "user:alice", "--limit", "99", "--window", "1m", "--dry-run")
	t.Setenv("USER", "bob")
	run("1 made", 0, "set", "user:a b", "--limit", "1", "--window", "1m")
	run("1 removed", 0, "delete", "user:alice")
	const at = ` 20[0-9-]{8}T[0-9:]{8}Z `
	alice := "4" + at + `user:alice by=shell:bob: token_bucket 1/2s burst 50 version=2 -> none\n` +
		"2" + at + `user:alice by="shell:eve\\n9 2026[^\n]*\\x1b\[31m": sliding_window 2/1m version=1 -> ` +
		`token_bucket 1/2s burst 50 version=2\n` +
		"1" + at + `user:alice by=shell:alice: none -> sliding_window 2/1m version=1\n$`
	run("^"+alice, 0, "history", "user:alice")
	run("^4"+at+"user:alice [^\n]*\n3"+at+`user:a%20b by=shell:bob: none -> [^\n]*\n$`, 0, "history", "--limit", "2")
	run("^3"+at+`user:a%20b `, 0, "history", "user:a b", "--limit", "0")
	run(`^\[\n\{"number":4,"generation":4,"key":"user:alice","policyKey":"user:alice","changedBy":"shell:bob",`+
		`"changedAt":"20[^"]*Z",`+
		`"before":\{"algorithm":"token_bucket","rate":"1/2s","burst":50,"type":"TOKEN_BUCKET","capacity":50,`+
		`"refillRate":0\.5,"windowSeconds":0,"version":2\},"after":null\}\n\]\n$`,
		0, "history", "user:alice", "--limit", "1", "--format", "json")
	for want, args := range map[string][]string{
		"--limit":               {"history", "--limit", "-1"},
		"must be text or json":  {"history", "--format", "xml"},
		"the key has":           {"history", "%zz"},
		"one argument too many": {"history", "a", "b"},
	} {
		run(want, 1, args...)
	}
}

// TestShellUserIsAText: whatever the environment has for it, the database can store it.
func TestShellUserIsAText(t *testing.T) {
	for _, name := range []string{"al\xffice", strings.Repeat("é", table.MaxChangedBy), "alice"} {
		t.Setenv("USER", name)
		if got := shellUser(); len(got) > table.MaxChangedBy || !utf8.ValidString(got) ||
			!strings.HasPrefix(got, "shell:") {
			t.Errorf("%.20q is %q", name, got)
		}
	}
}

// TestPolicyOfARunningService: without a database headgate policy asks the service, and prints the same.
func TestPolicyOfARunningService(t *testing.T) {
	url := policyDB(t)
	t.Setenv("HEADGATE_POLICIES", "")
	t.Setenv("HEADGATE_ADMIN_TOKEN", adminToken)
	s := startServe(t, "--example", "--policies", url)
	t.Setenv("HEADGATE_HTTP", s.HTTP)
	run := func(want string, code int, args ...string) {
		t.Helper()
		if got, out := headgate(t, append([]string{"policy"}, args...)...); got != code || !strings.Contains(out, want) {
			t.Errorf("policy %q: %d %s\nwant %d %s", args, got, out, code, want)
		}
	}
	run("1 would be made", 0, "set", "client:alice", "--limit", "2", "--window", "1m", "--dry-run")
	run("there is no such policy", 3, "get", "client:alice")
	run("+ client:alice sliding_window 2/1m version=1 by=admin-token\n1 made", 0, "set", "client:alice",
		"--limit", "2", "--window", "1m")
	if code, out := headgate(t, "ask", "example", "client=alice", "-n", "3", "--addr", s.GRPC); code != exitOverLimit {
		t.Errorf("the policy is not in force: %s", out)
	}
	run("- client:alice sliding_window 2/1m version=1", 0, "set", "client:alice", "--rate", "5/s", "--burst",
		"9")
	run("client:alice token_bucket 5/1s burst 9 version=2 by=admin-token\n", 0, "list", "--addr", "http://"+s.HTTP)
	run("client:alice by=admin-token: none -> sliding_window 2/1m version=1", 0, "history", "client:alice")
	run("1 removed", 0, "delete", "client:alice")
	run("there is no such policy", 3, "delete", "client:alice")
	const unused = "warning: user:bob: no rule in force uses this policy"
	run(unused, 0, "set", "user:bob", "--limit", "2", "--window", "1m", "--dry-run")
	run(unused, 0, "set", "user:bob", "--limit", "2", "--window", "1m")
	if _, out := headgate(t, "policy", "set", "user:dan", "--limit", "2", "--window", "1m"); strings.Count(out,
		"warning") != 1 {
		t.Errorf("the warning is there more than once: %s", out)
	}
	run(unused, 0, "set", "user:bob", "--limit", "3", "--window", "1m", "--format", "json")
	if code, out := headgate(t, "policy", "set", "client:carol", "--limit", "2", "--window", "1m"); code != 0 ||
		strings.Contains(out, "warning") {
		t.Errorf("a policy that a rule uses has a warning: %d %s", code, out)
	}
	run("--limit is missing", 1, "set", "a")
	off := startServe(t, "--example")
	run("policies are off", 2, "get", "a", "--addr", "http://"+off.HTTP)
	t.Setenv("HEADGATE_HTTP", "127.0.0.1:1")
	run("--policies names the database instead", 2, "get", "a")
	file := filepath.Join(t.TempDir(), "none.csv")
	run("headgate: open "+file+": no such file or directory\n", 2, "import", file)
}

// TestPolicyOfARuleByItsName: the name of a rule, as headgate rules and top print it, is the key of a policy that
// holds, or the command says once why no policy can hold there, and makes none.
func TestPolicyOfARuleByItsName(t *testing.T) {
	rules := writeRules(t, `
domain: shop
descriptors:
- {key: used, policy: "u:{used}", limits: [{name: day, algorithm: fixed_window, limit: 100, window: 1d}]}
- {key: plain, limits: [{name: day, algorithm: fixed_window, limit: 100, window: 1d}]}
- {key: percent%, rate_limit: {unit: day, requests_per_unit: 100}}
- {key: two, limits: [{name: a, algorithm: fixed_window, limit: 100, window: 1d},
    {name: b, algorithm: fixed_window, limit: 100, window: 1h}]}
resources:
- {path: /login, rate_limit: {unit: day, requests_per_unit: 100}}
`)
	s := startServe(t, "--rules", rules, "--policies", policyDB(t), "--admin-token", adminToken)
	t.Setenv("HEADGATE_ADMIN_TOKEN", adminToken)
	t.Setenv("HEADGATE_HTTP", s.HTTP)
	const none = "this rule has no policy: field"
	_, printed := headgate(t, "rules")
	for _, c := range []struct{ name, says string }{
		{"shop/used:day", ""},
		{"shop/plain:day", none + "; add policy: KEY:{KEY} to it, with a key of its descriptor as KEY\n"},
		{"shop/percent%", none + "; add "},
		{"shop/two:a", none + ", and cannot have one: a policy takes the place of a rule's only limit\n"},
		{"shop/*:/login", "this rule is a resource, and policies take the place of limits of descriptors only"},
	} {
		if !strings.Contains(printed, "\n"+c.name+" ") {
			t.Errorf("no rule is printed as %s:\n%s", c.name, printed)
		}
		name := strings.NewReplacer("%", "%25", "*", "%2A").Replace(c.name)
		for _, more := range [][]string{{"--dry-run"}, nil} {
			code, out := headgate(t, append([]string{"policy", "set", strings.ReplaceAll(c.name, "%", "%25"), "--limit", "2",
				"--window", "1d"}, more...)...)
			switch {
			case c.says == "" && (code != exitOK || strings.Contains(out, "warning")):
				t.Errorf("set %s %v: %d %s", name, more, code, out)
			case c.says != "" && (code != exitNo || strings.Count(out, "this rule") != 1 || strings.Contains(out, "made") ||
				!strings.HasPrefix(out, "headgate: "+name+": "+c.says)):
				t.Errorf("set %s %v: %d %s, want %d %s", name, more, code, out, exitNo, c.says)
			}
		}
	}
	if code, out := headgate(t, "ask", "shop", "used=1", "-n", "3", "--addr", s.GRPC); code != exitOverLimit {
		t.Errorf("the policy of a rule's name does not hold: %d %s", code, out)
	}
	if code, out := headgate(t, "policy", "list"); code != exitOK || strings.Count(out, "\n") != 1 {
		t.Errorf("%d policies are there, want one:\n%s", code, out)
	}
}
