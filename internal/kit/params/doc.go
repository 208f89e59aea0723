// Package params reads the parameters of URLs by tables: a row has the name of a parameter, its valid
// values, and the variable that gets the value.
//
// # To change it
//
//   - how parameters of URLs are read: params.go; go test ./internal/kit/params
package params
