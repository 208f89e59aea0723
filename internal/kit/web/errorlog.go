package web

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"regexp"
	"strings"

	"github.com/headgate-rls/headgate/internal/kit/background"
)

// serverErrors logs the errors that net/http reports: TLS handshakes that fail, and handlers that panic.
// Any client can make handshakes fail, so each kind is logged once a second at most.
type serverErrors struct {
	log              *slog.Logger
	panics, failures background.LogLimit
	handshake        func(client net.Addr, err error)
}

func newServerErrors(log *slog.Logger, handshake func(net.Addr, error)) *serverErrors {
	return &serverErrors{log: log, panics: background.LogLimit{PerSecond: 1}, failures: background.LogLimit{PerSecond: 1},
		handshake: handshake}
}

// failedHandshake matches what net/http says of a TLS handshake that has failed.
var failedHandshake = regexp.MustCompile(`^http: TLS handshake error from (\S+): ((?s).*)`)

// Handle implements slog.Handler for [slog.NewLogLogger].
func (e *serverErrors) Handle(_ context.Context, r slog.Record) error {
	if m := failedHandshake.FindStringSubmatch(r.Message); m != nil && e.handshake != nil {
		e.handshake(peer(m[1]), errors.New(strings.TrimSpace(m[2])))
		return nil
	}
	if strings.Contains(r.Message, "panic serving ") { // with the stack
		if ok, skipped := e.panics.Allow(); ok {
			e.log.Error("HTTP handler failed", "error", r.Message, "suppressed", skipped)
		}
	} else if ok, skipped := e.failures.Allow(); ok {
		e.log.Info("HTTP connection failed", "error", r.Message, "suppressed", skipped)
	}
	return nil
}

// A peer is the address of a client as a text.
type peer string

// Network implements [net.Addr].
func (peer) Network() string { return "tcp" }

func (p peer) String() string { return string(p) }

// Enabled implements slog.Handler.
func (e *serverErrors) Enabled(context.Context, slog.Level) bool { return true }

// WithAttrs implements slog.Handler.
func (e *serverErrors) WithAttrs([]slog.Attr) slog.Handler { return e }

// WithGroup implements slog.Handler.
func (e *serverErrors) WithGroup(string) slog.Handler { return e }
