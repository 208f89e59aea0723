package middleware

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/go-chi/httprate"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
	ulule "github.com/ulule/limiter/v3"
	ululestore "github.com/ulule/limiter/v3/drivers/store/memory"

	"github.com/headgate-rls/headgate"
)

// A check asks whether a request of a user may pass, and reports whether it may.
type check = func(ctx context.Context, user string) (bool, error)

// checks are the candidates: one limit, and a counter for each user.
var checks = []struct {
	name string
	make func(b *testing.B) check
}{
	{"headgate/token_bucket", func(b *testing.B) check { return ourCheck(b, bucket) }},
	{"headgate/fixed_window", func(b *testing.B) check { return ourCheck(b, window) }},
	{"httprate", func(*testing.B) check {
		counter := httprate.NewLocalLimitCounter(time.Hour)
		l := httprate.NewRateLimiter(perHour, time.Hour, httprate.WithLimitCounter(counter))
		return func(_ context.Context, user string) (bool, error) { // as its OnLimit does it, without headers and lock
			ok, _, err := l.Status(user)
			if err == nil && ok {
				err = counter.Increment(user, time.Now().UTC().Truncate(time.Hour))
			}
			return ok, err
		}
	}},
	{"ulule", func(*testing.B) check {
		l := ulule.New(ululestore.NewStore(), ulule.Rate{Period: time.Hour, Limit: perHour})
		return func(ctx context.Context, user string) (bool, error) {
			c, err := l.Get(ctx, user)
			return !c.Reached, err
		}
	}},
	{"throttled", func(b *testing.B) check {
		l := gcra(b)
		return func(ctx context.Context, user string) (bool, error) {
			limited, _, err := l.RateLimitCtx(ctx, user, 1)
			return !limited, err
		}
	}},
}

func ourCheck(b *testing.B, spec string) check {
	l := ourLimiter(b, spec)
	return func(ctx context.Context, user string) (bool, error) {
		d, err := l.Check(ctx, "d", headgate.Describe("client", user))
		return d.Allowed, err
	}
}

// gcra is a limiter of throttled.
func gcra(b *testing.B) *throttled.GCRARateLimiterCtx {
	store, err := memstore.NewCtx(65536)
	if err != nil {
		b.Fatal(err)
	}
	l, err := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{MaxRate: throttled.PerSec(1_000_000),
		MaxBurst: 1_000_000_000})
	if err != nil {
		b.Fatal(err)
	}
	l.SetMaxCASAttemptsLimit(1000) // callers that share a key do not fail
	return l
}

// BenchmarkCheck measures a check that passes, of 1,000 users: by one goroutine, and by as many as there are cores.
func BenchmarkCheck(b *testing.B) {
	users := make([]string, 1000)
	for i := range users {
		users[i] = "user-" + strconv.Itoa(100_000+i)
	}
	ctx := context.Background()
	for _, callers := range []string{"one", "all"} {
		for _, c := range checks {
			b.Run(c.name+"/callers="+callers, func(b *testing.B) {
				allowed := c.make(b)
				once := func(at int) {
					if ok, err := allowed(ctx, users[at%len(users)]); !ok || err != nil {
						b.Errorf("refused: %v", err)
					}
				}
				for i := range users {
					once(i)
				}
				b.ReportAllocs()
				b.ResetTimer()
				before := cpuTime(b)
				if callers == "one" {
					for i := range b.N {
						once(i)
					}
				} else {
					b.RunParallel(func(p *testing.PB) {
						for at := int(clients.Add(1)) * 7919; p.Next(); at++ {
							once(at)
						}
					})
				}
				b.ReportMetric(float64(cpuTime(b)-before)/float64(b.N), "cpu-ns/op")
			})
		}
	}
}
