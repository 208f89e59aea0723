package pgstore

import (
	"context"
	"sync"
)

// turns let one send of each user at a time use a connection. The others would only wait for
// the lock of the same row, with a connection each, and leave none for other users.
type turns struct {
	mu    sync.Mutex
	users map[string]*turn
}

type turn struct {
	token chan struct{} // full while somebody has the turn
	users int           // who has it and who waits for it
}

// take waits for the user's turn, until ctx ends.
func (t *turns) take(ctx context.Context, user string) (release func(), err error) {
	t.mu.Lock()
	u := t.users[user]
	if u == nil {
		u = &turn{token: make(chan struct{}, 1)}
		t.users[user] = u
	}
	u.users++
	t.mu.Unlock()
	leave := func() {
		t.mu.Lock()
		if u.users--; u.users == 0 {
			delete(t.users, user)
		}
		t.mu.Unlock()
	}
	select {
	case u.token <- struct{}{}:
		return func() { <-u.token; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	}
}
