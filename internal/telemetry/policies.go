package telemetry

import "time"

// PolicyStats are figures about the policies in force.
type PolicyStats struct {
	Loaded          bool
	Policies        int
	Bytes, Rejected int64
	Age             time.Duration // since they were compared with the database
}

// AddPolicies publishes what is known of the policies, which read returns.
func (m *Metrics) AddPolicies(read func() PolicyStats) { register(m.registry, policyRows(read), nil) }

func policyRows(read func() PolicyStats) []row {
	stat := func(name, help string, f func(PolicyStats) float64) row {
		return figure(isGauge, func() float64 { return f(read()) }, metric{name: name, help: help})
	}
	return []row{
		stat("headgate_policies", "Policies in force.", func(s PolicyStats) float64 { return float64(s.Policies) }),
		stat("headgate_policies_loaded", "1 if policies have been read since the start, else 0.", func(s PolicyStats) float64 { return truth(s.Loaded) }),
		stat("headgate_policies_age_seconds", "Time since the policies in force were compared with the database.", func(s PolicyStats) float64 { return s.Age.Seconds() }),
		stat("headgate_policies_bytes", "Memory of the policies in force.", func(s PolicyStats) float64 { return float64(s.Bytes) }),
		stat("headgate_policies_rejected_rows", "Rows of the table of policies that were ignored when all were last read, because they are invalid.",
			func(s PolicyStats) float64 { return float64(s.Rejected) }),
	}
}
