package statsd

import (
	"maps"
	"slices"

	"github.com/headgate-rls/headgate/internal/kit/metrics"
)

// A Metric is a row under its name in StatsD, in which {} stands for the values of the row's labels with dots between
// them.
type Metric struct {
	Name string
	Row  metrics.Row
}

// A key is what the collector knows a series by.
type key struct {
	metric int // in Config.Metrics
	labels [4]string
	bucket float64 // of a histogram: its upper bound
}

// A sample is a series at an instant.
type sample struct {
	key
	kind  metrics.Kind
	value float64 // of a histogram: observations in the bucket
	size  float64 // of one of those, in milliseconds
}

// collect reads all rows.
func collect(all []Metric) (list []sample) {
	for i := range all {
		row := &all[i].Row
		emit := func(labels []string, value float64, h *metrics.Counts) {
			sm := sample{key: key{metric: i}, kind: row.Kind, value: value}
			copy(sm.labels[:], labels)
			if h == nil {
				list = append(list, sm)
				return
			}
			list = append(list, buckets(sm, h)...)
		}
		if row.Value != nil {
			emit(nil, row.Value(), nil)
		} else {
			row.Each(emit)
		}
	}
	return list
}

// buckets returns a sample for each bucket of a histogram of seconds. An observation counts as long as the middle of
// its bucket, or as the last bound.
func buckets(of sample, h *metrics.Counts) (list []sample) {
	below, count := 0.0, uint64(0)
	for _, b := range slices.Sorted(maps.Keys(h.Buckets)) {
		of.bucket, of.size, of.value = b, (below+b)/2*1000, float64(h.Buckets[b]-count)
		list = append(list, of)
		below, count = b, h.Buckets[b]
	}
	of.bucket, of.size, of.value = -1, below*1000, float64(h.Count-count)
	return append(list, of)
}
