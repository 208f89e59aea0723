package xds

import "github.com/headgate-rls/headgate/internal/kit/metrics"

// Rows returns the metrics of the control plane that sends the rules. A nil Client has the same table.
func (c *Client) Rows() []metrics.Row {
	figure := func(f func(*Status) int64) func() int64 {
		return func() int64 { return f(c.Status()) }
	}
	truth := func(f func(*Status) bool) func() int64 {
		return figure(func(s *Status) int64 { return int64(metrics.Truth(f(s))) })
	}
	return []metrics.Row{
		metrics.GaugeOf("headgate_xds_connected", "1 if the control plane has answered on the present connection, else 0.",
			truth(func(s *Status) bool { return s.Connected })),
		metrics.CounterOf("headgate_xds_connection_failures_total", "Connections to the control plane that failed or ended.",
			figure(func(s *Status) int64 { return s.Failures })),
		metrics.CounterOf("headgate_xds_accepted_updates_total", "Responses of the control plane that were acknowledged.",
			figure(func(s *Status) int64 { return s.Accepted })),
		metrics.CounterOf("headgate_xds_rejected_updates_total",
			"Responses of the control plane of which a part was rejected.", figure(func(s *Status) int64 { return s.Refused })),
		metrics.GaugeOf("headgate_xds_last_update_timestamp_seconds",
			"When the control plane last sent rules; 0: not since the start.", func() float64 {
				s := c.Status()
				if s.Answered.IsZero() {
					return 0
				}
				return float64(s.Answered.UnixMilli()) / 1e3
			}),
		metrics.GaugeOf("headgate_xds_domains", "Domains in force that came by xDS.",
			figure(func(s *Status) int64 { return int64(s.Domains) })),
		metrics.GaugeOf("headgate_xds_rejected_domains", "Domains whose last version was rejected; they stay as they were.",
			figure(func(s *Status) int64 { return int64(len(s.Rejected)) })),
		metrics.GaugeOf("headgate_xds_kept_domains",
			"Domains in force that the control plane has not sent on this connection, or does not send any more.",
			figure(func(s *Status) int64 { return int64(len(s.Kept)) })),
		metrics.GaugeOf("headgate_xds_from_cache",
			"1 if the rules in force come from the cache file and the control plane has not confirmed them, else 0.",
			truth(func(s *Status) bool { return s.Cached })),
	}
}
