// Package metrics publishes what a limiter of the library measures. It is a package of its own, so that only programs
// that import it have Prometheus' client in them.
//
// # To change it
//
//   - how metrics of the library reach Prometheus: prometheus.go; go test ./metrics
package metrics
