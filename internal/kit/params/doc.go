// Package params reads the parameters of URLs by tables: a row has the name of a parameter, says what it may be, and
// knows where it goes.
//
// # To change it
//
//   - how parameters of URLs are read: params.go; go test ./internal/kit/params
package params
