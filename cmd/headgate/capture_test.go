package main

import (
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A service captures into a file and for a client, and both can be replayed.
func TestCaptureCommands(t *testing.T) {
	t.Setenv("HEADGATE_ADMIN_TOKEN", adminToken)
	file := filepath.Join(t.TempDir(), "capture.jsonl")
	s := startServe(t, "--example", "--capture", file+"?sample=1&max=1MiB")
	printed := make(chan string)
	go func() {
		code, out := headgate(t, "capture", "--addr", "http://"+s.HTTP, "--for", "3s")
		if code != exitOK {
			out = "the exit code is not 0: " + out
		}
		printed <- out
	}()
	for deadline := time.Now().Add(10 * time.Second); !strings.Contains(s.Log.String(), "captured by the admin API"); {
		time.Sleep(10 * time.Millisecond)
		if time.Now().After(deadline) {
			t.Fatalf("no capture has begun:\n%s", s.Log)
		}
	}
	if code, out := headgate(t, "ask", "--addr", s.GRPC, "example", "client=alice", "-n", "7"); code != exitOverLimit {
		t.Fatalf("ask exits with %d:\n%s", code, out)
	}
	if out := <-printed; strings.Count(out, "\n") != 7 || strings.Count(out, "OVER_LIMIT") != 2 {
		t.Errorf("the client got\n%s", out)
	}
	if _, text := s.Get(s.Debug, "/metrics"); !strings.Contains(text, "headgate_capture_lines_total 14") {
		t.Errorf("metrics:\n%s", text)
	}
	s.Stop()
	s.Ends(20 * time.Second)
	capturedIsReplayed(t, file)
	if code, out := headgate(t, "capture", "--addr", "nonsense"); code != exitProblems {
		t.Errorf("capture with a wrong --addr: exit code %d\n%s", code, out)
	}
	for _, bad := range []string{"?sample=1", file + "?sample=7", file + "?size=1MiB", file + ".gz"} {
		if code, out := headgate(t, "serve", "--example", "--capture", bad); code == exitOK || !strings.Contains(out,
			"--capture") {
			t.Errorf("--capture %s: exit code %d\n%s", bad, code, out)
		}
	}
}
