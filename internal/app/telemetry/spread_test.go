package telemetry

import (
	"math"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate-rls/headgate/ratelimit"
	"github.com/headgate-rls/headgate/test/random"
)

// TestSpreadIsAHistogram: however many observations come at once, a spread has the
// buckets, count and sum of Prometheus' own histogram.
func TestSpreadIsAHistogram(t *testing.T) {
	var s *spread
	registry := prometheus.NewRegistry()
	register(registry, []row{spreads(&s, latency, metric{name: "ours", labels: open("x")})}, nil)
	theirs := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "theirs", Buckets: latency})
	registry.MustRegister(theirs)
	ours := s.with("a")
	if s.with("a") != ours || s.with("b") == ours {
		t.Error("a series is not the one of its labels")
	}
	rng := random.Rand(t, 5)
	for range 500 {
		d := time.Duration(rng.IntN(3_000_000)) * time.Microsecond
		if rng.IntN(2) == 0 {
			d = time.Duration(latency[rng.IntN(len(latency))] * float64(time.Second)) // as long as a bucket's bound
		}
		n := 1 + rng.IntN(64)
		ours.observe(d, n)
		for range n {
			theirs.Observe(d.Seconds())
		}
	}
	families, err := registry.Gather()
	if err != nil || len(families) != 2 {
		t.Fatal(families, err)
	}
	got, want := families[0].GetMetric()[0].GetHistogram(), families[1].GetMetric()[0].GetHistogram()
	if got.GetSampleCount() != want.GetSampleCount() || math.Abs(got.GetSampleSum()/want.GetSampleSum()-1) > 1e-9 {
		t.Errorf("%d observations of %v s, want %d of %v", got.GetSampleCount(), got.GetSampleSum(), want.GetSampleCount(), want.GetSampleSum())
	}
	for i, b := range want.GetBucket() {
		if g := got.GetBucket()[i]; g.GetUpperBound() != b.GetUpperBound() || g.GetCumulativeCount() != b.GetCumulativeCount() {
			t.Errorf("bucket %v, want %v", g, b)
		}
	}
}

// TestSpreadLosesNothing: many may observe, and read, at the same time.
func TestSpreadLosesNothing(t *testing.T) {
	m := New("v1")
	observe := m.Requests("unary")
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 1000 {
				observe(time.Minute, ratelimit.CallOK, 3)
			}
		})
	}
	for range 20 {
		scrape(t, m)
	}
	wg.Wait()
	wantLines(t, scrape(t, m), `headgate_request_duration_seconds_count{result="ok",transport="unary"} 12000`,
		`headgate_request_duration_seconds_bucket{result="ok",transport="unary",le="1"} 0`,
		`headgate_request_duration_seconds_sum{result="ok",transport="unary"} 720000`)
}
