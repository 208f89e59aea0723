package prom

import (
	"math"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate-rls/headgate/internal/kit/metrics"
	"github.com/headgate-rls/headgate/test/random"
)

func scrape(t *testing.T, r *Registry) string {
	t.Helper()
	w := httptest.NewRecorder()
	r.Handler(true).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	return w.Body.String()
}

func wantLines(t *testing.T, text string, lines ...string) {
	t.Helper()
	for _, l := range lines {
		if !strings.Contains(text, l+"\n") {
			t.Errorf("no line %q in\n%s", l, text)
		}
	}
}

// TestHistogramIsThatOfPrometheus: however many observations come at once, a histogram has the
// buckets, count and sum of Prometheus' own histogram.
func TestHistogramIsThatOfPrometheus(t *testing.T) {
	var s metrics.Histograms
	registry, latency := New(), metrics.Latency
	registry.Add(s.Row("ours", "", latency, metrics.Open("x")))
	theirs := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "theirs", Buckets: latency})
	registry.MustRegister(theirs)
	ours := s.Of("a")
	if s.Of("a") != ours || s.Of("b") == ours {
		t.Error("a series is not the one of its labels")
	}
	rng := random.Rand(t, 5)
	for range 500 {
		d := time.Duration(rng.IntN(3_000_000)) * time.Microsecond
		if rng.IntN(2) == 0 {
			d = time.Duration(latency[rng.IntN(len(latency))] * float64(time.Second)) // as long as a bucket's bound
		}
		n := 1 + rng.IntN(64)
		ours.Took(d, n)
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
		t.Errorf("%d observations of %v s, want %d of %v", got.GetSampleCount(), got.GetSampleSum(), want.GetSampleCount(),
			want.GetSampleSum())
	}
	for i, b := range want.GetBucket() {
		if g := got.GetBucket()[i]; g.GetUpperBound() != b.GetUpperBound() ||
			g.GetCumulativeCount() != b.GetCumulativeCount() {
			t.Errorf("bucket %v, want %v", g, b)
		}
	}
}

// TestNothingIsLost: many may count, observe and read at the same time.
func TestNothingIsLost(t *testing.T) {
	var times metrics.Histograms
	var counts metrics.Counters
	r := New()
	r.Add(times.Row("times", "", metrics.Latency, metrics.Closed("x", "a", "b")),
		counts.Row("counts", "", metrics.Open("x").Closed("y", "a", "b")))
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 1000 {
				times.Of("a").Took(time.Minute, 3)
				counts.Of("é", "b").Add(2)
			}
		})
	}
	for range 20 {
		scrape(t, r)
	}
	wg.Wait()
	wantLines(t, scrape(t, r), `times_count{x="a"} 12000`, `times_bucket{x="a",le="1"} 0`, `times_sum{x="a"} 720000`,
		`times_count{x="b"} 0`,
		`counts{x="é",y="b"} 8000`, `counts{x="é",y="a"} 0`)
}

// TestRowsOfOneNameAreOneMetric: several parts may have series of a metric, and series may leave out the last labels if
// the row says so.
func TestRowsOfOneNameAreOneMetric(t *testing.T) {
	r := New()
	row := func(labels ...string) metrics.Row {
		return metrics.Row{Name: "rows", Help: "a", Kind: metrics.IsGauge, Ragged: true, Labels: metrics.Open("x", "y"),
			Each: func(emit metrics.Emit) { emit(labels, 1, nil) }}
	}
	r.Add(row("a", "b"), row("c"))
	r.Add(row("d", "e"), metrics.CounterOf("figure", "b", func() int { return 3 }))
	wantLines(t, scrape(t, r), `rows{x="a",y="b"} 1`, `rows{x="c"} 1`, `rows{x="d",y="e"} 1`, "figure 3",
		"# TYPE figure counter", "# HELP rows a")
}

// TestScrapesAreBounded: clients that do not read their answers keep the metrics in memory a few times, not
// as often as they ask.
func TestScrapesAreBounded(t *testing.T) {
	r := New()
	r.AddProcess()
	h := r.Handler(true)
	unread, read := make(chan struct{}), make(chan struct{})
	var slow sync.WaitGroup
	for range maxScrapes {
		slow.Go(func() {
			h.ServeHTTP(&slowReader{ResponseRecorder: httptest.NewRecorder(), unread: unread, read: read},
				httptest.NewRequest("GET", "/metrics", nil))
		})
	}
	for range maxScrapes {
		<-unread
	}
	for _, want := range []int{503, 200} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
		if w.Code != want {
			t.Errorf("%d, want %d", w.Code, want)
		}
		if want == 503 {
			close(read)
			slow.Wait()
		}
	}
}

// A slowReader does not read its answer for a while.
type slowReader struct {
	*httptest.ResponseRecorder
	begun        sync.Once
	unread, read chan struct{}
}

func (s *slowReader) Write(p []byte) (int, error) {
	s.begun.Do(func() { s.unread <- struct{}{} })
	<-s.read
	return s.ResponseRecorder.Write(p)
}
