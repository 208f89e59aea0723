package candidate

import "github.com/headgate-rls/headgate/internal/kit/metrics"

// figures are what a candidate counts.
type figures struct {
	decisions metrics.Counters
	dropped   metrics.Counter
	failed    metrics.Counter
}

// rows returns the table of the metrics. up says whether the last rules could be read.
func (f *figures) rows(up func() int) []metrics.Row {
	return []metrics.Row{
		f.decisions.Row("headgate_candidate_decisions_total",
			"Requests by what the live rules and the rules on trial answered: ok or over_limit.",
			metrics.Open("domain", "rule").Closed("live", "ok", "over_limit").Closed("candidate", "ok", "over_limit")),
		f.dropped.Row("headgate_candidate_dropped_total",
			"Requests, and renewals and ends of requests, that the rules on trial did not see because too many waited."),
		f.failed.Row("headgate_candidate_failures_total",
			"Requests that the rules on trial could not decide, because of their store or of the request."),
		metrics.GaugeOf("headgate_candidate_up", "Whether the last rules on trial could be read: 1, or 0 if not.",
			up),
	}
}
