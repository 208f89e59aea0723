package metrics

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// Latency has bounds from 50 µs to 1 s for times, in seconds; Envoy's default deadline is 20 ms.
var Latency = []float64{50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 20e-3, 50e-3, 100e-3,
	250e-3, 500e-3, 1}

// Histograms are the histograms of one metric. [Histograms.Row] is called before any other method.
type Histograms struct {
	bounds []float64
	parts  float64

	mu     sync.Mutex
	labels int
	series map[labelSet]*Histogram
}

// A Histogram counts observations by their size. It takes many equal ones at once: all cores write the same few words,
// and those of a slice of calls cost one write of a bucket and one of the sum.
type Histogram struct {
	bounds  []float64
	parts   float64         // of 1, in the sum
	buckets []atomic.Uint64 // not cumulative; the last has no bound
	sum     atomic.Uint64   // of parts
	_       [64]byte        // other series are on other cache lines
}

// Sums of small figures have parts that last for years of a million calls a second, those of large ones for a lot of
// days.
const fineParts, coarseParts = 1e8, 1e3

// Row names the histograms and returns their row. Where all values of the labels are known, there are all series.
func (h *Histograms) Row(name, help string, bounds []float64, labels Labels) Row {
	h.bounds, h.labels, h.series, h.parts = bounds, len(labels), map[labelSet]*Histogram{}, fineParts
	if bounds[0] >= 1 {
		h.parts = coarseParts
	}
	for _, values := range combinations(labels) {
		h.Of(values...)
	}
	return Row{Name: name, Help: help, Kind: IsHistogram, Labels: labels, Each: h.each}
}

// Of returns the histogram under labels, which is there for good.
func (h *Histograms) Of(labels ...string) *Histogram { return h.OfAtMost(math.MaxInt, "", labels...) }

// OfAtMost is Of while there are less than most series; after that, new first labels are the other one.
func (h *Histograms) OfAtMost(most int, other string, labels ...string) *Histogram {
	h.mu.Lock()
	defer h.mu.Unlock()
	key := setOf(labels)
	if h.series[key] == nil && len(h.series) >= most {
		key[0] = other
	}
	one := h.series[key]
	if one == nil {
		one = &Histogram{bounds: h.bounds, parts: h.parts, buckets: make([]atomic.Uint64, len(h.bounds)+1)}
		h.series[key] = one
	}
	return one
}

// Took adds n observations of a time, in seconds.
func (h *Histogram) Took(d time.Duration, n int) { h.Observe(max(d, 0).Seconds(), n) }

// Observe adds n observations of v, which is not negative.
func (h *Histogram) Observe(v float64, n int) {
	i := 0
	for i < len(h.bounds) && v > h.bounds[i] {
		i++
	}
	h.buckets[i].Add(uint64(n))
	h.sum.Add(uint64(math.Round(v*h.parts)) * uint64(n))
}

func (h *Histograms) each(emit Emit) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for labels, one := range h.series {
		c := Counts{Buckets: make(map[float64]uint64, len(h.bounds))}
		for i, bound := range h.bounds {
			c.Count += one.buckets[i].Load()
			c.Buckets[bound] = c.Count
		}
		c.Count += one.buckets[len(h.bounds)].Load()
		c.Sum = float64(one.sum.Load()) / h.parts
		emit(labels[:h.labels], 0, &c)
	}
}
