// Package refmetrics publishes what headgate counts under the names of envoyproxy/ratelimit, for dashboards and alerts
// that know those.
//
// # To change it
//
//   - names of metrics of envoyproxy/ratelimit: refmetrics.go, hits.go and sink.go; go test ./internal/app/refmetrics
//   - what StatsD gets: statsd.go and internal/app/statsd/sample.go; go test ./internal/app/statsd; go test
//     ./test/compat -run StatsD
package refmetrics
