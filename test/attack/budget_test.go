package attack

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/headgate-rls/headgate/ratelimit"
	"github.com/headgate-rls/headgate/test/testenv"
)

// budgetStores are where budgets are attacked.
var budgetStores = []struct {
	name string
	url  func(t *testing.T) string
}{
	{"memory", func(*testing.T) string { return "memory://" }},
	{"Redis", func(t *testing.T) string { return testenv.StartRedis(t).URL() + "?timeout=30s" }},
	{"PostgreSQL", func(t *testing.T) string { return patientDatabase(t, testenv.Postgres) }},
	{"MariaDB", func(t *testing.T) string { return patientDatabase(t, testenv.MariaDB) }},
	{"SQLite", func(t *testing.T) string {
		testenv.UseSQLite(t)
		return "sqlite:" + filepath.Join(t.TempDir(), "store.db") + "?timeout=30s"
	}},
	{"DynamoDB", func(t *testing.T) string {
		for _, e := range testenv.DynamoCredentials() {
			name, value, _ := strings.Cut(e, "=")
			t.Setenv(name, value)
		}
		return testenv.DynamoTable(testenv.SharedDynamoDB(t).URL, fmt.Sprint("budget", rand.Uint32())) + "&timeout=30s"
	}},
}

// patientDatabase is a database that waits as long as its callers.
func patientDatabase(t *testing.T, engine string) string {
	url, separator := testenv.SharedDatabase(t, engine).CreateDatabase("budget"), "?"
	if strings.Contains(url, "?") {
		separator = "&"
	}
	return url + separator + "timeout=30s"
}

// A budget of 1,000,000 tokens has room for 244 reservations of the min, which is 4096, and for 61 of the default. Its
// window is so short that it ends while streams are open.
const (
	budgetWindow  = 2 * time.Second
	budgetMost    = 1_000_000 / 4096
	budgetDefault = 1_000_000 / 16384
	budgetStreams = 1000
	budgetRules   = `domain: attack
descriptors:
- key: token
  reserve: {amount: auto, default: 16384, max: 100000}
  limits: [{algorithm: fixed_window, limit: 1000000, window: 2s}]
- key: oldest
  reserve: {amount: auto, default: 16384, max: 100000, match: oldest}
  limits: [{algorithm: fixed_window, limit: 1000000, window: 2s}]
`
)

// TestCheapCallsOpenNoBudget: a client that makes cheap calls first, and then says of a thousand expensive ones that
// they are cheap, starts as many at once as the budget has room for the min, also when its window ends. Cheap calls of
// others and an expensive one change nothing for a newcomer.
func TestCheapCallsOpenNoBudget(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and runs headgate for some seconds")
	}
	for _, store := range budgetStores {
		t.Run(store.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "rules.yaml")
			if err := os.WriteFile(file, []byte(budgetRules), 0o600); err != nil {
				t.Fatal(err)
			}
			hg := testenv.ServeHeadgate(t, program, "--rules", file, "--backend", store.url(t), "--backend-timeout", "30s",
				"--drain-timeout", "1s")
			for _, match := range []string{"token", "oldest"} {
				b := &spender{t: t, match: match}
				for range 8 {
					b.callers = append(b.callers, newCaller(t, hg))
				}
				b.attack()
			}
		})
	}
}

// A spender asks as gateways do: with tokens that settle reservations, or with reports.
type spender struct {
	t       *testing.T
	match   string // the key of the rule
	callers []*caller
}

func (b *spender) attack() {
	b.t.Helper()
	for range 20 {
		for _, user := range []string{"greedy", "other 1", "other 2", "other 3", "other 4", "other 5"} {
			b.call(user, 1)
		}
	}
	b.call("dear", 200_000)
	first := b.streams("greedy", 1)
	time.Sleep(budgetWindow)
	second := b.streams("greedy", 1)
	newcomer := b.streams("newcomer", 0)
	b.t.Logf("%s: of %d streams %d start, %d when the window has ended; %d of a newcomer", b.match, budgetStreams, first,
		second, newcomer)
	if first+second > budgetMost || first < budgetMost*9/10 {
		b.t.Errorf("%s: %d and %d streams start, want %d in all", b.match, first, second, budgetMost)
	}
	if newcomer < budgetDefault {
		b.t.Errorf("%s: %d streams of a newcomer start, want at least %d", b.match, newcomer, budgetDefault)
	}
}

// streams starts many streams at once, which do not end, and returns how many pass.
func (b *spender) streams(user string, estimate uint64) int {
	var passed atomic.Int64
	var all sync.WaitGroup
	for i := range budgetStreams {
		all.Go(func() {
			if ok, _ := b.ask(b.callers[i%len(b.callers)], user, estimate); ok {
				passed.Add(1)
			}
		})
	}
	all.Wait()
	return int(passed.Load())
}

// call makes a call that ends at once.
func (b *spender) call(user string, cost uint64) {
	c := b.callers[0]
	_, token := b.ask(c, user, cost)
	if b.match == "oldest" {
		b.send(c, budgetEntry(b.match, user, wrapperspb.UInt64(cost)))
		return
	}
	end := budgetEntry(ratelimit.OpKey, "settle", wrapperspb.UInt64(cost))
	end.Entries = append(end.Entries, &common.RateLimitDescriptor_Entry{Key: ratelimit.LeaseEntry, Value: token})
	b.send(c, end)
}

// ask asks for a call that estimates so many tokens, 0 for none, and returns its token.
func (b *spender) ask(c *caller, user string, estimate uint64) (passed bool, token string) {
	var hits *wrapperspb.UInt64Value
	if b.match == "oldest" {
		hits = wrapperspb.UInt64(0)
	}
	list := []*common.RateLimitDescriptor{budgetEntry(b.match, user, hits)}
	if estimate > 0 {
		list = append(list, budgetEntry(ratelimit.OpKey, "estimate", wrapperspb.UInt64(estimate)))
	}
	resp := b.send(c, list...)
	return resp.GetOverallCode() == rls.RateLimitResponse_OK,
		resp.GetDynamicMetadata().GetFields()[ratelimit.DefaultLeaseKey].GetStringValue()
}

func (b *spender) send(c *caller, list ...*common.RateLimitDescriptor) *rls.RateLimitResponse {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	resp, err := c.client.ShouldRateLimit(ctx, &rls.RateLimitRequest{Domain: "attack", Descriptors: list})
	if err != nil {
		b.t.Errorf("%s: %v", b.match, err)
	}
	for _, note := range []string{"degraded", "overloaded", "recalled"} {
		if resp.GetDynamicMetadata().GetFields()[note] != nil {
			b.t.Errorf("%s: an answer by policy: %s", b.match, note)
		}
	}
	return resp
}

func budgetEntry(key, value string, hits *wrapperspb.UInt64Value) *common.RateLimitDescriptor {
	return &common.RateLimitDescriptor{HitsAddend: hits,
		Entries: []*common.RateLimitDescriptor_Entry{{Key: key, Value: value}}}
}
