//go:build !rlsonly

package server

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/headgate-rls/headgate/internal/app/candidate"
	"github.com/headgate-rls/headgate/test/serving"
	"github.com/headgate-rls/headgate/test/testenv"
)

const settingsRules = `domain: example
descriptors:
- {key: client, rate_limit: {unit: year, requests_per_unit: 10}}
- {key: path, concurrency: [{threshold: 1, response: {statusCode: 429}}]}
`

// admits asks about n requests, and returns how many pass.
func admits(r *serving.Server, n int) (passed int) {
	r.Helper()
	client := rls.NewRateLimitServiceClient(r.Dial(r.GRPC))
	for range n {
		resp, err := client.ShouldRateLimit(context.Background(), exampleRequest())
		if err != nil {
			r.Fatal(err)
		}
		if resp.OverallCode == rls.RateLimitResponse_OK {
			passed++
		}
	}
	return passed
}

// assigned asks for a slot of the default config, which may be refused.
func assigned(r *serving.Server, at time.Time) string {
	r.Helper()
	code, answer, _ := r.Post(r.HTTP, "/api/v1/slots", "",
		`{"eventId":"e","requestedTime":"`+at.UTC().Format(time.RFC3339)+`"}`)
	return fmt.Sprint(code, " ", answer)
}

// TestSettingsHaveTheirEffect: a server with the setting does what the setting says, and not what its default says.
func TestSettingsHaveTheirEffect(t *testing.T) {
	testenv.UseSQLite(t)
	t.Setenv("HEADGATE_ADMIN_TOKEN", adminToken)
	rules := writeRules(t, settingsRules)
	debug := func(path string) func(*serving.Server) string {
		return func(r *serving.Server) string {
			_, body := r.Get(r.Debug, path)
			return body
		}
	}
	metrics := debug("/metrics")
	slots := "--slots sqlite:" + filepath.Join(t.TempDir(), "slots.db") + " --slots-seed 1/PT4S "
	for _, c := range []struct {
		flags, want string
		see         func(*serving.Server) string
	}{
		{"--metrics-path /m", "headgate_rules 2\n", debug("/m")},
		{"--metrics 127.0.0.1:0 --metrics-path /m", "headgate_rules 2\n", func(r *serving.Server) string {
			_, body := r.Get(r.Metrics, "/m")
			return body
		}},
		{"--reference-metrics --near-limit-ratio 0.2", `rate_limit_near_limit{domain="example",key1="client"} 3` + "\n",
			func(r *serving.Server) string {
				admits(r, 5)
				return metrics(r)
			}},
		{"--backend redis://127.0.0.1:1 --on-backend-error local --replicas 5", "2 pass",
			func(r *serving.Server) string { return fmt.Sprint(admits(r, 11), " pass") }},
		{"--lease-ttl 77s", "lease_ttl=1m17s", debug("/rlconfig")},
		{"--admin-keys hashed", "sha256:", func(r *serving.Server) string {
			admits(r, 11)
			_, answer := askAdmin(r, "GET", "/admin/top", "")
			return answer
		}},
		{"--candidate " + rules + " --candidate-sample 0.25", `"sample":0.25,`, func(r *serving.Server) string {
			_, answer := askAdmin(r, "GET", "/admin/candidate", "")
			return answer
		}},
		{slots + "--slots-pool-max 7", "headgate_slots_pool_max_connections 8\n", metrics}, // and one that writes
		{slots + "--slots-default-config own", `"configName":"own"`, func(r *serving.Server) string {
			_, configs := askAdmin(r, "GET", "/admin/rate-limit/config", "")
			return assigned(r, time.Now()) + configs
		}},
		{slots + "--slots-max-past 1h", "400", func(r *serving.Server) string {
			return assigned(r, time.Now().Add(-2*time.Hour))
		}},
		{slots + "--slots-max-future 1h", "400", func(r *serving.Server) string {
			return assigned(r, time.Now().Add(2*time.Hour))
		}},
	} {
		t.Run(c.flags, func(t *testing.T) {
			r := startServe(t, append([]string{"--rules", rules}, strings.Fields(c.flags)...)...)
			if got := c.see(r); !strings.Contains(got, c.want) {
				t.Errorf("no %q in\n%s", c.want, got)
			}
		})
	}
}

// TestUsersOfDatabases: the name and the password of a database need not be in its URL.
func TestUsersOfDatabases(t *testing.T) {
	db := testenv.SharedDatabase(t, testenv.Postgres)
	for _, of := range []string{"slots", "policies"} {
		u, err := url.Parse(db.CreateDatabase("users"))
		if err != nil {
			t.Fatal(err)
		}
		user := u.User
		password, _ := user.Password()
		u.User = nil
		r := startServe(t, "--"+of, u.String(), "--"+of+"-username", user.Username(), "--"+of+"-password", password)
		if code, body := r.Get(r.HTTP, "/readyz"); code != 200 {
			t.Errorf("%s: %d %s", of, code, body)
		}
	}
}

// TestSchemasAreNotMigrated where a setting says so: the start needs them, then.
func TestSchemasAreNotMigrated(t *testing.T) {
	db := testenv.SharedDatabase(t, testenv.Postgres)
	for _, of := range []string{"slots", "policies"} {
		text := startError(t, "--example", "--"+of, db.CreateDatabase("empty"), "--"+of+"-migrate=false")
		if !strings.Contains(text, "--"+of) || !strings.Contains(text, "run headgate migrate") {
			t.Errorf("%s: %s", of, text)
		}
	}
	file := filepath.Join(t.TempDir(), "none.db")
	text := startError(t, "--rules", writeRules(t, settingsRules), "--candidate", t.TempDir(), "--backend", "sqlite:"+file,
		"--backend-migrate=false")
	if _, err := os.Stat(file); err == nil || !strings.Contains(text, "there is no file") {
		t.Errorf("rules on trial make the database of the others: %v, %s", err, text)
	}
}

// TestTrialsFollowTheSettings: rules on trial that are the live ones decide the same under each setting, on counters of
// their own.
func TestTrialsFollowTheSettings(t *testing.T) {
	testenv.UseSQLite(t)
	t.Setenv("HEADGATE_ADMIN_TOKEN", adminToken)
	dir, rules := t.TempDir(), func(key, limit string) string {
		return "domain: " + key + "\ndescriptors: [{key: client, " + limit + "}]\n"
	}
	const none = "rate_limit: {unit: year, requests_per_unit: 0}"
	for name, text := range map[string]string{
		"yaml/example.yaml": rules("example", "rate_limit: {unit: year, requests_per_unit: 10}"),
		"all/example.rules": rules("example", none), "all/other.yaml": rules("other", none),
		"dot/.example":  rules("example", none),
		"two/a.yaml":    rules("example", none),
		"two/b.yaml":    "domain: example\ndescriptors: [{key: other}]\n",
		"lease/in.yaml": rules("example", "concurrency: [{threshold: 1, response: {statusCode: 429}}]"),
		"policies/example.yaml": rules("example", "policy: 'client:{client}', "+
			"rate_limit: {unit: year, requests_per_unit: 10}"),
	} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		put(t, file, text)
	}
	redis := " --backend " + testenv.StartRedis(t).URL() + "?prefix="
	for _, c := range []struct {
		rules, flags string
		pass         int
	}{
		{"yaml", redis + "a", 10},
		{"yaml", "--candidate-store memory" + redis + "b&layout=envoy", 10}, // which has no room for trials
		{"all", "--rules-files all" + redis + "c", 0},
		{"dot", "--rules-files dot" + redis + "d", 0},
		{"two", "--merge-domains" + redis + "e", 0},
		{"lease", "--lease-ttl 10ms" + redis + "f", 2},
		{"policies", "--policies sqlite:" + filepath.Join(dir, "policies.db") + redis + "g", 0},
	} {
		t.Run(c.rules, func(t *testing.T) {
			at := filepath.Join(dir, c.rules)
			r := startServe(t, append([]string{"--rules", at, "--candidate", at}, strings.Fields(c.flags)...)...)
			if c.rules == "policies" {
				policy := `{"key":"client:alice","type":"FIXED_WINDOW","capacity":0,"windowSeconds":60}`
				if code, answer := askAdmin(r, "POST", "/admin/policies", policy); code != 201 {
					t.Fatal(code, answer)
				}
			}
			var trial candidate.Answer
			ask := func(n, sum int) (passed int) {
				passed = admits(r, n)
				testenv.Eventually(t, 20*time.Second, "decide all requests on trial", func() string {
					_, answer := askAdmin(r, "GET", "/admin/candidate", "")
					trial = candidate.Answer{}
					if err := json.Unmarshal([]byte(answer), &trial); err != nil ||
						trial.Requests+trial.Dropped+trial.Failed < int64(sum) {
						return answer
					}
					return ""
				})
				return passed
			}
			passed := ask(1, 1)
			if c.rules == "lease" {
				time.Sleep(20 * time.Millisecond) // until it expires
				passed += ask(1, 2)
			} else {
				passed += ask(10, 11)
			}
			if passed != c.pass {
				t.Errorf("%d pass, want %d", passed, c.pass)
			}
			if trial.NewlyRefused+trial.NewlyAdmitted+trial.Failed+trial.Dropped != 0 || trial.Error != "" {
				t.Errorf("%+v", trial)
			}
		})
	}
}
