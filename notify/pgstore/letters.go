package pgstore

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/headgate-rls/headgate/notify"
)

// letters writes messages that come at the same time with one statement. While a statement runs,
// those that come wait for the next one: with one sender nothing waits, and with many the database
// has few commits.
type letters struct {
	write func(ctx context.Context, messages []notify.Message) error

	mu      sync.Mutex
	waiting []*letter
	writers int
	done    sync.WaitGroup // for the writers
}

// A letter is a message and who waits until it is written.
type letter struct {
	ctx     context.Context
	message notify.Message
	result  chan error
}

const (
	lettersWriters = 4               // statements at the same time
	lettersSlice   = 200             // messages in one
	lettersMost    = 10_000          // that wait
	lettersWithin  = 5 * time.Second // bounds a statement
)

var errManyLetters = errors.New("too many messages wait for the database")

// add writes a message, and returns when it is written or cannot be, or when ctx ends: then it
// may be written all the same.
func (l *letters) add(ctx context.Context, m notify.Message) error {
	one := &letter{ctx, m, make(chan error, 1)}
	l.mu.Lock()
	if len(l.waiting) >= lettersMost {
		l.mu.Unlock()
		return errManyLetters
	}
	l.waiting = append(l.waiting, one)
	if l.writers < lettersWriters {
		l.writers++
		l.done.Go(l.run)
	}
	l.mu.Unlock()
	select {
	case err := <-one.result:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// run writes until nothing waits.
func (l *letters) run() {
	for {
		list := l.take()
		if len(list) == 0 {
			return
		}
		messages := make([]notify.Message, len(list))
		for i, one := range list {
			messages[i] = one.message
		}
		ctx, cancel := context.WithTimeout(context.Background(), lettersWithin)
		err := l.write(ctx, messages)
		cancel()
		for _, one := range list {
			one.result <- err
		}
	}
}

// take returns the next letters, without those that nobody waits for any more; none ends the
// writer.
func (l *letters) take() (list []*letter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, one := range l.waiting {
		if len(list) == lettersSlice {
			break
		}
		n++
		if one.ctx.Err() == nil {
			list = append(list, one)
		}
	}
	clear(l.waiting[:n])
	l.waiting = l.waiting[n:]
	if len(list) == 0 {
		l.writers--
	}
	return list
}
