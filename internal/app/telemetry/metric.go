package telemetry

import (
	"fmt"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// A metric says what there is to know of a metric: Prometheus and the
// documentation have it from here.
type metric struct {
	name, help string
	labels     []label
	kind       kind
}

// A kind of metric.
type kind string

// The kinds.
const (
	isCounter   kind = "counter"
	isGauge     kind = "gauge"
	isHistogram kind = "histogram"
)

// A label of a metric. Values are all that it can have, nil if that is not
// known beforehand.
type label struct {
	name   string
	values []string
}

// open returns labels whose values are not known beforehand.
func open(names ...string) []label {
	var list []label
	for _, name := range names {
		list = append(list, label{name: name})
	}
	return list
}

// closed adds a label with all its values.
func closed(labels []label, name string, values ...string) []label {
	return append(slices.Clone(labels), label{name, values})
}

// texts returns the texts of an enumeration's values from first to below end.
func texts[T interface {
	~uint8
	fmt.Stringer
}](first, end T) []string {
	var list []string
	for v := first; v < end; v++ {
		list = append(list, v.String())
	}
	return list
}

// names returns the names of the labels that are not fixed.
func (m *metric) names(fixed prometheus.Labels) []string {
	var list []string
	for _, l := range m.labels {
		if _, ok := fixed[l.name]; !ok {
			list = append(list, l.name)
		}
	}
	return list
}

// combinations returns every combination of the values of labels, none if one
// of them has values that are not known beforehand.
func combinations(labels []label) [][]string {
	all := [][]string{nil}
	for _, l := range labels {
		var longer [][]string
		for _, begin := range all {
			for _, v := range l.values {
				longer = append(longer, append(slices.Clone(begin), v))
			}
		}
		all = longer
	}
	return all
}

// A row of the table of metrics is a metric and how to make what publishes it,
// with labels that are fixed for all its series. make returns nil where
// a collector of another kind publishes the metric.
type row struct {
	metric
	make func(m *metric, fixed prometheus.Labels) prometheus.Collector
}

func counter(field *prometheus.Counter, m metric) row {
	m.kind = isCounter
	return row{m, func(m *metric, fixed prometheus.Labels) prometheus.Collector {
		*field = prometheus.NewCounter(prometheus.CounterOpts{Name: m.name, Help: m.help, ConstLabels: fixed})
		return *field
	}}
}

// counters returns the row of a counter with labels. Where all values of the
// labels are known, every series starts at 0: what is to raise an alarm the first
// time must have been there before.
func counters(field **prometheus.CounterVec, m metric) row {
	m.kind = isCounter
	return row{m, func(m *metric, fixed prometheus.Labels) prometheus.Collector {
		*field = prometheus.NewCounterVec(prometheus.CounterOpts{Name: m.name, Help: m.help, ConstLabels: fixed}, m.names(fixed))
		for _, values := range combinations(m.labels) {
			(*field).WithLabelValues(values...)
		}
		return *field
	}}
}

func gauge(field *prometheus.Gauge, m metric) row {
	m.kind = isGauge
	return row{m, func(m *metric, fixed prometheus.Labels) prometheus.Collector {
		*field = prometheus.NewGauge(prometheus.GaugeOpts{Name: m.name, Help: m.help, ConstLabels: fixed})
		return *field
	}}
}

func gauges(field **prometheus.GaugeVec, m metric) row {
	m.kind = isGauge
	return row{m, func(m *metric, fixed prometheus.Labels) prometheus.Collector {
		*field = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: m.name, Help: m.help, ConstLabels: fixed}, m.names(fixed))
		return *field
	}}
}

func histogram(field *prometheus.Histogram, buckets []float64, m metric) row {
	m.kind = isHistogram
	return row{m, func(m *metric, fixed prometheus.Labels) prometheus.Collector {
		*field = prometheus.NewHistogram(prometheus.HistogramOpts{Name: m.name, Help: m.help, ConstLabels: fixed, Buckets: buckets})
		return *field
	}}
}

func histograms(field **prometheus.HistogramVec, buckets []float64, m metric) row {
	m.kind = isHistogram
	return row{m, func(m *metric, fixed prometheus.Labels) prometheus.Collector {
		*field = prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: m.name, Help: m.help, ConstLabels: fixed, Buckets: buckets}, m.names(fixed))
		for _, values := range combinations(m.labels) {
			(*field).WithLabelValues(values...)
		}
		return *field
	}}
}

// described returns the row of a metric that a collector of another kind
// publishes by its description.
func described(field **prometheus.Desc, k kind, m metric) row {
	m.kind = k
	return row{m, func(m *metric, fixed prometheus.Labels) prometheus.Collector {
		*field = prometheus.NewDesc(m.name, m.help, m.names(fixed), fixed)
		return nil
	}}
}

// figure returns the row of a metric without labels whose value somebody else
// keeps.
func figure(k kind, value func() float64, m metric) row {
	m.kind = k
	return row{m, func(m *metric, fixed prometheus.Labels) prometheus.Collector {
		if m.kind == isCounter {
			return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: m.name, Help: m.help, ConstLabels: fixed}, value)
		}
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: m.name, Help: m.help, ConstLabels: fixed}, value)
	}}
}

// register makes what publishes the metrics of rows, and registers it.
func register(registry *prometheus.Registry, rows []row, fixed prometheus.Labels) {
	for i := range rows {
		if c := rows[i].make(&rows[i].metric, fixed); c != nil {
			registry.MustRegister(c)
		}
	}
}

// markdown returns the metric's line in the documentation.
func (m *metric) markdown() string {
	var labels []string
	for _, l := range m.labels {
		text := l.name
		if l.values != nil {
			text += " (`" + strings.Join(l.values, "`, `") + "`)"
		}
		labels = append(labels, text)
	}
	return fmt.Sprintf("| `%s` | %s | %s | %s |\n", m.name, m.kind, strings.Join(labels, ", "), strings.ReplaceAll(m.help, "|", `\|`))
}
