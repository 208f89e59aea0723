//go:build !rlsonly

package main

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/headgate-rls/headgate/test/testenv"
)

// TestBadCommandLinesOfFeaturesAreExplained: those of slots, policies and databases, which the build rlsonly lacks.
func TestBadCommandLinesOfFeaturesAreExplained(t *testing.T) {
	t.Chdir(t.TempDir())
	certs := testenv.TestCerts(t)
	cert, key, otherKey := certs.Server.CertFile, certs.Server.KeyFile, certs.Client.KeyFile
	full := filepath.Join(t.TempDir(), "full") // nobody, not even root, may write to a directory as to a file
	if err := os.Mkdir(full, 0o700); err != nil {
		t.Fatal(err)
	}
	empty := filepath.Join(t.TempDir(), "empty.db")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	const admin = "serve --example --log-level error --grpc 127.0.0.1:0 --services= --http= --debug= --slots " +
		"sqlite::memory: --admin 127.0.0.1:0 "
	areExplained(t, []badLine{
		{"serve --slots-migrate false", `"false" is not part of a flag: a switch is set as in --shadow-mode=false`},
		{"help slots reconcil", `unknown command "reconcil" for "headgate slots"; did you mean reconcile?`},
		{"slots reconcil", `unknown command "reconcil" for "headgate slots"; did you mean reconcile?`},
		{"slots reconcile --repare", "unknown flag: --repare; did you mean --repair?"},
		{"policy list --addr http://a --policies sqlite:p", "--addr, --policies: give one of them only"},
		{admin + "--admin-tls-cert none --admin-tls-key " + key, "--admin-tls-cert none, --admin-tls-key " + key +
			": open none"},
		{admin + "--admin-tls-cert " + cert + " --admin-tls-key " + otherKey, "--admin-tls-cert " + cert +
			", --admin-tls-key " + otherKey + ": tls: private key does not match public key"},
		{admin + "--admin-tls-cert " + cert + " --admin-tls-key " + key + " --admin-client-ca none",
			"--admin-client-ca: open none"},
		{admin + "--admin-tls-cert " + cert + " --admin-tls-key " + key + " --admin-client-ca " + key,
			"--admin-client-ca: " + key + ": no certificate in it"},
		{"serve --example --grpc 127.0.0.1:0 --slots sqlite:" + full, "--slots: database url: the file \"" + full +
			"\" cannot be written: "},
		{"slot", "arguments are missing: headgate slot EVENT_ID"},
		{"slot a b", `"b" is one argument too many: headgate slot EVENT_ID`},
		{"policy set user:a --window 1m --policies sqlite::memory:",
			"--limit is missing: sliding_window needs limit and window"},
		{"policy set user:a --window 1m --capacity=-1 --policies sqlite::memory:", "--capacity -1 is negative"},
		{"slots recon", `unknown command "recon" for "headgate slots"; did you mean reconcile?`},
		{"migrate --slots sqlite:" + key, "--slots: "},
		{"policy set a:b --limit 1 --policies sqlite::memory:", "--window is missing: sliding_window needs one, such as 1m"},
		{"policy set a:b --capacity 1 --policies sqlite::memory:", "--window is missing: sliding_window has a window"},
		{"policy set a:b --burst 1 --algorithm token_bucket --policies sqlite::memory:",
			"--rate is missing: token_bucket needs one, such as 100/s"},
		{"policy set a:b --capacity 1 --algorithm token_bucket --policies sqlite::memory:",
			"--refill is missing: a token bucket gets back"},
		{"policy list --policies sqlite::memory:",
			"list policies: SQL logic error: no such table: HEADGATE_POLICY (1); run headgate migrate --policies URL"},
		{"slots config set default", "nothing to change: give --max, --window"},
		{"migrate --slots mysql://a@127.0.0.1:1/b", "--slots: read RL_SCHEMA_HISTORY: dial tcp"},
		{"serve --example --grpc 127.0.0.1:0 --services= --http= --debug= --slots sqlite:" + empty + " --slots-migrate=false",
			"--slots: read RL_SLOT_CTL: the tables of slots are missing: run headgate migrate"},
	})
}

func TestMigrateLogsUnknownVariables(t *testing.T) {
	t.Setenv("HEADGATE_BACKNED", "redis://:secret@h")
	if _, out := headgate(t, "migrate", "--slots", "sqlite::memory:"); !strings.Contains(out,
		"HEADGATE_BACKNED has no effect") {
		t.Errorf("migrate does not warn: %s", out)
	}
}

// Rules that the store cannot keep leave nothing of it running.
func TestAskClosesTheStoreOfRulesThatItCannotKeep(t *testing.T) {
	sweepers := func() int {
		stacks := make([]byte, 4<<20)
		return strings.Count(string(stacks[:runtime.Stack(stacks, true)]), "sqlstore.(*Backend).sweep(")
	}
	rules := writeRules(t, "domain: d\ndescriptors:\n- key: k\n"+
		"  limits: [{algorithm: sliding_log, limit: 200000, window: 1m}]\n")
	before := sweepers()
	if code, out := headgate(t, "ask", "d", "k=v", "--rules", rules, "--backend", "sqlite::memory:"); code == exitOK ||
		!strings.Contains(out, "sliding_log") {
		t.Errorf("%d %s", code, out)
	}
	if n := sweepers(); n != before {
		t.Errorf("%d stores are in use, %d were before", n, before)
	}
}
