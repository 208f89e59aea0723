package candidate

import "github.com/headgate-rls/headgate/internal/kit/metrics"

// Rows returns the table of the metrics.
func (k *Candidate) Rows() []metrics.Row {
	return []metrics.Row{
		k.decisions.Row("headgate_candidate_decisions_total",
			"Requests by what the live rules and the rules on trial answered: ok or over_limit.",
			metrics.Open("domain", "rule").Closed("live", "ok", "over_limit").Closed("candidate", "ok", "over_limit")),
		k.dropped.Row("headgate_candidate_dropped_total",
			"Requests, and renewals and ends of requests, that the rules on trial did not see because too many waited."),
		k.failed.Row("headgate_candidate_failures_total",
			"Requests that the rules on trial could not decide, because of their store or of the request."),
		metrics.GaugeOf("headgate_candidate_up", "Whether the last rules on trial could be read: 1, or 0 if not.",
			func() int { return metrics.Truth(k.state.Load().Error == "") }),
	}
}
