package backendtest_test

import (
	"context"
	"os"
	"testing"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/backends/backendtest"
	"github.com/headgate-rls/headgate/backends/redis"
)

// envURL names the store to the processes that the suite starts.
const envURL = "EXAMPLE_REDIS_URL"

func conf(tb testing.TB) redis.Config {
	c, err := redis.Parse(os.Getenv(envURL))
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

func open(tb testing.TB) backends.Backend {
	b, err := redis.Open(context.Background(), conf(tb), nil)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// A driver's tests need little more than these three, under the names that are
// given here. TestChild is one of several processes of TestConformance.
func Example() {
	_ = []testing.InternalTest{
		{Name: "TestConformance", F: func(t *testing.T) {
			backendtest.Run(t, backendtest.Suite{
				Caps: conf(t).Caps(), Open: open, Shared: true,
				Child: "TestChild", ChildEnv: []string{envURL + "=" + os.Getenv(envURL)},
			})
		}},
		{Name: "TestChild", F: func(t *testing.T) { backendtest.Child(t, open) }},
	}
	_ = testing.InternalBenchmark{Name: "BenchmarkTake", F: func(b *testing.B) {
		backendtest.Benchmark(b, conf(b).Caps(), open)
	}}
}
