package config

import (
	"time"

	"github.com/headgate-rls/headgate/internal/kit/settings"
)

// StatsD has the settings of metrics that are sent to a collector.
type StatsD struct {
	Address, Protocol string
	Tags              []string
	Interval          time.Duration
}

// settings returns the rows of the table for StatsD, which sends the metrics of --reference-metrics.
func (c *StatsD) settings(reference *bool) []settings.Setting {
	used := settings.Needs(func() bool { return c.Address != "" }, "needs --statsd")
	return []settings.Setting{
		settings.Row("statsd", &c.Address, "",
			"`host:port` of a StatsD collector, which gets the metrics of --reference-metrics; empty: disabled",
			settings.Check(target), settings.Needs(func() bool { return *reference }, "needs --reference-metrics")),
		settings.Row("statsd-protocol", &c.Protocol, "udp",
			"protocol of --statsd: udp, tcp or dogstatsd (udp, with tags at the end of a line)",
			settings.OneOf("udp", "tcp", "dogstatsd")),
		settings.Row("statsd-tag", &c.Tags, nil,
			"`key:value` tag of every metric of --statsd, which ends its name as .__key=value, or for dogstatsd its line as "+
				"|#key:value; may be repeated",
			settings.Check(pairs(":")), used),
		settings.Row("statsd-interval", &c.Interval, 10*time.Second, "how often metrics are sent to --statsd",
			settings.Between(100*time.Millisecond, time.Hour)),
	}
}
