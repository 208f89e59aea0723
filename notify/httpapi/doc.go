// Package httpapi is the REST API of the notification gateway. The handlers check form and translate; all decisions are
// the Gateway's. Every answer that is not a success has the form of web.ErrorBody.
//
// # To change it
//
//   - the REST API of the gateway: httpapi.go, metrics.go; go test ./notify/httpapi
package httpapi
