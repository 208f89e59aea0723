package background

import "github.com/headgate-rls/headgate/internal/kit/metrics"

// Panics count panics for a [Reporter].
type Panics struct {
	where metrics.Counters
	rows  []metrics.Row
}

// NewPanics returns a count of no panics.
func NewPanics() *Panics {
	p := new(Panics)
	p.rows = []metrics.Row{p.where.Row("headgate_panics_total",
		"Panics that did not end the process, by where they happened. Each is a defect, and the log has its stack. "+
			"Policies answer the calls concerned.",
		metrics.Open("where"))}
	for _, where := range []string{"backend", "combine", "fallback", "connection", "worker", "grpc", "stream"} {
		p.where.Of(where)
	}
	return p
}

// Rows returns the table of the metrics.
func (p *Panics) Rows() []metrics.Row { return p.rows }

// Count counts a panic, as [Reporter.Count] does.
func (p *Panics) Count(where string) { p.where.Of(where).Inc() }
