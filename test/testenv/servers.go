package testenv

import (
	"fmt"
	"os"
)

// Servers lets package testenv start servers for the length of a table.
type Servers struct {
	name     string
	failed   bool
	cleanups []func()
}

// An ended table is what Fatalf and Skipf panic with.
type ended struct {
	text string
	skip bool
}

// WithServers runs f, which may start servers, and stops them. A server
// that cannot be had ends f; skipped says why.
func WithServers(name string, f func(tb *Servers) error) (skipped string, err error) {
	tb := &Servers{name: name}
	defer tb.cleanUp()
	defer func() {
		switch e := recover().(type) {
		case nil:
		case ended:
			if e.skip {
				skipped = e.text
			} else {
				err = fmt.Errorf("%s", e.text)
			}
		default:
			panic(e)
		}
	}()
	return "", f(tb)
}

func (tb *Servers) cleanUp() {
	for len(tb.cleanups) > 0 {
		last := len(tb.cleanups) - 1
		f := tb.cleanups[last]
		tb.cleanups = tb.cleanups[:last]
		f()
	}
}

func (tb *Servers) Helper()      {}
func (tb *Servers) Name() string { return tb.name }
func (tb *Servers) Failed() bool { return tb.failed }
func (tb *Servers) Logf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", args...)
}
func (tb *Servers) Errorf(format string, args ...any) {
	tb.failed = true
	tb.Logf(format, args...)
}
func (tb *Servers) Fatalf(format string, args ...any) {
	panic(ended{text: fmt.Sprintf(format, args...)})
}
func (tb *Servers) Skipf(format string, args ...any) {
	panic(ended{text: fmt.Sprintf(format, args...), skip: true})
}
func (tb *Servers) Cleanup(f func()) { tb.cleanups = append(tb.cleanups, f) }

func (tb *Servers) TempDir() string {
	dir, err := os.MkdirTemp("", "headgate-bench-")
	if err != nil {
		tb.Fatalf("make a directory: %v", err)
	}
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}
