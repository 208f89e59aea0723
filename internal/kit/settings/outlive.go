package settings

import (
	"io"
	"os"
	"os/signal"
	"syscall"
)

// Outlive has a service go on after the end of those around it: of the reader of its log (SIGPIPE: lines are lost), and
// of its session (SIGHUP), unless people read the log at a terminal. SIGHUP also is what other programs reload on; here
// files are read as they change.
func Outlive(log io.Writer) {
	signal.Ignore(syscall.SIGPIPE)
	if !IsTerminal(log) {
		signal.Ignore(syscall.SIGHUP)
	}
}

// IsTerminal reports whether people read what is written to out.
func IsTerminal(out io.Writer) bool {
	file, ok := out.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	null, err := os.Stat(os.DevNull)
	return err != nil || !os.SameFile(info, null)
}
