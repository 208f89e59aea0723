// Package refmetrics publishes what headgate counts under the names of envoyproxy/ratelimit, for dashboards and alerts
// that know those.
//
// # To change it
//
//   - what StatsD gets, and how it is sent: statsd.go, internal/app/statsd: internal/app/statsd/sample.go,
//     internal/app/statsd/packets.go; go test ./internal/app/statsd; go test ./test/compat -run StatsD
package refmetrics
