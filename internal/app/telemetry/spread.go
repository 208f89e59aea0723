package telemetry

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// A spread is a histogram that takes many equal observations at once. All cores
// write the same few: those of a slice of calls cost one write of a bucket and one
// of the sum.
type spread struct {
	desc   *prometheus.Desc
	bounds []float64 // of the buckets but the last, in seconds

	mu     sync.Mutex
	series []*spreadSeries
}

// A spreadSeries is what is observed under some labels.
type spreadSeries struct {
	bounds  []time.Duration
	labels  []string
	buckets []atomic.Uint64 // not cumulative; the last has no bound
	sum     atomic.Uint64   // in units of 10 ns, which last for years of a million calls a second
	_       [64]byte        // other series are on other cache lines
}

const spreadUnit = 10 * time.Nanosecond

// spreads returns the row of such a histogram.
func spreads(field **spread, buckets []float64, m metric) row {
	m.kind = isHistogram
	return row{m, func(m *metric, fixed prometheus.Labels) prometheus.Collector {
		s := &spread{desc: prometheus.NewDesc(m.name, m.help, m.names(fixed), fixed), bounds: buckets}
		*field = s
		return s
	}}
}

// with returns the series with these labels, which is there from then on.
func (s *spread) with(labels ...string) *spreadSeries {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.series {
		if slices.Equal(one.labels, labels) {
			return one
		}
	}
	one := &spreadSeries{labels: labels, buckets: make([]atomic.Uint64, len(s.bounds)+1)}
	for _, bound := range s.bounds {
		one.bounds = append(one.bounds, time.Duration(bound*float64(time.Second)))
	}
	s.series = append(s.series, one)
	return one
}

// observe adds n observations of d.
func (s *spreadSeries) observe(d time.Duration, n int) {
	d, i := max(d, 0), 0
	for i < len(s.bounds) && d > s.bounds[i] {
		i++
	}
	s.buckets[i].Add(uint64(n))
	s.sum.Add(uint64(d) * uint64(n) / uint64(spreadUnit))
}

// Describe implements [prometheus.Collector].
func (s *spread) Describe(ch chan<- *prometheus.Desc) { ch <- s.desc }

// Collect implements [prometheus.Collector].
func (s *spread) Collect(ch chan<- prometheus.Metric) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.series {
		count, buckets := uint64(0), make(map[float64]uint64, len(s.bounds))
		for i, bound := range s.bounds {
			count += one.buckets[i].Load()
			buckets[bound] = count
		}
		count += one.buckets[len(s.bounds)].Load()
		sum := float64(one.sum.Load()) * spreadUnit.Seconds()
		ch <- prometheus.MustNewConstHistogram(s.desc, count, sum, buckets, one.labels...)
	}
}
