package testenv

import (
	"strings"
	"sync"
)

// A Log keeps what is written to it. Goroutines may write while a test reads.
type Log struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write implements [io.Writer]. It never fails.
func (l *Log) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(text)
}

// String returns all that was written.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
