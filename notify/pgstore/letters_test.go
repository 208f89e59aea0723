package pgstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/notify"
	"github.com/headgate-rls/headgate/test/testenv"
)

// TestMessagesThatComeTogetherAreWrittenTogether: and each sender learns what became of it.
func TestMessagesThatComeTogetherAreWrittenTogether(t *testing.T) {
	var mu sync.Mutex
	var sizes []int
	refused := errors.New("refused")
	hold := make(chan struct{})
	l := &letters{write: func(_ context.Context, messages []notify.Message) error {
		<-hold
		mu.Lock()
		defer mu.Unlock()
		sizes = append(sizes, len(messages))
		if messages[0].Text == "first" {
			return refused
		}
		return nil
	}}
	const crowd = lettersSlice + 50
	results := make(chan error, crowd)
	add := func(text string) {
		go func() { results <- l.add(t.Context(), notify.Message{Text: text}) }()
	}
	waiting := func(writers, n int) {
		t.Helper()
		testenv.Eventually(t, 10*time.Second, "messages wait", func() string {
			l.mu.Lock()
			defer l.mu.Unlock()
			if l.writers != writers || len(l.waiting) != n {
				return fmt.Sprintf("%d wait for %d writers, want %d for %d", len(l.waiting), l.writers, n, writers)
			}
			return ""
		})
	}
	for i := range lettersWriters {
		add("first")
		waiting(i+1, 0)
	}
	for range crowd - lettersWriters {
		add("later")
	}
	waiting(lettersWriters, crowd-lettersWriters)
	close(hold)
	failed := 0
	for range crowd {
		if err := <-results; errors.Is(err, refused) {
			failed++
		} else if err != nil {
			t.Error(err)
		}
	}
	l.done.Wait()
	if len(sizes) != lettersWriters+2 || failed != lettersWriters || l.writers != 0 {
		t.Errorf("%v were written together, %d failed, %d writers are left", sizes, failed, l.writers)
	}
}

// TestALetterThatNobodyWaitsForIsNotWritten: a database that hangs leaves no heap of them.
func TestALetterThatNobodyWaitsForIsNotWritten(t *testing.T) {
	written := 0
	hold := make(chan struct{})
	l := &letters{write: func(_ context.Context, messages []notify.Message) error {
		<-hold
		written += len(messages)
		return nil
	}}
	l.writers = lettersWriters - 1 // the others are elsewhere
	done := make(chan error)
	go func() { done <- l.add(t.Context(), notify.Message{}) }()
	testenv.Eventually(t, 10*time.Second, "a message is being written", func() string {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.writers < lettersWriters || len(l.waiting) > 0 {
			return "not yet"
		}
		return ""
	})
	gone, leave := context.WithCancel(t.Context())
	leave()
	for range lettersMost {
		if err := l.add(gone, notify.Message{}); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
	if err := l.add(t.Context(), notify.Message{}); !errors.Is(err, errManyLetters) {
		t.Errorf("there is room for one more than %d: %v", lettersMost, err)
	}
	close(hold)
	if err := <-done; err != nil {
		t.Error(err)
	}
	l.done.Wait()
	if written != 1 || len(l.waiting) != 0 {
		t.Errorf("%d were written, %d wait", written, len(l.waiting))
	}
}

// TestDeliveredMessagesAreInTheOutboxInTheOrderOfTheirSender: also when the statements have many.
func TestDeliveredMessagesAreInTheOutboxInTheOrderOfTheirSender(t *testing.T) {
	f := start(t, true)
	var wait sync.WaitGroup
	const users, each = 20, 5
	for u := range users {
		wait.Go(func() {
			for i := range each {
				m := notify.Message{ID: fmt.Sprint(u, i), UserID: fmt.Sprint("u", u), Text: fmt.Sprint(i),
					AcceptedAt: time.Now().UTC().Truncate(time.Microsecond)}
				if err := f.Deliver(t.Context(), m); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wait.Wait()
	if err := relayAll(f); err != nil {
		t.Fatal(err)
	}
	next := map[string]int{}
	for _, m := range f.topic.messages {
		if m.Text != fmt.Sprint(next[m.UserID]) || m.ID == "" || time.Since(m.AcceptedAt) > time.Minute {
			t.Errorf("%+v comes after %d messages of its user", m, next[m.UserID])
		}
		next[m.UserID]++
	}
	if len(f.topic.messages) != users*each {
		t.Errorf("%d messages are published, want %d", len(f.topic.messages), users*each)
	}
}
