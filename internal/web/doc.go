// Package web has what headgate's HTTP endpoints share: the one form of errors,
// strict reading of JSON, and the guard in front of admin paths.
package web
