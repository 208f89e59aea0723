package refmetrics

import (
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"testing"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/descriptors/rulefile"
	"github.com/headgate-rls/headgate/internal/kit/metrics"
	"github.com/headgate-rls/headgate/ratelimit"
)

func TestLabelsOfHits(t *testing.T) {
	for _, c := range []struct {
		domain, label string
		want          hitLabels
	}{
		{"d", "a_b", hitLabels{"d", "a_b", "", ""}},
		{"d", "a_b.c.e", hitLabels{"d", "a_b", "c", "e"}},
		{"d", "ip_10.0.0.1.c", hitLabels{"d", "ip_10_0_0_1", "c", ""}},
		{"d", "a.b.c.e", hitLabels{"d", "a", "b", "c.e"}},
		{"a.b", "c", hitLabels{"a", "b", "c", ""}}, // as the reference's mapping divides it
		{"d", "a:b|c", hitLabels{"d", "a_b_c", "", ""}},
		{"d", strings.Repeat("x", 3000), hitLabels{"d", strings.Repeat("x", maxHitLabel), "", ""}},
		{"d", "a\xff", hitLabels{"d", "a_", "", ""}},
	} {
		if got := labelsOfHits(c.domain, c.label); got != c.want {
			t.Errorf("%q %q: %+v, want %+v", c.domain, c.label, got, c.want)
		}
	}
}

// Series are bounded in number and in bytes; hits without a series of their own count by domain.
func TestHitsAreBounded(t *testing.T) {
	const many = maxHitSeries * 5 / 4
	for _, size := range []int{1, 2000} {
		r := New(ratelimit.NewMetrics(), slog.New(slog.DiscardHandler), Config{NearLimit: 0.8, Levels: size == 1})
		for i := range many {
			r.of("d", "", fmt.Sprintf("k_%d%s", i, strings.Repeat("x", size))).total.Add(1)
		}
		if len(r.series) > maxHitSeries || r.bytes > maxHitBytes {
			t.Errorf("%d series of %d bytes", len(r.series), r.bytes)
		}
		sum := uint64(0)
		for _, s := range r.series {
			sum += s.total.Load()
		}
		if other := r.series[hitLabels{domain: "d"}]; sum != many || other == nil || other.total.Load() == 0 {
			t.Errorf("%d hits are counted, want %d", sum, many)
		}
		for i := range many { // domains of requests cannot fill the memory either
			r.of(fmt.Sprint("d", i), "", "k").total.Add(1)
		}
		if len(r.series) > maxHitSeries || r.bytes > maxHitBytes {
			t.Errorf("after many domains: %d series of %d bytes", len(r.series), r.bytes)
		}
	}
}

func TestSeriesOfHitsGoWithTheirRules(t *testing.T) {
	load := func(text string) *descriptors.Set {
		set, problems := rulefile.Load([]rulefile.Source{{Name: "f", Data: []byte(text)}}, rulefile.Options{})
		if set == nil {
			t.Fatal(problems)
		}
		return set
	}
	r := New(ratelimit.NewMetrics(), slog.New(slog.DiscardHandler), Config{NearLimit: 0.8})
	// Two rules share a series, since deeper levels have no label.
	r.of("d", "a.b.x", "a.b.x").total.Add(1)
	r.of("d", "a.b.y", "a.b.y").total.Add(2)
	r.of("d", "", "a_1").total.Add(1)
	shared := hitLabels{"d", "a", "b", ""}
	if len(r.series) != 2 || r.series[shared].total.Load() != 3 {
		t.Fatalf("%v", r.series)
	}
	rule := "domain: d\ndescriptors: [{key: a, descriptors: [{key: b, descriptors: [{key: %s, rate_limit: {unit: day, " +
		"requests_per_unit: 1}}]}]}]\n"
	drop := func(value string) {
		r.RulesLoaded(load(fmt.Sprintf(rule, value)))
	}
	drop("y")
	if len(r.series) != 1 || r.series[shared].total.Load() != 3 || r.bytes != shared.size() {
		t.Errorf("after one rule went: %v, %d bytes", r.series, r.bytes)
	}
	drop("z")
	if len(r.series) != 0 || r.bytes != 0 {
		t.Errorf("after both went: %v, %d bytes", r.series, r.bytes)
	}
}

// StatsD has a series for each level of a rule, and Prometheus their sum.
func TestLevelsBelowTheLabels(t *testing.T) {
	for _, levels := range []bool{false, true} {
		m := New(ratelimit.NewMetrics(), slog.New(slog.DiscardHandler), Config{NearLimit: 0.8, Levels: levels})
		m.of("d", "", "a.b.c").total.Add(1)
		m.of("d", "", "a.b.e.f").total.Add(2)
		read := func(each func(metrics.Emit)) map[string]float64 {
			all := map[string]float64{}
			each(func(labels []string, v float64, _ *metrics.Counts) {
				name := strings.TrimRight(strings.Join(labels, "."), ".")
				if _, twice := all[name]; twice {
					t.Errorf("levels %v: %s comes twice", levels, name)
				}
				all[name] = v
			})
			return all
		}
		if got := read(m.Rows()[0].Each); !maps.Equal(got, map[string]float64{"d.a.b": 3}) {
			t.Errorf("levels %v: Prometheus gets %v", levels, got)
		}
		want := map[string]float64{"d.a.b": 3}
		if levels {
			want = map[string]float64{"d.a.b.c": 1, "d.a.b.e.f": 2}
		}
		if got := read(m.StatsD(nil)[0].Row.Each); !maps.Equal(got, want) {
			t.Errorf("levels %v: StatsD gets %v, want %v", levels, got, want)
		}
	}
}
