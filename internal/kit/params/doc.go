// Package params reads the parameters of URLs by tables: a row has the name of a parameter, its valid
// values, and the variable that gets the value.
//
// # To change it
//
//   - how parameters of URLs are read: params.go; go test ./internal/kit/params
//   - which passwords in URLs are refused, so that no error quotes them: login.go; go test ./internal/app/server -run
//     StoreURLs
package params
