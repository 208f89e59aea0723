package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/headgate-rls/headgate/internal/app/config"
	"github.com/headgate-rls/headgate/test/testenv"
)

// leaves returns the commands that do something, by their names without "headgate".
func leaves(cmd *cobra.Command) map[string]*cobra.Command {
	all := map[string]*cobra.Command{}
	for _, sub := range cmd.Commands() {
		if sub.HasSubCommands() {
			for name, leaf := range leaves(sub) {
				all[name] = leaf
			}
			continue
		}
		all[strings.TrimPrefix(sub.CommandPath(), "headgate ")] = sub
	}
	return all
}

// unformatted are the commands whose output has a form of its own: a log, a configuration, a capture, a text.
var unformatted = []string{"serve", "ratelimit", "envoy", "capture", "help"}

// noService are the commands that ask no service: they are one, or are about files, a database or themselves.
var noService = []string{"serve", "ratelimit", "envoy", "check", "test", "replay", "migrate", "slots reconcile",
	"version", "help"}

// TestCommandsAreOneFamily: every command has --format, and those that ask a service have --addr. Shells complete each
// flag that is one of several words. docs/commands.md has each command.
func TestCommandsAreOneFamily(t *testing.T) {
	docs, err := os.ReadFile("../../docs/commands.md")
	if err != nil {
		t.Fatal(err)
	}
	all := leaves(rootCommand())
	for name, cmd := range all {
		format := cmd.Flags().Lookup("format")
		if has := format != nil && isEnum(format); has == slices.Contains(unformatted, name) {
			t.Errorf("%s: has --format: %v", name, has)
		}
		if has := cmd.Flags().Lookup("addr") != nil; has == slices.Contains(noService, name) {
			t.Errorf("%s: has --addr: %v", name, has)
		}
		cmd.Flags().VisitAll(func(f *pflag.Flag) { completes(t, name, f) })
		if !regexp.MustCompile("(?m)^\\|.*`"+name+"[` ]").Match(docs) && !inGroup(string(docs), name) {
			t.Errorf("docs/commands.md has no row for %s", name)
		}
	}
	if len(all) < 30 {
		t.Errorf("only %d commands are found", len(all))
	}
}

// inGroup reports whether a row such as `policy set`, `get` names a command.
func inGroup(docs, name string) bool {
	group, sub, _ := strings.Cut(name, " ")
	for _, line := range strings.Split(docs, "\n") {
		last := "`" + sub[strings.LastIndexByte(sub, ' ')+1:] + "`"
		if strings.HasPrefix(line, "| `"+group+" ") && strings.Contains(line, last) {
			return true
		}
	}
	return false
}

var severalWords = regexp.MustCompile("^[a-z_]+(, [a-z_]+)* or [a-z_]+")

// completes: what a shell offers after --flag are values that the flag takes, if its help names them.
func completes(t *testing.T, command string, f *pflag.Flag) {
	t.Helper()
	words := []string(nil)
	if e, ok := f.Value.(*enum); ok {
		words = e.values
	} else if f.Value.Type() == "string" && !f.Hidden && severalWords.MatchString(f.Usage) {
		words = strings.FieldsFunc(f.Usage, func(r rune) bool { return r == ' ' || r == ',' })[:1]
	}
	for _, s := range config.Settings().Rows {
		if s.Name == f.Name && s.Words != nil && !f.Hidden && words == nil {
			words = slices.DeleteFunc(slices.Clone(s.Words), func(w string) bool { return w == "" })
		}
	}
	if words == nil {
		return
	}
	_, out := headgate(t, append(append([]string{"__complete"}, strings.Fields(command)...), "--"+f.Name, "")...)
	for _, w := range words {
		if !slices.Contains(strings.Split(out, "\n"), w) {
			t.Errorf("%s --%s: shells do not offer %s: %s", command, f.Name, w, out)
		}
	}
}

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

// TestAnswersAsJSON: with --format json, what a command prints is one JSON value, whose fields about time say their
// unit.
func TestAnswersAsJSON(t *testing.T) {
	testenv.UseSQLite(t)
	t.Setenv("HEADGATE_ADMIN_TOKEN", adminToken)
	database := "sqlite:" + filepath.Join(t.TempDir(), "headgate.db")
	rules := writeRules(t, "domain: d\ndescriptors: [{key: k, policy: \"user:{k}\", rate_limit: {unit: hour, "+
		"requests_per_unit: 1}}]\n")
	r := startServe(t, "--rules", rules, "--policies", database, "--slots", database, "--slots-seed", "1/PT24H")
	http, db := " --addr http://"+r.HTTP, " --slots "+database
	for _, c := range []struct{ args, want string }{
		{"ask d k=v -n 2 --addr " + r.GRPC, `"code":"OVER_LIMIT","rule":"d/k","limits":[{"descriptor":"k=v",` +
			`"code":"OVER_LIMIT","limit":"1/1h","left":0,"retry_after_ms":`},
		{"ask d other=v --rules " + rules, `[{"domain":"d","code":"OK","limits":[{"descriptor":"other=v","code":"OK",` +
			`"left":0}]}]`},
		{"ask d k=v --addr 127.0.0.1:1", `[]`},
		{"health --addr " + r.GRPC, `{"status":"SERVING"}`},
		{"slot e1 --at 2026-12-01T09:00:00Z" + http, `[{"status":200,"eventId":"e1","scheduledTime":"2026-12-0`},
		{"slots assign e1 " + strings.Repeat("x", 51) + http, `,{"status":400,"eventId":"xxx`},
		{"slots config list" + http, `[{"configId":`},
		{"slots config get default" + db, `"configName":"default","maxPerWindow":1,"windowSize":"PT24H"`},
		{"slots config set default --max 5" + db, `"maxPerWindow":5`},
		{"slots config pause default" + db, `"maxPerWindow":0,`},
		{"slots config pause default" + db, `"maxPerWindowBefore":0}`},
		{"slots reconcile" + db, `[]`},
		{"policy set user:v --limit 3 --window 1m" + http, `[{"key":"user:v","change":"made","before":null,"after":{"key":` +
			`"user:v","algorithm":"sliding_window","limit":3,"window":"1m","version":1,`},
		{"policy get user:v" + http, `{"key":"user:v","algorithm":"sliding_window","limit":3,"window":"1m","version":1,`},
		{"policy list --policies " + database, `[{"key":"user:v",`},
		{"policy history" + http, `"key":"user:v"`},
		{"policy delete user:v --policies " + database, `"change":"removed","before":{"key":"user:v",`},
		{"migrate --policies " + database, `[{"setting":"policies","applied":[]}]`},
		{"version", `{"version":`},
		{"check " + rules, `[]`},
		{"top" + http, `"retry_after_ms":`}, {"explain d k=v" + http, `"passes":`}, {"rules" + http, `"rule":"d/k"`},
		{"status" + http, `"status":"READY"`}, {"coverage" + http, `[`}, {"reloads" + http, `[`},
	} {
		_, out := headgate(t, append(strings.Fields(c.args), "--format", "json")...)
		answer, _, _ := strings.Cut(out, "\nheadgate: ") // an error on standard error
		var value any
		if err := json.Unmarshal([]byte(answer), &value); err != nil {
			t.Errorf("%s: %v: %s", c.args, err, out)
			continue
		}
		compact, _ := json.Marshal(json.RawMessage(answer))
		if !strings.Contains(string(compact), c.want) {
			t.Errorf("%s: %s, want %s", c.args, compact, c.want)
		}
		saysUnits(t, c.args, value)
	}
}

// aboutTime are the words in names of fields that are about lengths of time.
var aboutTime = regexp.MustCompile(`(?i)(retry|after|delay|duration|timeout|window|wait|age|elapsed|period|ttl)`)

// saysUnits finds fields about time that are numbers without a unit in their names.
func saysUnits(t *testing.T, command string, v any) {
	t.Helper()
	switch v := v.(type) {
	case map[string]any:
		for name, field := range v {
			if _, number := field.(float64); number && aboutTime.MatchString(name) &&
				!regexp.MustCompile(`(_ms|Ms|_seconds|Seconds|[pP]erWindow(Before)?|_percent)$`).MatchString(name) {
				t.Errorf("%s: %s is a number without a unit", command, name)
			}
			saysUnits(t, command, field)
		}
	case []any:
		for _, e := range v {
			saysUnits(t, command, e)
		}
	}
}

// TestSlotAndSlotsAssignDoTheSame, and slots config by the database does as by the service.
func TestSlotAndSlotsAssignDoTheSame(t *testing.T) {
	testenv.UseSQLite(t)
	t.Setenv("HEADGATE_ADMIN_TOKEN", adminToken)
	database := "sqlite:" + filepath.Join(t.TempDir(), "slots.db")
	r := startServe(t, "--slots", database, "--slots-seed", "5/PT4S")
	args := []string{"e1", "--at", "2026-12-01T09:00:00Z", "--addr", "http://" + r.HTTP}
	code, first := headgate(t, append([]string{"slot"}, args...)...)
	again, second := headgate(t, append([]string{"slots", "assign"}, args...)...)
	if code != exitOK || again != exitOK || strings.TrimSpace(first)+" replayed\n" != second {
		t.Errorf("slot: %d %s; slots assign: %d %s", code, first, again, second)
	}
	t.Setenv("HEADGATE_SLOTS", database)
	_, byDatabase := headgate(t, "slots", "config", "list")
	_, byService := headgate(t, "slots", "config", "list", "--addr", "http://"+r.HTTP)
	if byDatabase != byService || !strings.Contains(byDatabase, "default max=5 window=PT4S") {
		t.Errorf("by the database: %s; by the service: %s", byDatabase, byService)
	}
	if code, out := headgate(t, "slots", "config", "set", "letters", "--max", "7", "--window", "PT1H"); code != exitOK {
		t.Fatal(out)
	}
	if code, out := headgate(t, "slots", "config", "get", "letters", "--addr", "http://"+r.HTTP); code != exitOK ||
		!strings.Contains(out, "letters max=7 window=PT1H") {
		t.Errorf("the service has %d %s", code, out)
	}
	t.Setenv("HEADGATE_ADMIN_TOKEN", "") // the database needs none
	if code, out := headgate(t, "slots", "config", "set", "letters", "--max", "x"); code != exitProblems {
		t.Errorf("%d %s", code, out)
	}
	if code, out := headgate(t, "slots", "config", "pause", "letters"); code != exitOK ||
		!strings.Contains(out, "--max 7") {
		t.Errorf("%d %s", code, out)
	}
}

// TestHelpOfServeHasGroups: each setting is under the name of its group, once.
func TestHelpOfServeHasGroups(t *testing.T) {
	code, out := headgate(t, "serve", "--help")
	group := ""
	seen := map[string]string{}
	for _, line := range strings.Split(out, "\n") {
		if m := regexp.MustCompile("^([A-Z].*):$").FindStringSubmatch(line); m != nil {
			group = m[1]
		} else if m := regexp.MustCompile("^      --([a-z-]+)").FindStringSubmatch(line); m != nil {
			seen[m[1]] += group
		}
	}
	for _, s := range config.Settings().Rows {
		if code != exitOK || s.Group == "" || seen[s.Name] != s.Group {
			t.Errorf("--%s is in %q, want %q", s.Name, seen[s.Name], s.Group)
		}
	}
}
