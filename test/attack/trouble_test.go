package attack

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/headgate-rls/headgate/internal/kit/sqldb"
	"github.com/headgate-rls/headgate/test/testenv"
)

// troubleRules have a limit that never refuses, and one that soon does.
const troubleRules = `
domain: attack
descriptors:
- {key: free, rate_limit: {unit: hour, requests_per_unit: 1000000000}}
- {key: few, rate_limit: {unit: year, requests_per_unit: 3}}
`

// A trouble is something that one client can do to a store, or that happens to one of its keys.
type trouble struct {
	name  string
	start func(t *testing.T) (backend string, begin func(t *testing.T))
	asks  string // what the client asks about meanwhile, %d being new each time

	callers int  // of the client, 20 calls a second each
	all     bool // everybody is in trouble
}

var troubles = []trouble{
	{name: "Redis is full", asks: "new-%d", callers: 1, start: onRedis(func(t *testing.T, server *testenv.RedisServer) {
		if err := server.Client().ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
			t.Fatal(err)
		}
	})},
	{name: "Redis is away", asks: "new-%d", callers: 1, all: true,
		start: onRedis(func(_ *testing.T, server *testenv.RedisServer) { server.Kill() })},
	{name: "Redis is silent", asks: "new-%d", callers: 1, all: true,
		start: onRedis(func(_ *testing.T, server *testenv.RedisServer) { server.Pause() })},
	{name: "a row is locked in PostgreSQL", asks: "locked", callers: 8, start: lockedRow(testenv.Postgres,
		"SELECT 1 FROM HEADGATE_STATE WHERE position('locked'::bytea IN K) > 0 FOR UPDATE")},
	{name: "a row is locked in MariaDB", asks: "locked", callers: 8, start: lockedRow(testenv.MariaDB,
		"SELECT 1 FROM HEADGATE_STATE WHERE INSTR(K, 'locked') > 0 FOR UPDATE")},
}

// onRedis is a Redis to which something happens.
func onRedis(begin func(t *testing.T, server *testenv.RedisServer)) func(t *testing.T) (string, func(t *testing.T)) {
	return func(t *testing.T) (string, func(t *testing.T)) {
		server := testenv.StartRedis(t, testenv.WithArgs("--maxmemory-policy", "noeviction"))
		return server.URL(), func(t *testing.T) { begin(t, server) }
	}
}

// lockedRow is a database in which somebody holds the rows that query locks.
func lockedRow(engine, query string) func(t *testing.T) (string, func(t *testing.T)) {
	return func(t *testing.T) (string, func(t *testing.T)) {
		url := testenv.SharedDatabase(t, engine).CreateDatabase("trouble")
		return url, func(t *testing.T) {
			db, err := sqldb.Open(sqldb.Config{URL: url, PoolMax: 1, IdleInTransaction: 5 * time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { db.Close() })
			tx, err := db.Write.BeginTx(context.Background(), &sql.TxOptions{Isolation: sql.LevelReadCommitted})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = tx.Rollback() })
			var one int
			if err := tx.QueryRowContext(t.Context(), query).Scan(&one); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// callerPatience is of the order of Envoy's.
const callerPatience = 50 * time.Millisecond

// A caller asks about one descriptor at a time.
type caller struct {
	client             rls.RateLimitServiceClient
	admitted, refused  int
	uncounted, errored int // by policy; with an error
}

func newCaller(t *testing.T, hg *testenv.Headgate) *caller {
	conn, err := grpc.NewClient(hg.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &caller{client: rls.NewRateLimitServiceClient(conn)}
}

func (c *caller) ask(key, value string) {
	ctx, cancel := context.WithTimeout(context.Background(), callerPatience)
	defer cancel()
	resp, err := c.client.ShouldRateLimit(ctx, &rls.RateLimitRequest{Domain: "attack",
		Descriptors: []*common.RateLimitDescriptor{{Entries: []*common.RateLimitDescriptor_Entry{{Key: key, Value: value}}}}})
	switch {
	case err != nil:
		c.errored++
		return
	case resp.OverallCode == rls.RateLimitResponse_OVER_LIMIT:
		c.refused++
	default:
		c.admitted++
	}
	if resp.DynamicMetadata.GetFields()["degraded"] != nil {
		c.uncounted++
	}
}

// every calls f until ctx ends.
func every(ctx context.Context, pause time.Duration, f func(n int)) {
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
			f(n)
		}
	}
}

// TestTroubleOfOneKeyOpensNoLimit: while one client's keys are in trouble, a client that has used up its
// limit is refused every call, and a bystander's calls are counted. The former also holds while all are in
// trouble.
func TestTroubleOfOneKeyOpensNoLimit(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and runs headgate for some seconds")
	}
	for _, tr := range troubles {
		t.Run(strings.ReplaceAll(tr.name, " ", "_"), func(t *testing.T) {
			backend, begin := tr.start(t)
			file := filepath.Join(t.TempDir(), "rules.yaml")
			if err := os.WriteFile(file, []byte(troubleRules), 0o600); err != nil {
				t.Fatal(err)
			}
			hg := testenv.ServeHeadgate(t, program, "--rules", file, "--backend", backend, "--on-backend-error", "allow",
				"--drain-timeout", "1s")
			greedy, troubled := newCaller(t, hg), newCaller(t, hg)
			troubled.ask("free", "locked")
			for range 4 {
				greedy.ask("few", "greedy")
			}
			if greedy.refused != 1 {
				t.Fatalf("before: %+v", *greedy)
			}
			quiet, _ := tr.play(t, hg, greedy, troubled, "quiet-", size(2*time.Second, 10*time.Second))
			if quiet.degraded > 0 {
				t.Fatalf("before: %d of the bystander's calls by policy", quiet.degraded)
			}
			begin(t)
			*greedy = caller{client: greedy.client}
			seen, uncounted := tr.play(t, hg, greedy, troubled, "", size(3*time.Second, 14*time.Second))
			t.Logf("%s: client without units left: %d of %d calls admitted, %d errors; bystander: %d of %d by policy, "+
				"p99 %v, quiet %v; troubled: %d by policy", tr.name, greedy.admitted, greedy.admitted+greedy.refused,
				greedy.errored, seen.degraded, seen.calls, seen.quantile(0.99), quiet.quantile(0.99), uncounted)
			if greedy.admitted > 0 || greedy.refused == 0 {
				t.Errorf("the client without units left: %+v", *greedy)
			}
			if most := seen.calls / 50; !tr.all && seen.degraded > most || seen.errors > 0 {
				t.Errorf("the bystander: %d of %d calls by policy, want at most %d", seen.degraded, seen.calls, most)
			}
			// Beside other tests the short form shows only that nobody waits for the trouble to end.
			if most := 2*quiet.quantile(0.99) + size(10*late, 0); !tr.all && seen.quantile(0.99) > most {
				t.Errorf("the bystander: p99 %v, want at most %v", seen.quantile(0.99), most)
			}
			if uncounted == 0 {
				t.Error("there was no trouble")
			}
		})
	}
}

// play has all callers ask for d, the troubled client about values with a prefix. It returns what a bystander has seen
// and how many of that client's calls were answered by policy.
func (tr *trouble) play(t *testing.T, hg *testenv.Headgate, greedy, troubled *caller, prefix string,
	d time.Duration) (sightings, int64) {
	other := watch(t, hg)
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	var all sync.WaitGroup
	var uncounted atomic.Int64
	for i := range tr.callers {
		c := *troubled
		all.Go(func() {
			every(ctx, 50*time.Millisecond, func(n int) { c.ask("free", prefix+value(tr.asks, tr.callers*n+i)) })
			uncounted.Add(int64(c.uncounted))
		})
	}
	all.Go(func() { every(ctx, 30*time.Millisecond, func(int) { greedy.ask("few", "greedy") }) })
	all.Wait()
	return other.stop(), uncounted.Load()
}

func value(format string, n int) string {
	if strings.Contains(format, "%") {
		return fmt.Sprintf(format, n)
	}
	return format
}
