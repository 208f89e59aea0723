// Package httpapi is the admin API of policies: it lists, makes, changes and removes them over HTTP, and reports who
// changed them.
//
// The handlers check form and translate; all decisions are the Editor's. Every answer that is not a success has the
// form of web.ErrorBody.
//
// # To change it
//
//   - the admin API of policies: policies/httpapi, openapi.json, which admin paths there are:
//     internal/app/server/admin.go; go test ./policies/httpapi ./internal/app/server -run 'Polic|Admin'
//   - the page of policies: page; go test ./policies/httpapi -run Page
package httpapi
