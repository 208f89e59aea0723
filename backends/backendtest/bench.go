package backendtest

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/limit"
)

// Benchmark measures Take for each algorithm with slices of 1, 16 and 64
// requests over 1024 keys. The time is per slice; ns/req is per request.
func Benchmark(b *testing.B, caps backends.Caps, open func(tb testing.TB) backends.Backend) {
	for _, a := range limit.Algorithms() {
		if _, ok := caps.Algorithms[a]; !ok {
			continue
		}
		for _, n := range []int{1, 16, 64} {
			b.Run(fmt.Sprintf("%v/slice=%d", a, n), func(b *testing.B) {
				h := open(b)
				defer h.Close()
				benchmarkTake(b, &caps, h, a, n)
			})
		}
	}
}

// benchmarkTake lets takes pass and be refused: 100 units a second, and each
// key asked about 1000 times in one.
func benchmarkTake(b *testing.B, caps *backends.Caps, h backends.Backend, a limit.Algorithm, n int) {
	const keys = 1024
	e := newEnv(b, Suite{Caps: *caps})
	l := e.limit(a, 100, time.Second)
	reqs := make([]limit.Request, keys+n)
	for i := range reqs {
		reqs[i] = request(0, e.key(strconv.Itoa(i%keys), "bench", a), l, 1)
	}
	out := make([]limit.Verdict, n)
	start, ctx := e.start(), context.Background()
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		from := i * n % keys
		slice := reqs[from : from+n]
		if !caps.ServerClock {
			for j := range slice {
				slice[j].At = start + limit.Instant(i*n+j)
			}
		}
		h.Take(ctx, slice, out)
		if out[0].Err != nil {
			b.Fatal(out[0].Err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/req")
}
