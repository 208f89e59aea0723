package xds

import (
	"cmp"
	"log/slog"
	"time"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/descriptors/overlay"
	"github.com/headgate-rls/headgate/internal/kit/background"
	"github.com/headgate-rls/headgate/limit"
)

// Options are the settings of a [Client].
type Options struct {
	// Address is host:port or unix:PATH of the control plane.
	Address string
	// NodeID and Metadata are who headgate is to the control plane; Headers are sent
	// with the stream, and never logged.
	NodeID   string
	Metadata map[string]string
	Headers  map[string]string
	// TLS says how to talk TLS; nil: not at all.
	TLS *TLS
	// MaxMessage bounds a message of the control plane, and all rules together, in
	// bytes; 64 MiB if zero.
	MaxMessage int
	// RemovalGrace is how long after the first answer on a connection domains are kept
	// that the answers do not have.
	RemovalGrace time.Duration
	// Cache is the file that keeps the last good rules; empty: none does.
	Cache string
	// Overflow is what limits take of a cost that has no room: a control plane cannot say.
	// The reference service counts such a cost, which saturate is the same as.
	Overflow limit.Overflow
	// Overlay is laid over all rules; nil changes nothing.
	Overlay *overlay.Overlay
	// Check returns what is wrong with rules that are well written, such as limits that
	// the backend cannot keep.
	Check func(*descriptors.Set) []descriptors.Problem
	// Install puts rules in force. It is called by one goroutine; an error keeps the old
	// rules.
	Install func(*descriptors.Set) error
	// OnUpdate, unless nil, is called after Install for each response. ok reports whether all
	// of the response is in force.
	OnUpdate func(ok bool)
	// Log gets a line for each change and each failure; nil means slog.Default.
	Log *slog.Logger
	// Panics gets panics of the goroutines; nil logs them.
	Panics *background.Reporter

	backoff backoffRange // zero: as a service has it
}

// DefaultMaxMessage is Options.MaxMessage if that is zero.
const DefaultMaxMessage = 64 << 20

func (o *Options) fill() {
	o.Log = cmp.Or(o.Log, slog.Default())
	o.MaxMessage = cmp.Or(max(o.MaxMessage, 0), DefaultMaxMessage)
	if o.backoff == (backoffRange{}) {
		o.backoff = backoffRange{first: 500 * time.Millisecond, most: 30 * time.Second}
	}
}
