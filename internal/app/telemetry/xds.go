package telemetry

import "time"

// XDSStats are figures about the control plane that sends the rules.
type XDSStats struct {
	Connected, Cached           bool
	Accepted, Refused, Failures int64
	Answered                    time.Time // when it last sent rules; zero: never
	Domains, Rejected, Kept     int
}

// AddXDS publishes what is known of the control plane that sends the rules, which read
// returns.
func (m *Metrics) AddXDS(read func() XDSStats) { register(m.registry, xdsRows(read), nil) }

func xdsRows(read func() XDSStats) []row {
	stat := func(k kind, name, help string, f func(XDSStats) float64) row {
		return figure(k, func() float64 { return f(read()) }, metric{name: name, help: help})
	}
	return []row{
		stat(isGauge, "headgate_xds_connected", "1 if the control plane has answered on the present connection, else 0.",
			func(s XDSStats) float64 { return truth(s.Connected) }),
		stat(isCounter, "headgate_xds_connection_failures_total", "Connections to the control plane that failed or ended.",
			func(s XDSStats) float64 { return float64(s.Failures) }),
		stat(isCounter, "headgate_xds_accepted_updates_total", "Responses of the control plane that were acknowledged.",
			func(s XDSStats) float64 { return float64(s.Accepted) }),
		stat(isCounter, "headgate_xds_rejected_updates_total", "Responses of the control plane of which a part was rejected.",
			func(s XDSStats) float64 { return float64(s.Refused) }),
		stat(isGauge, "headgate_xds_last_update_timestamp_seconds", "When the control plane last sent rules; 0: not since the start.",
			func(s XDSStats) float64 { return seconds(s.Answered) }),
		stat(isGauge, "headgate_xds_domains", "Domains in force that came by xDS.",
			func(s XDSStats) float64 { return float64(s.Domains) }),
		stat(isGauge, "headgate_xds_rejected_domains", "Domains whose last version was rejected; they stay as they were.",
			func(s XDSStats) float64 { return float64(s.Rejected) }),
		stat(isGauge, "headgate_xds_kept_domains", "Domains in force that the control plane has not sent on this connection, or does not send any more.",
			func(s XDSStats) float64 { return float64(s.Kept) }),
		stat(isGauge, "headgate_xds_from_cache", "1 if the rules in force come from the cache file and the control plane has not confirmed them, else 0.",
			func(s XDSStats) float64 { return truth(s.Cached) }),
	}
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func seconds(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMilli()) / 1e3
}
