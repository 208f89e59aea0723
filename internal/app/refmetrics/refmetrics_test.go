package refmetrics

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/descriptors/rulefile"
	"github.com/headgate-rls/headgate/ratelimit"
)

func TestLabelsOfHits(t *testing.T) {
	for _, c := range []struct {
		domain, label string
		want          hitLabels
	}{
		{"d", "a_b", hitLabels{"d", "a_b", ""}},
		{"d", "a_b.c.e", hitLabels{"d", "a_b", "c"}},
		{"d", "ip_10.0.0.1.c", hitLabels{"d", "ip_10_0_0_1", "c"}},
		{"a.b", "c", hitLabels{"a", "b", "c"}}, // as the reference's mapping divides it
		{"d", "a:b|c", hitLabels{"d", "a_b_c", ""}},
		{"d", strings.Repeat("x", 3000), hitLabels{"d", strings.Repeat("x", maxHitLabel), ""}},
		{"d", "a\xff", hitLabels{"d", "a_", ""}},
	} {
		if got := labelsOfHits(c.domain, c.label); got != c.want {
			t.Errorf("%q %q: %+v, want %+v", c.domain, c.label, got, c.want)
		}
	}
}

// Series are bounded in number and in bytes; hits without a series of their own count by domain.
func TestHitsAreBounded(t *testing.T) {
	for _, size := range []int{1, 2000} {
		r := New(ratelimit.NewMetrics(), slog.New(slog.DiscardHandler))
		for i := range 3 * maxHitSeries {
			r.Hits("d", "", fmt.Sprintf("k_%d%s", i, strings.Repeat("x", size))).Total.Add(1)
		}
		if len(r.series) > maxHitSeries || r.bytes > maxHitBytes {
			t.Errorf("%d series of %d bytes", len(r.series), r.bytes)
		}
		sum := uint64(0)
		for _, s := range r.series {
			sum += s.Total.Load()
		}
		if other := r.series[hitLabels{domain: "d"}]; sum != 3*maxHitSeries || other == nil || other.Total.Load() == 0 {
			t.Errorf("%d hits are counted, want %d", sum, 3*maxHitSeries)
		}
		for i := range 3 * maxHitSeries { // domains of requests cannot fill the memory either
			r.Hits(fmt.Sprint("d", i), "", "k").Total.Add(1)
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
	r := New(ratelimit.NewMetrics(), slog.New(slog.DiscardHandler))
	// Two rules share a series, since deeper levels have no label.
	r.Hits("d", "a.b.x", "a.b.x").Total.Add(1)
	r.Hits("d", "a.b.y", "a.b.y").Total.Add(2)
	r.Hits("d", "", "a_1").Total.Add(1)
	shared := hitLabels{"d", "a", "b"}
	if len(r.series) != 2 || r.series[shared].Total.Load() != 3 {
		t.Fatalf("%v", r.series)
	}
	rule := "domain: d\ndescriptors: [{key: a, descriptors: [{key: b, descriptors: [{key: %s, rate_limit: {unit: day, " +
		"requests_per_unit: 1}}]}]}]\n"
	drop := func(value string) {
		r.RulesLoaded(load(fmt.Sprintf(rule, value)))
	}
	drop("y")
	if len(r.series) != 1 || r.series[shared].Total.Load() != 3 || r.bytes != shared.size() {
		t.Errorf("after one rule went: %v, %d bytes", r.series, r.bytes)
	}
	drop("z")
	if len(r.series) != 0 || r.bytes != 0 {
		t.Errorf("after both went: %v, %d bytes", r.series, r.bytes)
	}
}
