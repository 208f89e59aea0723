//go:build !rlsonly

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"
)

// terminal returns the two ends of a terminal: what people read, and what programs write to.
func terminal(t *testing.T) (reads, writes *os.File) {
	t.Helper()
	reads, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY|syscall.O_NONBLOCK, 0)
	if err != nil {
		t.Skip("no terminals: ", err)
	}
	t.Cleanup(func() { _ = reads.Close() })
	var n, unlocked uint32
	for _, c := range []struct {
		request uintptr
		value   *uint32
	}{{syscall.TIOCSPTLCK, &unlocked}, {syscall.TIOCGPTN, &n}} {
		if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, reads.Fd(), c.request,
			uintptr(unsafe.Pointer(c.value))); errno != 0 {
			t.Fatal(errno)
		}
	}
	writes, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = writes.Close() })
	return reads, writes
}

// On a terminal a replay shows its progress, and erases it before the report; a file gets none of it.
func TestProgressOnATerminal(t *testing.T) {
	text := ""
	for n := 1 << 16; !strings.Contains(text, "decide: ") && n <= 1<<21; n *= 2 { // until it takes long enough
		text = progressOf(t, n)
	}
	for _, want := range []string{"\r\x1b[Kdecide: ", " requests, ", " % of the files", "\r\x1b[Kthe end"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in %q", want, text)
		}
	}
	plain, err := os.Create(filepath.Join(t.TempDir(), "errors"))
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	if progressTo(plain) != nil {
		t.Error("a file gets the progress")
	}
}

// progressOf returns what a terminal shows of the replay of n lines.
func progressOf(t *testing.T, n int) string {
	t.Helper()
	rules := writeRules(t, "domain: d\ndescriptors: [{key: a, rate_limit: {unit: minute, requests_per_unit: 4}}]\n")
	capture := filepath.Join(t.TempDir(), "capture.jsonl")
	line := `{"t":"2026-01-01T00:00:00Z","domain":"d","descriptors":[{"entries":[{"key":"a","value":"1"}]}]}` + "\n"
	if err := os.WriteFile(capture, []byte(strings.Repeat(line, n)), 0o600); err != nil {
		t.Fatal(err)
	}
	reads, writes := terminal(t)
	seen := make(chan string, 1)
	go func() {
		var all []byte
		for buffer := make([]byte, 4096); !strings.Contains(string(all), "the end"); {
			n, err := reads.Read(buffer)
			all = append(all, buffer[:n]...)
			if err != nil {
				break
			}
		}
		seen <- string(all)
	}()
	report, err := os.Create(filepath.Join(t.TempDir(), "report"))
	if err != nil {
		t.Fatal(err)
	}
	defer report.Close()
	if code := run(t.Context(), []string{"replay", "--rules", rules, "--top", "0", capture},
		strings.NewReader(""), report, writes); code != exitNo {
		t.Fatalf("exit code %d", code)
	}
	if text, err := os.ReadFile(report.Name()); err != nil || strings.Contains(string(text), "\x1b") {
		t.Errorf("%v: the report is %q", err, text)
	}
	fmt.Fprint(writes, "the end")
	select {
	case text := <-seen:
		return text
	case <-time.After(10 * time.Second):
		t.Fatal("nothing is on the terminal")
		return ""
	}
}
