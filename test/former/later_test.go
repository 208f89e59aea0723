package former

import (
	"database/sql"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/headgate-rls/headgate/test/testenv"
)

// spoiling has rules of which no failure policy refuses.
const spoiling = `domain: d
descriptors:
- {key: window, on_backend_error: allow, limits: [{name: l, algorithm: fixed_window, limit: 5, window: 2400h}]}
- {key: sliding, on_backend_error: local, limits: [{name: l, algorithm: sliding_window, limit: 5, window: 2400h}]}
- {key: log, on_backend_error: allow, limits: [{name: l, algorithm: sliding_log, limit: 5, window: 2400h}]}
- {key: bucket, on_backend_error: local, limits: [{name: l, algorithm: token_bucket, rate: 1/day, burst: 5}]}
- {key: flight, on_backend_error: allow, lease_ttl: 10m, concurrency: [{threshold: 5, response: {statusCode: 429}}]}
- {key: bystander, on_backend_error: allow, limits: [{name: l, algorithm: fixed_window, limit: 1000000, window: 2400h}]}
`

// spoiled are the keys whose counters become those of a later version, and spoiledValues how many each has.
var spoiled = []string{"window", "sliding", "log", "bucket", "flight"}

const spoiledValues = 200

// TestStoreFullOfLaterFormats: a store full of what a later version has written refuses each request that needs it, and
// no other; the log has one line, the metrics count, and /readyz says so.
func TestStoreFullOfLaterFormats(t *testing.T) {
	t.Run("Redis", func(t *testing.T) {
		s := testenv.StartRedis(t)
		full(t, s.URL(), func() {
			c, ctx := s.Client(), t.Context()
			for it := c.Scan(ctx, 0, "headgate:{*", 1000).Iterator(); it.Next(ctx); {
				switch key := it.Val(); {
				case strings.Contains(key, "registry"), strings.Contains(key, "bystander"), strings.Contains(key, "{ping"):
				case c.Type(ctx, key).Val() == "zset":
					c.Do(ctx, "ZADD", key, "-inf", "\x80later")
				case c.Type(ctx, key).Val() == "list":
					c.LSet(ctx, key, 0, "\x80later")
				default:
					c.Set(ctx, key, "\x80later", time.Hour)
				}
			}
		})
	})
	t.Run("SQLite", func(t *testing.T) {
		testenv.UseSQLite(t)
		file := filepath.Join(t.TempDir(), "store.db")
		full(t, "sqlite:"+file, func() {
			db, err := sql.Open("sqlite", file+"?_pragma=busy_timeout(10000)")
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			// Rows that replicas share begin with registry:.
			_, err = db.ExecContext(t.Context(), `UPDATE HEADGATE_STATE SET STATE = x'02010203' WHERE length(STATE) > 0
				AND instr(K, CAST('registry:' AS BLOB)) = 0 AND instr(K, CAST('bystander' AS BLOB)) = 0`)
			if err != nil {
				t.Fatal(err)
			}
		})
	})
}

// full fills a store at url with counters, spoils them, and asks for them.
func full(t *testing.T, url string, spoil func()) {
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(rules, []byte(spoiling), 0o600); err != nil {
		t.Fatal(err)
	}
	b := &build{t: t, name: "this", program: program,
		flags: []string{"--rules", rules, "--backend", patient(url), "--backend-timeout", callLimit.String()}}
	b.runs(true)
	each := func(want bool) {
		t.Helper()
		inParallel(len(spoiled)*spoiledValues, func(i int) {
			key, value := spoiled[i%len(spoiled)], fmt.Sprint("v", i/len(spoiled))
			if a, err := b.ask(entry(key, value)); err != nil || a.passed != want {
				t.Errorf("%s=%s: passed %v, want %v: %v", key, value, a.passed, want, err)
			}
			if a, err := b.ask(entry("bystander", value)); err != nil || !a.passed {
				t.Errorf("a bystander: %+v, %v", a, err)
			}
			if a, err := b.ask(entry("bystander", value), entry(key, value)); err != nil || a.passed != want {
				t.Errorf("a bystander and %s=%s: passed %v, want %v: %v", key, value, a.passed, want, err)
			}
		})
	}
	each(true)
	if before := strings.Count(b.server.Log(), "level=ERROR"); before > 0 {
		t.Fatalf("the log has errors before: %s", b.server.Log())
	}
	spoil()
	for range 2 {
		each(false)
	}
	if n := strings.Count(b.server.Log(), "level=ERROR"); n != 1 ||
		!strings.Contains(b.server.Log(), "counters have a format of a later version of headgate") {
		t.Errorf("%d errors in the log, want 1:\n%.3000s", n, b.server.Log())
	}
	page, err := b.server.Fetch("/metrics")
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("headgate_degraded_requests_total{cause=\"later_format\",policy=\"deny\"} %d\n",
		2*2*len(spoiled)*spoiledValues)
	if !strings.Contains(page, want) {
		t.Errorf("the metrics lack %s", want)
	}
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, "headgate_degraded_requests_total{") && !strings.HasSuffix(line, " 0\n") && line != want {
			t.Errorf("the metrics have %s", line)
		}
	}
	resp, err := http.Get("http://" + b.server.HTTP + "/readyz?verbose")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text := make([]byte, 10_000)
	n, _ := resp.Body.Read(text)
	if resp.StatusCode != http.StatusOK || !strings.Contains(string(text[:n]),
		"formats: a request has met a counter of a later version") {
		t.Errorf("/readyz?verbose: %s %s", resp.Status, text[:n])
	}
	if err := b.server.Stop(); err != nil {
		t.Error(err)
	}
}
