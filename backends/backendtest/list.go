package backendtest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/limit"
)

// checkList: a store that lists its keys lists all that have state, and none that it has forgotten,
// while other keys come and go.
func checkList(e *env) {
	e.open()
	lister, ok := e.b.(backends.Lister)
	if !ok || !e.lists(lister) {
		return
	}
	now := e.start()
	algorithms := e.algorithms()
	use := func(group string, i int) limit.Key {
		a := algorithms[i%len(algorithms)]
		k := e.key(group, fmt.Sprint("l", i), a)
		e.takeOne(now, k, e.limit(a, 5, time.Hour), 1)
		return k
	}
	want := map[limit.Key]bool{}
	for i := range 200 {
		want[use([]string{"a", "b}c", "%7D", "d{e}f", "g*?[h]"}[i%5], i)] = true
	}
	gone := use("gone", 0)
	e.forget(gone)

	var running sync.WaitGroup
	stop := make(chan struct{})
	running.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				e.forget(use("comes", i%50))
			}
		}
	})
	for _, n := range []int{7, 1000} {
		got := e.listAll(lister, n)
		for k := range want {
			if !got[k] {
				e.Errorf("pages of %d: %q has state and is not listed", n, k)
			}
		}
		if got[gone] {
			e.Errorf("pages of %d: %q is listed, which was forgotten", n, gone)
		}
		for k := range got {
			if !want[k] && !strings.HasPrefix(k.Group, e.prefix+"comes") {
				e.Errorf("pages of %d: %q is listed, which nobody has used", n, k)
			}
		}
	}
	close(stop)
	running.Wait()
}

// lists reports whether the store lists its keys as it is configured, and checks its errors.
func (e *env) lists(l backends.Lister) bool {
	e.Helper()
	ctx, cancel := calm()
	defer cancel()
	_, _, err := l.List(ctx, "", 1)
	if errors.Is(err, backends.ErrUnsupported) {
		return false
	}
	if err != nil {
		e.Fatalf("List: %v", err)
	}
	for _, after := range []string{"\x00", "!", strings.Repeat("x", 5000), "-1", "é"} {
		if _, _, err := l.List(ctx, after, 10); err != nil && !errors.Is(err, backends.ErrInvalid) {
			e.Errorf("after %.20q, which no List has returned: %v", after, err)
		}
	}
	over, cancel := context.WithCancel(ctx)
	cancel()
	if _, _, err := l.List(over, "", 10); !errors.Is(err, backends.ErrUnavailable) {
		e.Errorf("List in a context that has ended: %v", err)
	}
	return true
}

// listAll returns those keys of this check that are on any page of about n keys.
func (e *env) listAll(l backends.Lister, n int) map[limit.Key]bool {
	e.Helper()
	ctx, cancel := calm()
	defer cancel()
	got := map[limit.Key]bool{}
	for after := ""; ; {
		keys, next, err := l.List(ctx, after, n)
		if err != nil {
			e.Fatalf("List after %q: %v", after, err)
		}
		if len(keys) > 20*n {
			e.Errorf("a page of %d keys, about %d were wanted", len(keys), n)
		}
		for _, k := range keys {
			if strings.HasPrefix(k.Group, e.prefix) {
				got[k] = true
			}
		}
		if next == "" {
			return got
		}
		after = next
	}
}
