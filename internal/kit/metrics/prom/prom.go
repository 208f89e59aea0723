package prom

import (
	"net/http"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/headgate-rls/headgate/internal/kit/metrics"
)

// A Registry has the metrics of a program or a library. Its methods may be called concurrently.
type Registry struct {
	*prometheus.Registry // of all; as a collector, for the registry of another program

	mu     sync.Mutex
	byName map[string]*collector
}

// New returns a registry without metrics.
func New() *Registry {
	return &Registry{Registry: prometheus.NewRegistry(), byName: map[string]*collector{}}
}

// Add adds rows. Those with the name of one that is there add series to it.
func (r *Registry) Add(rows ...metrics.Row) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range rows {
		row := &rows[i]
		if c := r.byName[row.Name]; c != nil {
			c.add(row)
			continue
		}
		c := newCollector(row)
		r.byName[row.Name] = c
		r.MustRegister(c)
	}
}

// AddProcess adds what every program has of the Go runtime and the process.
func (r *Registry) AddProcess() {
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
}

// maxScrapes is how many requests for metrics are answered at a time, others get 503: each keeps all
// metrics in memory until its client has read them.
const maxScrapes = 16

// Handler serves the metrics in Prometheus' text format, and in that of OpenMetrics if asked to, which renames counters
// to end with _total.
func (r *Registry) Handler(openMetrics bool) http.Handler {
	return promhttp.HandlerFor(r, promhttp.HandlerOpts{EnableOpenMetrics: openMetrics, MaxRequestsInFlight: maxScrapes})
}

// A collector publishes the rows of one name.
type collector struct {
	descs []*prometheus.Desc // by how many labels a series leaves out
	kind  prometheus.ValueType

	mu   sync.Mutex
	rows []*metrics.Row
}

func newCollector(row *metrics.Row) *collector {
	c := &collector{kind: prometheus.GaugeValue, rows: []*metrics.Row{row}}
	if row.Kind == metrics.IsCounter {
		c.kind = prometheus.CounterValue
	}
	names := row.Labels.Names()
	c.descs = []*prometheus.Desc{prometheus.NewDesc(row.Name, row.Help, names, nil)}
	for n := len(names) - 1; row.Ragged && n > 0; n-- {
		c.descs = append(c.descs, prometheus.NewDesc(row.Name, row.Help, names[:n], nil))
	}
	return c
}

func (c *collector) add(row *metrics.Row) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rows = append(c.rows, row)
}

// Describe implements [prometheus.Collector]. It names nothing if series have different labels.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	if len(c.descs) == 1 {
		ch <- c.descs[0]
	}
}

// Collect implements [prometheus.Collector].
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	most := len(c.rows[0].Labels)
	emit := func(labels []string, v float64, h *metrics.Counts) {
		desc := c.descs[most-len(labels)]
		if h != nil {
			ch <- prometheus.MustNewConstHistogram(desc, h.Count, h.Sum, h.Buckets, labels...)
			return
		}
		ch <- prometheus.MustNewConstMetric(desc, c.kind, v, labels...)
	}
	for _, row := range c.rows {
		if row.Value != nil {
			emit(nil, row.Value(), nil)
		} else {
			row.Each(emit)
		}
	}
}
