package chart

import (
	"context"
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/headgate-rls/headgate/test/testenv"
)

// TestRedisSizes: counters take about as much memory in Redis as the README of the example
// says; a factor of two is for tables that Redis is just enlarging.
func TestRedisSizes(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("asks for 32,768 counters")
	}
	server := testenv.StartRedis(t)
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	write(t, rules, strings.ReplaceAll(strings.ReplaceAll(allAlgorithms, "limit: 2", "limit: 100"), "threshold: 2",
		"threshold: 100"))
	h := testenv.StartHeadgate(t, program, "--rules", rules, "--backend", server.URL())
	conn, err := grpc.NewClient(h.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	client := rls.NewRateLimitServiceClient(conn)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	used := func() int {
		info, err := server.Client().Info(ctx, "memory").Result()
		if err != nil {
			t.Fatal(err)
		}
		n, _ := strconv.Atoi(regexp.MustCompile(`used_memory_dataset:(\d+)`).FindStringSubmatch(info)[1])
		over, _ := strconv.Atoi(regexp.MustCompile(`used_memory_overhead:(\d+)`).FindStringSubmatch(info)[1])
		return n + over
	}
	// grow asks once about each of many counters, some in each call, and returns how much each has grown.
	const counters = 8192 // a table of Redis' that is full
	grow := func(key string) int {
		t.Helper()
		before := used()
		for i := 0; i < counters; {
			req := &rls.RateLimitRequest{Domain: "all"}
			for range 16 { // of which a call may have leases at most
				req.Descriptors = append(req.Descriptors, &common.RateLimitDescriptor{Entries: []*common.RateLimitDescriptor_Entry{
					{Key: key, Value: fmt.Sprintf("tenant-%08d", i)}}})
				i++
			}
			if _, err := client.ShouldRateLimit(ctx, req); err != nil {
				t.Fatal(err)
			}
		}
		return (used() - before) / counters
	}
	text := read(t, filepath.Join(examples, "README.md"))
	for _, c := range []struct{ key, row string }{
		{"fixed_window", "| `fixed_window`"}, {"token_bucket", "| `fixed_window`"}, {"sliding_log", "| `sliding_log`"},
		{"concurrency", "| requests in flight"},
	} {
		m := regexp.MustCompile(regexp.QuoteMeta(c.row) + `[^|]*\| (\d+)`).FindStringSubmatch(text)
		if m == nil {
			t.Fatalf("README.md has no figure in the row %q", c.row)
		}
		want, _ := strconv.Atoi(m[1])
		if got := grow(c.key); got > want*2 || got < want/2 {
			t.Errorf("%s: %d bytes for each counter, README.md says %d", c.key, got, want)
		}
	}
}
