// Package httpapi is the HTTP side of slots: the REST API that assigns them, the admin API that changes configs, the
// OpenAPI document of both, and a page to look at windows with.
//
// The handlers check form and translate; all decisions are the Scheduler's. Every answer that is not a success has the
// form of web.ErrorBody.
//
// # To change it
//
//   - the API that assigns slots: assign.go, times.go, routes.go and openapi.json; go test ./slots/httpapi
//   - the admin API of configs: configs.go, routes.go and openapi.json; go test ./slots/httpapi
//   - the page of slots: page and look.go; go test ./slots/httpapi -run Page
package httpapi
