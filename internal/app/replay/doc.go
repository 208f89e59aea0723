// Package replay decides requests of the past again, by new rules and by old ones, in virtual time. It reads captures
// of headgate and access logs of Envoy, and reports whom a change of rules would refuse.
//
// # To change it
//
//   - the formats that replay reads: capture.go, envoy.go and scan.go (scan_test.go fuzzes them), and which one a file
//     has: form.go; go test ./internal/app/replay
//   - what a template makes of fields: template.go, and when it makes too many keys: own.go; go test
//     ./internal/app/replay
//   - the order of requests: input.go; go test ./internal/app/replay
//   - decisions, and which limit would fit: run.go and fit.go; go test ./internal/app/replay
//   - reports: report.go and html.go; go test ./internal/app/replay
//   - speed: scan.go and run.go; go test ./internal/app/replay -run xxx -bench .
package replay
