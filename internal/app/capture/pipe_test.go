//go:build unix

package capture

import (
	"log/slog"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A named pipe is no file to capture into: opening it would wait for a reader, and nothing would be served.
func TestPipeIsNoFileOfACapture(t *testing.T) {
	name := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(name, 0o600); err != nil {
		t.Fatal(err)
	}
	failed := make(chan error, 1)
	go func() {
		_, err := New(Config{File: name, Max: 1 << 20, Sample: 1}, slog.New(slog.DiscardHandler))
		failed <- err
	}()
	select {
	case err := <-failed:
		if err == nil || !strings.Contains(err.Error(), "is not a regular file") {
			t.Errorf("%v", err)
		}
	case <-time.After(10 * time.Second):
		t.Error("waits for a reader of the pipe")
	}
}
