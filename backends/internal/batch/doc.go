// Package batch decides slices of requests for stores that keep states elsewhere and decide in Go, such as in rows.
//
// # To change it
//
//   - how slices are decided over rows: batch.go; go test ./backends/internal/batch ./backends/internal/remote
//   - how long logs are kept in parts: long_log.go, in databases backends/sqlstore/slice.go,
//     backends/sqlstore/parts.go; go test ./backends/internal/batch; go test ./backends/sqlstore -run 'Long|Parts|Logs'
package batch
