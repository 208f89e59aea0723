// Package middleware measures the net/http middleware beside those of other modules, with
// counters in memory. It is a module of its own, so that headgate does not depend on them.
package middleware

import (
	"context"
	"net/http"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/didip/tollbooth/v7"
	"github.com/go-chi/httprate"
	"github.com/throttled/throttled/v2"
	ulule "github.com/ulule/limiter/v3"
	ululehttp "github.com/ulule/limiter/v3/drivers/middleware/stdlib"
	ululestore "github.com/ulule/limiter/v3/drivers/store/memory"

	"github.com/headgate-rls/headgate"
	"github.com/headgate-rls/headgate/middleware"
)

// perHour is a limit that no run reaches.
const perHour = 1_000_000_000

type wrap = func(http.Handler) http.Handler

// Limits of ours that no run reaches.
const (
	bucket = "{algorithm: token_bucket, rate: 1000000/s, burst: 1000000000}"
	window = "{algorithm: fixed_window, limit: 1000000000, window: 1h}"
)

// ourLimiter returns a limiter with one limit of an algorithm.
func ourLimiter(b *testing.B, spec string) *headgate.Limiter {
	rules := "domain: d\ndescriptors: [{key: client, limits: [" + spec + "]}]\n"
	l, err := headgate.Open(context.Background(),
		headgate.Options{Rules: []headgate.Rules{headgate.YAML("r.yaml", rules)}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = l.Close() })
	return l
}

// ours returns the middleware with one limit of an algorithm.
func ours(b *testing.B, spec string) wrap {
	return middleware.Handler(ourLimiter(b, spec), middleware.Config{Domain: "d"})
}

// modules are the candidates, all by the client's address. "exact" says whether the
// algorithm admits what the limit says and no more.
var modules = []struct {
	name string
	make func(b *testing.B) wrap
}{
	{"headgate/token_bucket", func(b *testing.B) wrap { return ours(b, bucket) }},
	{"headgate/fixed_window", func(b *testing.B) wrap { return ours(b, window) }},
	{"headgate/sliding_window", func(b *testing.B) wrap {
		return ours(b, "{algorithm: sliding_window, limit: 1000000000, window: 1h}")
	}},
	{"httprate", func(*testing.B) wrap { return httprate.LimitByIP(perHour, time.Hour) }},
	{"ulule", func(*testing.B) wrap {
		l := ulule.New(ululestore.NewStore(), ulule.Rate{Period: time.Hour, Limit: perHour})
		return ululehttp.NewMiddleware(l).Handler
	}},
	{"throttled", func(b *testing.B) wrap {
		return (&throttled.HTTPRateLimiterCtx{RateLimiter: gcra(b), VaryBy: &throttled.VaryBy{RemoteAddr: true}}).RateLimit
	}},
	{"tollbooth", func(*testing.B) wrap {
		l := tollbooth.NewLimiter(1_000_000, nil)
		l.SetIPLookups([]string{"RemoteAddr"})
		return func(next http.Handler) http.Handler { return tollbooth.LimitHandler(l, next) }
	}},
}

// An answer is a ResponseWriter that costs nothing.
type answer struct {
	header http.Header
	code   int
}

func (a *answer) Header() http.Header         { return a.header }
func (a *answer) Write(p []byte) (int, error) { return len(p), nil }
func (a *answer) WriteHeader(code int)        { a.code = code }

var clients atomic.Int64

// BenchmarkMiddleware measures a request that passes: of one client, and of 10,000.
func BenchmarkMiddleware(b *testing.B) {
	passed := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	for _, n := range []int{1, 10_000} {
		for _, m := range modules {
			b.Run(m.name+"/clients="+strconv.Itoa(n), func(b *testing.B) {
				h := m.make(b)(passed)
				requests := make([]*http.Request, n)
				for i := range requests {
					r, err := http.NewRequest(http.MethodGet, "http://shop/items", nil)
					if err != nil {
						b.Fatal(err)
					}
					r.RemoteAddr = "10." + strconv.Itoa(i/65536) + "." + strconv.Itoa(i/256%256) + "." + strconv.Itoa(i%256) + ":40000"
					requests[i] = r
				}
				b.ReportAllocs()
				before := cpuTime(b)
				b.RunParallel(func(p *testing.PB) {
					at := int(clients.Add(1)) * 7919
					w := &answer{header: http.Header{}}
					for p.Next() {
						at++
						clear(w.header)
						h.ServeHTTP(w, requests[at%n])
						if w.code != http.StatusOK {
							b.Errorf("answered with %d", w.code)
							return
						}
					}
				})
				b.ReportMetric(float64(cpuTime(b)-before)/float64(b.N), "cpu-ns/op")
			})
		}
	}
}

// cpuTime is the CPU time of the process, in ns. On a busy machine it says more than the
// time that passes.
func cpuTime(b *testing.B) int64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}
