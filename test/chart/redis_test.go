package chart

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate-rls/headgate/test/testenv"
)

// TestRedisExample: a Redis starts with redis.conf and users.acl, nobody but headgate gets
// in, and headgate limits on it, by every algorithm and requests in flight too, without a
// warning or an error.
func TestRedisExample(t *testing.T) {
	binary := testenv.Require(t, testenv.Redis)
	dir := t.TempDir()
	users := filepath.Join(dir, "users.acl")
	write(t, users, strings.ReplaceAll(read(t, filepath.Join(examples, "redis", "users.acl")), "CHANGE-ME", "s3cret"))
	conf := filepath.Join(dir, "redis.conf")
	write(t, conf, strings.ReplaceAll(read(t, filepath.Join(examples, "redis", "redis.conf")),
		"/etc/redis/users.acl", users))
	port := testenv.FreePort(t)
	address := fmt.Sprintf("127.0.0.1:%d", port)
	server := testenv.StartProgram(t, binary, nil, conf, "--port", fmt.Sprint(port), "--dir", dir)
	if bind := "\nbind * -::*\n"; !strings.Contains(read(t, conf), bind) {
		t.Errorf("redis.conf does not have %q", bind)
	}

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	as := func(user, password string) *redis.Client {
		c := redis.NewClient(&redis.Options{Addr: address, Username: user, Password: password, MaxRetries: -1})
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	ours := as("headgate", "s3cret")
	testenv.Eventually(t, 20*time.Second, "Redis answers", func() string {
		if err := ours.Ping(ctx).Err(); err != nil {
			return err.Error() + server.Log()
		}
		return ""
	})
	if err := as("", "").Ping(ctx).Err(); err == nil || !strings.Contains(err.Error(), "NOAUTH") {
		t.Errorf("without a password: %v", err)
	}
	for _, forbidden := range [][]any{{"FLUSHALL"}, {"CONFIG", "GET", "*"}, {"KEYS", "*"}, {"SET", "other", "1"}} {
		if err := ours.Do(ctx, forbidden...).Err(); err == nil || !strings.Contains(err.Error(), "NOPERM") {
			t.Errorf("%v: %v", forbidden, err)
		}
	}

	rules := filepath.Join(dir, "rules.yaml")
	write(t, rules, allAlgorithms)
	h := testenv.StartHeadgate(t, program, "--rules", rules, "--backend", "redis://headgate:s3cret@"+address+"/0",
		"--on-backend-error", "error", "--admin-token", "a-token-of-this-test")
	for _, key := range []string{"fixed_window", "sliding_window", "token_bucket", "sliding_log", "concurrency"} {
		code, out, errOut := testenv.RunProgram(t, program, nil, "ask", "all", key+"=a", "-n", "3", "--timeout", "5s",
			"--addr", h.GRPC)
		if code != 3 || strings.Count(out, "OVER_LIMIT rule=") != 1 || strings.Contains(out, "degraded") {
			t.Errorf("%s: exit code %d\n%s%s", key, code, out, errOut)
		}
	}
	list, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+h.HTTP+"/admin/metrics", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	list.Header.Set("Authorization", "Bearer a-token-of-this-test")
	if resp, err := http.DefaultClient.Do(list); err != nil {
		t.Error(err)
	} else if keys, err := io.ReadAll(resp.Body); err != nil || resp.Body.Close() != nil ||
		resp.StatusCode != http.StatusOK || !strings.Contains(string(keys), "all|fixed_window=a") {
		t.Errorf("GET /admin/metrics: %s, %v\n%s", resp.Status, err, keys)
	}
	time.Sleep(200 * time.Millisecond) // what is asked of Redis in the background
	if log := h.Log(); strings.Contains(log, "level=WARN") || strings.Contains(log, "level=ERROR") ||
		strings.Contains(log, "NOPERM") {
		t.Errorf("headgate complains:\n%s", log)
	}
	if n, err := h.Metrics("headgate_breaker_openings_total"); err != nil || n[0] != 0 {
		t.Errorf("the breaker opened: %v %v", n, err)
	}
}

const allAlgorithms = `domain: all
descriptors:
  - {key: fixed_window, limits: [{algorithm: fixed_window, limit: 2, window: 24h}]}
  - {key: sliding_window, limits: [{algorithm: sliding_window, limit: 2, window: 24h}]}
  - {key: token_bucket, limits: [{algorithm: token_bucket, rate: 2/20h, burst: 2}]}
  - {key: sliding_log, limits: [{algorithm: sliding_log, limit: 2, window: 24h}]}
  - {key: concurrency, concurrency: [{threshold: 2, response: {statusCode: 429}}]}
`

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
