package main

import (
	"fmt"
	"os"
)

// benchTB lets package testenv start servers for the length of a table.
type benchTB struct {
	name     string
	failed   bool
	cleanups []func()
}

// An ended table is what Fatalf and Skipf panic with.
type ended struct {
	text string
	skip bool
}

// withServers runs f, which may start servers by testenv, and stops them. A server
// that cannot be had ends f; skipped says why.
func withServers(name string, f func(tb *benchTB) error) (skipped string, err error) {
	tb := &benchTB{name: name}
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

func (tb *benchTB) cleanUp() {
	for len(tb.cleanups) > 0 {
		last := len(tb.cleanups) - 1
		f := tb.cleanups[last]
		tb.cleanups = tb.cleanups[:last]
		f()
	}
}

func (tb *benchTB) Helper()      {}
func (tb *benchTB) Name() string { return tb.name }
func (tb *benchTB) Failed() bool { return tb.failed }
func (tb *benchTB) Logf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", args...)
}
func (tb *benchTB) Errorf(format string, args ...any) {
	tb.failed = true
	tb.Logf(format, args...)
}
func (tb *benchTB) Fatalf(format string, args ...any) {
	panic(ended{text: fmt.Sprintf(format, args...)})
}
func (tb *benchTB) Skipf(format string, args ...any) {
	panic(ended{text: fmt.Sprintf(format, args...), skip: true})
}
func (tb *benchTB) Cleanup(f func()) { tb.cleanups = append(tb.cleanups, f) }

func (tb *benchTB) TempDir() string {
	dir, err := os.MkdirTemp("", "headgate-bench-")
	if err != nil {
		tb.Fatalf("make a directory: %v", err)
	}
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}
