package settings

import "github.com/headgate-rls/headgate/internal/kit/metrics"

// Lost returns the row of the metric of lines that the logger of c could not write.
func (c *Log) Lost() metrics.Row {
	return metrics.CounterOf("headgate_log_lost_lines_total",
		"Lines of the log that were lost, because nobody read them or they could not be written.", func() int64 {
			if c.lost == nil {
				return 0
			}
			return c.lost.Load()
		})
}
