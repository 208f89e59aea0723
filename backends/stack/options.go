package stack

import (
	"log/slog"
	"time"

	"github.com/headgate-rls/headgate/internal/kit/background"
)

// Options say how a stack behaves. The zero Options are usable.
type Options struct {
	// Timeout bounds a call of the store whose context has no deadline; zero
	// means 500 ms.
	Timeout time.Duration
	// Replicas is how many processes share the store. In an outage each decides
	// by its share of a limit. Zero and one mean that it decides by the whole.
	Replicas int
	// Existing: if the store is a file that does not exist, that is an error; it is not created.
	Existing bool
	// NameSuffix ends the name of the store in Caps, in the log and in metrics, where there is another one beside it.
	NameSuffix string
	// Observe has calls to the store be counted and timed, for [Stack.Figures].
	Observe bool
	// Log gets what operators should know: the store fails, is back, is full.
	// Nil means nobody does.
	Log *slog.Logger
	// Panics are reported to it; nil means to the default logger.
	Panics *background.Reporter
}
