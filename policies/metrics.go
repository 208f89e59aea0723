package policies

import (
	"time"

	"github.com/headgate-rls/headgate/internal/kit/metrics"
)

// Rows returns the metrics of the policies in force.
func (s *Set) Rows() []metrics.Row {
	return []metrics.Row{
		metrics.GaugeOf("headgate_policies", "Policies in force.", func() int { return s.Snapshot().Len() }),
		metrics.GaugeOf("headgate_policies_unusable",
			"Policies that are not in force, because the store cannot keep their limits: the rules' own limits hold.",
			func() int { return s.Snapshot().Unusable() }),
		metrics.GaugeOf("headgate_policies_loaded", "1 if policies have been read since the start, else 0.",
			func() int { return metrics.Truth(s.Loaded()) }),
		metrics.GaugeOf("headgate_policies_age_seconds", "Time since the policies in force were compared with the database.",
			func() float64 {
				d, _ := s.Age(time.Now())
				return d.Seconds()
			}),
		metrics.GaugeOf("headgate_policies_bytes", "Memory of the policies in force.",
			func() int64 { return s.Snapshot().Bytes() }),
		metrics.GaugeOf("headgate_policies_rejected_rows",
			"Rows of the table of policies that were ignored when all were last read, because they are invalid.", s.Rejected),
	}
}
