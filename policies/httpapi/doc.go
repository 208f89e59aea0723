// Package httpapi is the admin API of policies: it lists, makes, changes and removes them over HTTP, and reports who
// changed them.
//
// The handlers check form and translate; all decisions are the Editor's. Every answer that is not a success has the
// form of web.ErrorBody.
//
// # To change it
//
//   - the admin API of policies: handlers.go, routes.go, form.go, body.go and openapi.json; go test ./policies/httpapi
//   - where the server mounts it: internal/app/server/admin.go; go test ./internal/app/server -run 'Polic|Admin'
//   - the page of policies: page; go test ./policies/httpapi -run Page
package httpapi
