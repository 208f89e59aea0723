package web

import (
	"log/slog"
	"net/http"
	"time"
)

// NewServer returns a server of HTTP whose clients cannot hold it up: it bounds connections in
// number, headers and bodies in bytes, and in time whatever they send or fetch. An answer may take
// as long as write.
func NewServer(h http.Handler, write time.Duration, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           new(bodies).bound(h),
		ConnState:         newConns(maxConns).changed,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      write,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    32 << 10,
		ErrorLog:          slog.NewLogLogger(newServerErrors(log), slog.LevelError),
	}
}
