//go:build unix

package capture

import (
	"os/signal"
	"syscall"
)

// ignoreSizeSignal has a file that reaches the limit of the process be an error of a write, and not the end of the
// process.
func ignoreSizeSignal() { signal.Ignore(syscall.SIGXFSZ) }
