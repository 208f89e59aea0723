package redis

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/test/testenv"
)

// redisCPU returns the CPU time that the server has used.
func redisCPU(tb testing.TB, c *redis.Client) time.Duration {
	tb.Helper()
	text, err := c.Info(context.Background(), "cpu").Result()
	if err != nil {
		tb.Fatal(err)
	}
	info := parseInfo(text)
	user, err1 := strconv.ParseFloat(info["used_cpu_user"], 64)
	sys, err2 := strconv.ParseFloat(info["used_cpu_sys"], 64)
	if err1 != nil || err2 != nil {
		tb.Fatalf("INFO cpu: %v %v", err1, err2)
	}
	return time.Duration((user + sys) * float64(time.Second))
}

// scriptTime returns how long scripts have run on the server.
func scriptTime(tb testing.TB, c *redis.Client) time.Duration {
	tb.Helper()
	text, err := c.Info(context.Background(), "commandstats").Result()
	if err != nil {
		tb.Fatal(err)
	}
	_, text, _ = strings.Cut(parseInfo(text)["cmdstat_evalsha"], "usec=")
	text, _, _ = strings.Cut(text, ",")
	n, _ := strconv.ParseInt(text, 10, 64) // none before the first script
	return time.Duration(n) * time.Microsecond
}

// ownCPU returns the CPU time that this process has used.
func ownCPU() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkCPU reports what a request costs, in microseconds of CPU time, in
// Redis and in this process.
func BenchmarkCPU(b *testing.B) {
	only := map[string]limit.Algorithm{"zset": limit.SlidingLog, "envoy": limit.FixedWindow}
	for _, layout := range []string{"list", "zset", "envoy"} {
		s := testenv.StartRedis(b)
		for _, a := range limit.Algorithms() {
			if one, ok := only[layout]; ok && a != one {
				continue
			}
			for _, ops := range []int{1, 3} {
				for _, n := range []int{1, 16, 64} {
					b.Run(fmt.Sprintf("%s/%v/ops=%d/slice=%d", layout, a, ops, n), func(b *testing.B) {
						benchmarkCPU(b, s, layout, a, ops, n)
					})
				}
			}
		}
	}
}

// BenchmarkEncode is what this package does for a slice of 16 requests of three
// ops before it is sent.
func BenchmarkEncode(b *testing.B) {
	h := openURL(b, "redis://localhost")
	defer h.Close()
	l := limit.MustNew(limit.Spec{Algorithm: limit.FixedWindow, Max: 100, Window: time.Second})
	reqs, out := make([]limit.Request, 16), make([]limit.Verdict, 16)
	for i := range reqs {
		for j := range 3 {
			k := limit.Key{Group: fmt.Sprintf("5:bench2:k%d:user%d", j, i), Limit: "r/fixed_window"}
			reqs[i].Ops = append(reqs[i].Ops, limit.Op{Key: k, Limit: l, Cost: 1})
		}
	}
	s := &scratch{}
	b.ReportAllocs()
	for b.Loop() {
		s.used = 0
		h.place(s, reqs, out, nil)
		if n := len(s.calls[0].arguments()); n != 3+48+1 {
			b.Fatalf("%d arguments", n)
		}
	}
}

// BenchmarkPing is what a round trip costs that does nothing.
func BenchmarkPing(b *testing.B) {
	s := testenv.StartRedis(b)
	c := s.Client()
	ctx := context.Background()
	before, own := redisCPU(b, c), ownCPU()
	b.ResetTimer()
	for range b.N {
		if err := c.Ping(ctx).Err(); err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
	b.ReportMetric(float64((redisCPU(b, c)-before).Microseconds())/float64(b.N), "redis-µs/req")
	b.ReportMetric(float64((ownCPU()-own).Microseconds())/float64(b.N), "own-µs/req")
}

func benchmarkCPU(b *testing.B, s *testenv.RedisServer, layout string, a limit.Algorithm, ops, n int) {
	h := openURL(b, s.URL()+"?layout="+layout)
	defer h.Close()
	c := s.Client()
	c.FlushAll(context.Background())
	const keys = 1024
	spec := limit.Spec{Algorithm: a, Max: 100, Window: time.Second}
	at := limit.Instant(0)
	if layout == "envoy" { // as envoyproxy/ratelimit counts
		spec.Overflow, at = limit.Saturate, limit.InstantOf(time.Now())
	}
	l := limit.MustNew(spec)
	reqs, out := make([]limit.Request, keys+n), make([]limit.Verdict, n)
	for i := range reqs {
		reqs[i].At = at
		for j := range ops {
			k := limit.Key{Group: fmt.Sprintf("5:bench2:k%d:user%d", j, i%keys), Limit: "r/" + a.String()}
			reqs[i].Ops = append(reqs[i].Ops, limit.Op{Key: k, Limit: l, Cost: 1, Each: layout == "envoy"})
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	h.Take(ctx, reqs[:1], out[:1])
	b.ReportAllocs()
	before, own, script := redisCPU(b, c), ownCPU(), scriptTime(b, c)
	b.ResetTimer()
	for i := range b.N {
		from := i * n % keys
		h.Take(ctx, reqs[from:from+n], out)
		if out[0].Err != nil {
			b.Fatal(out[0].Err)
		}
	}
	b.StopTimer()
	per := func(d time.Duration) float64 { return float64(d.Microseconds()) / float64(b.N*n) }
	b.ReportMetric(per(redisCPU(b, c)-before), "redis-µs/req")
	b.ReportMetric(per(ownCPU()-own), "own-µs/req")
	b.ReportMetric(per(scriptTime(b, c)-script), "script-µs/req")
}
