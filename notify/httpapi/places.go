package httpapi

import (
	"fmt"
	"sync"

	"github.com/headgate-rls/headgate/notify"
)

// places bound the requests under way. A request takes a place when its body has arrived, as clients may send
// it slowly. One user gets a quarter of the places at most, as the requests of a user wait for each other.
type places struct {
	most int

	mu    sync.Mutex
	taken int
	users map[string]int // requests under way
}

var errBusyUser = fmt.Errorf("%w for this user", notify.ErrBusy)

// take takes a place for a request of a user, until giveBack.
func (p *places) take(user string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.taken >= p.most:
		return notify.ErrBusy
	case p.users[user] >= max(1, p.most/4):
		return errBusyUser
	}
	p.taken++
	p.users[user]++
	return nil
}

func (p *places) giveBack(user string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken--
	if p.users[user]--; p.users[user] == 0 {
		delete(p.users, user)
	}
}
