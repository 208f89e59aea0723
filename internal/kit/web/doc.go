// Package web has what HTTP endpoints share: listeners and the bounds of servers, the one
// form of errors, strict reading of JSON, readiness, and the guard in front of admin paths.
package web
