package llmtest

import (
	"sync"
	"time"
)

// An Entry is what a call spent, written when it ended.
type Entry struct {
	User   string
	At     time.Time
	Tokens int64
}

// A Ledger has what was spent.
type Ledger struct {
	mu      sync.Mutex
	entries []Entry
}

func (l *Ledger) add(e Entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entries = append(l.entries, e)
}

// Spent is what a user has spent, in how many calls that the model answered; since a time, which may be zero.
func (l *Ledger) Spent(user string, since time.Time) (tokens int64, calls int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.entries {
		if e.User == user && !e.At.Before(since) {
			tokens += e.Tokens
			calls++
		}
	}
	return tokens, calls
}
