package telemetry

import (
	"time"

	"github.com/headgate-rls/headgate/policies"
)

// AddPolicies publishes what is known of the policies in force.
func (m *Metrics) AddPolicies(in *policies.Set) { register(m.registry, policyRows(in), nil) }

func policyRows(in *policies.Set) []row {
	stat := func(name, help string, f func() float64) row {
		return figure(isGauge, f, metric{name: name, help: help})
	}
	age := func() float64 {
		d, _ := in.Age(time.Now())
		return d.Seconds()
	}
	return []row{
		stat("headgate_policies", "Policies in force.", func() float64 { return float64(in.Snapshot().Len()) }),
		stat("headgate_policies_loaded", "1 if policies have been read since the start, else 0.", func() float64 { return truth(in.Loaded()) }),
		stat("headgate_policies_age_seconds", "Time since the policies in force were compared with the database.", age),
		stat("headgate_policies_bytes", "Memory of the policies in force.", func() float64 { return float64(in.Snapshot().Bytes()) }),
		stat("headgate_policies_rejected_rows", "Rows of the table of policies that were ignored when all were last read, because they are invalid.",
			func() float64 { return float64(in.Rejected()) }),
	}
}
