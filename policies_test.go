package headgate

import (
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/policies"
	"github.com/headgate-rls/headgate/policies/sqlstore"
	"github.com/headgate-rls/headgate/policies/table"
	"github.com/headgate-rls/headgate/test/testenv"
)

const policyRules = `
domain: d
descriptors:
  - key: user
    policy: user:{user}
    limits: [{algorithm: sliding_log, limit: 3, window: 24h}]
`

// changePolicy makes, changes or removes a policy as `headgate policy` does.
func changePolicy(t *testing.T, url string, edit table.Edit) {
	t.Helper()
	store, err := sqlstore.Open(sqlstore.Config{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := table.NewEditor(store, nil).Apply(ctx, []table.Edit{edit}, "test", false); err != nil {
		t.Fatal(err)
	}
}

// remaining polls until that many units are left of a user's limit.
func remaining(t *testing.T, l *Limiter, user string, want uint64) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		d, err := l.Peek(t.Context(), "d", Describe("user", user))
		if err != nil {
			t.Fatal(err)
		}
		if uint64(d.Remaining) == want {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s has %d left, want %d", user, d.Remaining, want)
		}
	}
}

// TestPoliciesTakeThePlaceOfRulesLimits: a policy that is made while a limiter is open holds for its
// key, and the rule's own limit for others; and again when the policy is gone.
func TestPoliciesTakeThePlaceOfRulesLimits(t *testing.T) {
	onDatabases(t, func(t *testing.T, url string) {
		l := open(t, func(o *Options) { o.Rules, o.Policies = []Rules{YAML("rules.yaml", policyRules)}, url })
		remaining(t, l, "alice", 3)
		changePolicy(t, url, table.Edit{Key: "user:alice", Figures: policies.Figures{Algorithm: limit.SlidingLog,
			Capacity: 100, Window: 86400 * policies.One}})
		remaining(t, l, "alice", 100)
		remaining(t, l, "bob", 3)
		if !allowed(t, l, Describe("user", "alice")) {
			t.Error("alice is refused")
		}
		changePolicy(t, url, table.Edit{Key: "user:alice", Remove: true})
		remaining(t, l, "alice", 2) // the counter stays
	})
}

// onDatabases runs f with a database in a file, and with one of a server.
func onDatabases(t *testing.T, f func(t *testing.T, url string)) {
	t.Run("sqlite", func(t *testing.T) {
		testenv.UseSQLite(t)
		f(t, "sqlite:"+filepath.Join(t.TempDir(), "policies.db"))
	})
	t.Run(testenv.Postgres, func(t *testing.T) {
		f(t, testenv.SharedDatabase(t, testenv.Postgres).CreateDatabase("policies"))
	})
}

// TestPoliciesThatAreAwayHoldNobodyUp: a limiter opens while the database of policies is away,
// decides by the rules, and follows the database when it is there.
func TestPoliciesThatAreAwayHoldNobodyUp(t *testing.T) {
	db := testenv.StartDatabase(t, testenv.Postgres)
	url := db.CreateDatabase("policies")
	changeable := open(t, func(o *Options) { o.Rules, o.Policies = []Rules{YAML("rules.yaml", policyRules)}, url })
	changePolicy(t, url, table.Edit{Key: "user:alice", Figures: policies.Figures{Algorithm: limit.SlidingLog,
		Capacity: 7, Window: 86400 * policies.One}})
	remaining(t, changeable, "alice", 7)
	db.Kill()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	late, err := Open(ctx, Options{Rules: []Rules{YAML("rules.yaml", policyRules)}, Policies: url})
	if err != nil {
		t.Fatal(err)
	}
	defer late.Close()
	remaining(t, late, "alice", 3)
	remaining(t, changeable, "alice", 7) // those read last stay in force
	db.Restart()
	remaining(t, late, "alice", 7)
}

// TestPoliciesWithoutDatabaseAreToldOf: rules that ask for policies where there are none are
// warned of, and a wrong URL is an error.
func TestPoliciesWithoutDatabaseAreToldOf(t *testing.T) {
	var log strings.Builder
	open(t, func(o *Options) {
		o.Rules, o.Log = []Rules{YAML("rules.yaml", policyRules)}, slog.New(slog.NewTextHandler(&log, nil))
	})
	if !strings.Contains(log.String(), "Options.Policies is not set") {
		t.Errorf("the log says %q", log.String())
	}
	for _, url := range []string{"redis://localhost", "policies.db", "sqlite:/no/such/directory/policies.db"} {
		if l, err := Open(t.Context(), Options{Rules: []Rules{YAML("rules.yaml", policyRules)}, Policies: url}); err == nil {
			t.Errorf("a limiter opens with policies at %s", url)
			_ = l.Close()
		} else if !strings.Contains(err.Error(), "Options.Policies: ") {
			t.Errorf("%s: %v", url, err)
		}
	}
}
