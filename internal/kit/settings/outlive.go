package settings

import (
	"io"
	"os"
	"os/signal"
	"syscall"
)

// Outlive keeps a service running when the reader of its log ends (SIGPIPE: lines are lost) and, unless the log is a
// terminal, when its session ends (SIGHUP). Other programs reload on SIGHUP; this one reads files as they change.
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
