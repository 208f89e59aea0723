package background

import (
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestPanicIsReported: a panic in a goroutine, a timer or a call is counted and
// logged with its stack, and the process goes on.
func TestPanicIsReported(t *testing.T) {
	var mu sync.Mutex
	var log strings.Builder
	counted := make(chan string, 9)
	r := &Reporter{
		Log:   slog.New(slog.NewTextHandler(&log, nil)),
		Count: func(where string) { mu.Lock(); defer mu.Unlock(); counted <- where },
	}
	burst := func() { panic("burst pipe") }
	if err := r.Do("call", burst); err == nil || err.Error() != "panic in call: burst pipe" {
		t.Errorf("%v", err)
	}
	if err := r.Do("call", func() {}); err != nil {
		t.Error(err)
	}
	if got := <-counted; got != "call" {
		t.Error(got)
	}
	if text := log.String(); !strings.Contains(text, "where=call") || !strings.Contains(text, "background_test.go") {
		t.Errorf("log: %s", text)
	}
	r.Go("goroutine", burst)
	if got := <-counted; got != "goroutine" {
		t.Error(got)
	}
	r.AfterFunc("timer", time.Microsecond, burst)
	if got := <-counted; got != "timer" {
		t.Error(got)
	}
	var none *Reporter
	if err := none.Do("nobody listens", burst); err == nil {
		t.Error("no error")
	}
}
