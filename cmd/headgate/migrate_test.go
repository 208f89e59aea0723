//go:build !rlsonly

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate-rls/headgate/test/testenv"
)

const fivePerYear = `domain: shop
descriptors:
  - {key: client, limits: [{algorithm: token_bucket, rate: 5/8760h}]}
  - {key: path, concurrency: [{threshold: 2, response: {statusCode: 429}}]}
`

// headgate migrate makes the schemas of slots and limits in one database, in which a service with the
// rights on data only then keeps both.
func TestBothSchemasInOneDatabase(t *testing.T) {
	for _, engine := range []string{testenv.Postgres, testenv.MariaDB} {
		t.Run(engine, func(t *testing.T) {
			url := testenv.SharedDatabase(t, engine).CreateDatabase("both")
			code, out := headgate(t, "migrate", "--slots", url, "--backend", url)
			if code != exitOK || !strings.Contains(out, "slots: applied V1__") ||
				!strings.Contains(out, "backend: applied V1__state.sql") {
				t.Fatalf("%d %s", code, out)
			}
			if code, out := headgate(t, "migrate", "--slots", url, "--backend", url); code != exitOK ||
				strings.Count(out, "up to date") != 2 {
				t.Errorf("again: %d %s", code, out)
			}
			r := startServe(t, "--slots", url, "--slots-migrate=false", "--slots-seed", "2/PT4S",
				"--backend", url, "--backend-migrate=false", "--rules", writeRules(t, fivePerYear))
			r.Slot("e1")
			code, out = headgate(t, "ask", "shop", "client=a", "-n", "6", "--addr", r.GRPC)
			if code != exitOverLimit || strings.Count(out, "OVER_LIMIT rule=") != 1 {
				t.Errorf("%d %s", code, out)
			}
			if code, out := headgate(t, "ask", "shop", "client=a", "--rules", writeRules(t, fivePerYear), "--backend",
				url); code != exitOverLimit {
				t.Errorf("another process does not see the count: %d %s", code, out)
			}
		})
	}
}

// A service makes its table in DynamoDB, counts there what it is asked over gRPC, and others see the
// count. The credentials come from the environment.
func TestServeKeepsLimitsInDynamoDB(t *testing.T) {
	for _, v := range testenv.DynamoCredentials() {
		name, value, _ := strings.Cut(v, "=")
		t.Setenv(name, value)
	}
	// What a busy machine delays is no failure.
	url, rules := testenv.DynamoTable(testenv.SharedDynamoDB(t).URL, "served")+"&timeout=20s", writeRules(t, fivePerYear)
	r := startServe(t, "--backend", url, "--backend-timeout", "20s", "--rules", rules)
	if code, out := headgate(t, "ask", "shop", "client=a", "-n", "6", "--addr", r.GRPC, "--timeout",
		"20s"); code != exitOverLimit || strings.Count(out, "OVER_LIMIT rule=") != 1 {
		t.Errorf("%d %s", code, out)
	}
	if code, out := headgate(t, "ask", "shop", "client=a", "--rules", rules, "--backend", url, "--timeout",
		"20s"); code != exitOverLimit {
		t.Errorf("another process does not see the count: %d %s", code, out)
	}
	if code, out := headgate(t, "migrate", "--backend", url); code != exitOK || !strings.Contains(out, "up to date") {
		t.Errorf("%d %s", code, out)
	}
	if code, out := headgate(t, "migrate", "--print", "--backend", url); code != exitOK ||
		!strings.Contains(out, "AWS::DynamoDB::Table") {
		t.Errorf("%d %s", code, out)
	}
}

// A service brings the schema of its limits up to date at the start, unless it must not.
func TestServeMigratesTheBackend(t *testing.T) {
	testenv.UseSQLite(t)
	file := filepath.Join(t.TempDir(), "limits.db")
	url := "sqlite:" + file
	rules := writeRules(t, fivePerYear)
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if code, out := headgate(t, "ask", "shop", "client=a", "--rules", rules, "--backend", url); code != exitOverLimit ||
		!strings.Contains(out, "degraded=deny") {
		t.Errorf("before there is a schema: %d %s", code, out)
	}
	const note = "1 rule without on_backend_error: they refuse while sqlite fails, because it is a database"
	if code, out := headgate(t, "check", rules, "--backend", url); code != 0 || !strings.Contains(out, note) {
		t.Errorf("check: %d %s", code, out)
	}
	r := startServe(t, "--backend", url, "--rules", rules)
	if !strings.Contains(r.Log.String(), note) {
		t.Errorf("the start does not say the default:\n%s", r.Log)
	}
	if code, out := headgate(t, "ask", "shop", "client=a", "-n", "6", "--addr", r.GRPC); code != exitOverLimit ||
		strings.Count(out, "OVER_LIMIT rule=") != 1 {
		t.Errorf("%d %s", code, out)
	}
}

func TestPrintOfLimits(t *testing.T) {
	for _, kind := range []string{"sqlite:", "postgres://", "mysql://", "mariadb://"} {
		if code, out := headgate(t, "migrate", "--print", "--backend", kind); code != 0 ||
			!strings.Contains(out, "HEADGATE_STATE") || strings.Contains(out, "RL_") {
			t.Errorf("%s: %d %.300s", kind, code, out)
		}
	}
	if code, out := headgate(t, "migrate", "--backend", "redis://h"); code != exitProblems ||
		!strings.Contains(out, "no database with a schema") || !strings.Contains(out, "redis:// and memory:// need no") {
		t.Errorf("%d %s", code, out)
	}
}

// Only commands that migrate create a SQLite file. For others, a misspelt name is an error.
func TestMisspeltFilesAreNotMade(t *testing.T) {
	testenv.UseSQLite(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "misspelt.db")
	rules := writeRules(t, fivePerYear)
	for _, args := range [][]string{
		{"ask", "shop", "client=a", "--rules", rules, "--backend", "sqlite:" + file},
		{"policy", "list", "--policies", "sqlite:" + file},
		{"policy", "set", "a:b", "--limit", "1", "--window", "1m", "--policies", "sqlite:" + file},
		{"policy", "history", "--policies", "sqlite:" + file},
		{"slots", "reconcile", "--slots", "sqlite:" + file},
		{"serve", "--rules", rules, "--grpc", "127.0.0.1:0", "--backend", "sqlite:" + file, "--backend-migrate=false"},
		{"serve", "--rules", rules, "--grpc", "127.0.0.1:0", "--slots", "sqlite:" + file, "--slots-migrate=false"},
		{"serve", "--rules", rules, "--grpc", "127.0.0.1:0", "--policies", "sqlite:" + file, "--policies-migrate=false"},
	} {
		code, out := headgate(t, args...)
		if code != exitError || !strings.Contains(out, "there is no file") || !strings.Contains(out, file) ||
			!strings.Contains(out, "migrate") {
			t.Errorf("%q: %d %s", args, code, out)
		}
	}
	for _, args := range [][]string{{"migrate", "--print", "--backend"}, {"migrate", "--print", "--slots"},
		{"migrate", "--print", "--policies"}, {"check", rules, "--backend"}} {
		if code, out := headgate(t, append(args, "sqlite:"+file)...); code != exitOK {
			t.Errorf("%q: %d %s", args, code, out)
		}
	}
	if made, err := os.ReadDir(dir); err != nil || len(made) > 0 {
		t.Errorf("files were made: %v %v", made, err)
	}
}

// headgate check knows what a database cannot keep, and names who can.
func TestCheckNamesAStoreThatCan(t *testing.T) {
	rules := func(limit string) string {
		return writeRules(t, "domain: shop\ndescriptors:\n- {key: k, limits: [{algorithm: sliding_log, limit: "+limit+
			", window: 24h}]}\n")
	}
	file, smaller := rules("200000"), rules("5000")
	for url, want := range map[string]string{"postgres://h/d": "100000", "mariadb://h/d": "100000",
		"sqlite:x.db": "100000", "dynamodb://limits": "1000"} {
		code, out := headgate(t, "check", file, "--backend", url)
		if code != exitProblems || !strings.Contains(out, file+":3: ") ||
			!strings.Contains(out, "up to "+want+" units, not 200000; memory and redis can") {
			t.Errorf("%s: exit code %d: %s", url, code, out)
		}
		code, out = headgate(t, "check", smaller, "--backend", url)
		can := strings.Contains(out, "up to 1000 units, not 5000; memory, redis, postgres, mysql and sqlite can")
		if dynamo := want == "1000"; (code == exitProblems) != dynamo || can != dynamo {
			t.Errorf("%s, a smaller limit: exit code %d: %s", url, code, out)
		}
	}
	for url, want := range map[string]string{
		"postgres://h/d?comit=relaxed":  `unknown parameter "comit"; did you mean "commit"?`,
		"postgres://h/d?commit=lazy":    "commit=lazy: want durable or relaxed",
		"mysql://h/d?commit=relaxed":    "innodb_flush_log_at_trx_commit",
		"mysql://h/d?in_flight=0":       "in_flight=0: want a number from 1 to 64",
		"mysql://h/":                    "it has no database name",
		"postgres://u:secret@h:port/db": "it cannot be read",
		"dynamodb://limits?regoin=x":    `unknown parameter "regoin"; did you mean "region"?`,
		"dynamodb://key:secret@limits":  "no user and no password",
	} {
		code, out := headgate(t, "check", file, "--backend", url)
		if code != exitProblems || !strings.Contains(out, want) || strings.Contains(out, "secret") {
			t.Errorf("%s: exit code %d: %s", url, code, out)
		}
	}
}
