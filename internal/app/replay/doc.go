// Package replay decides requests of the past again, by new rules and by old ones, in virtual time. It reads captures
// of headgate and access logs of Envoy in JSON, and reports whom a change of rules would refuse.
//
// # To change it
//
//   - replay, formats, reports, which limit would fit: capture.go, envoy.go and scan.go read lines (scan_test.go fuzzes
//     them), input.go orders them, run.go decides, fit.go finds limits, report.go, html.go; go test
//     ./internal/app/replay; with -run xxx -bench . for its speed
package replay
