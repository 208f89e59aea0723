// Package statsd sends rows of package metrics to a collector that speaks StatsD: what counters have counted since the
// last time, gauges as they are, and how many observations of a histogram there were of each size.
//
// Names have tags as envoyproxy/ratelimit writes them: "name.__key=value:1|c".
//
// # To change it
//
//   - which values StatsD gets: sample.go and internal/app/refmetrics/statsd.go; go test ./internal/app/statsd; go test
//     ./test/compat -run StatsD
//   - how they are sent: packets.go; go test ./internal/app/statsd
package statsd
