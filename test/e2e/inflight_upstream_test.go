package e2e

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sort"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/test/testenv"
)

// A slowApp is an application that knows how many requests are inside it.
//
//	/work?ms=N         answers after N ms
//	/hold              answers when let go
//	/drip              answers a line at once and the rest when let go
//	/cut?ms=N          closes the connection after N ms
//	/flaky?id=X&n=N    answers 503 to the first N requests of an X
//
// A path may have anything before these.
type slowApp struct {
	addr string

	mu      sync.Mutex
	seen    int // requests
	inside  int
	most    int // that were inside at once
	visits  []visit
	headers http.Header // of the latest request
	tries   map[string]int
	gate    chan struct{} // closed to let go
}

// A visit is one request's stay.
type visit struct {
	from, to time.Time
	whole    bool // answered, and not cut off by Envoy
}

func startSlowApp(t *testing.T) *slowApp {
	t.Helper()
	a := &slowApp{tries: map[string]int{}, gate: make(chan struct{})}
	server := httptest.NewServer(a)
	a.addr = server.Listener.Addr().String()
	t.Cleanup(func() {
		a.LetGo()
		server.CloseClientConnections()
		server.Close()
	})
	return a
}

func (a *slowApp) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	v := visit{from: time.Now()}
	a.mu.Lock()
	a.seen++
	a.inside++
	a.most = max(a.most, a.inside)
	a.headers = r.Header.Clone()
	gate := a.gate
	a.mu.Unlock()
	whole, answer := a.work(r, w, gate)
	// Before Envoy can know of the end: nobody counts as inside who might have
	// been replaced already.
	a.mu.Lock()
	a.inside--
	v.to, v.whole = time.Now(), whole && r.Context().Err() == nil
	a.visits = append(a.visits, v)
	a.mu.Unlock()
	answer()
}

// work does what the path says, until the client is gone. It returns what is to
// be answered.
func (a *slowApp) work(r *http.Request, w http.ResponseWriter, gate <-chan struct{}) (whole bool, answer func()) {
	ms, _ := strconv.Atoi(r.URL.Query().Get("ms"))
	pause := time.NewTimer(time.Duration(ms) * time.Millisecond)
	defer pause.Stop()
	switch _, what, _ := cutLast(r.URL.Path, "/"); what {
	case "drip":
		fmt.Fprintln(w, "first")
		w.(http.Flusher).Flush()
		whole = wait(r.Context(), gate)
		return whole, func() { fmt.Fprintln(w, "last") }
	case "hold":
		whole = wait(r.Context(), gate)
	case "cut":
		whole = wait(r.Context(), pause.C)
		return whole, func() { panic(http.ErrAbortHandler) }
	case "flaky":
		n, _ := strconv.Atoi(r.URL.Query().Get("n"))
		whole = wait(r.Context(), pause.C)
		a.mu.Lock()
		a.tries[r.URL.Query().Get("id")]++
		flaky := a.tries[r.URL.Query().Get("id")] <= n
		a.mu.Unlock()
		if flaky {
			return whole, func() { http.Error(w, "not yet", http.StatusServiceUnavailable) }
		}
	default:
		whole = wait(r.Context(), pause.C)
	}
	return whole, func() { fmt.Fprint(w, "hello") }
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return "", s, false
}

// wait returns whether c came before the end of ctx.
func wait[T any](ctx context.Context, c <-chan T) bool {
	select {
	case <-c:
		return true
	case <-ctx.Done():
		return false
	}
}

// LetGo ends what waits, and what comes until Hold does not wait.
func (a *slowApp) LetGo() {
	a.mu.Lock()
	defer a.mu.Unlock()
	select {
	case <-a.gate:
	default:
		close(a.gate)
	}
}

// Hold makes requests wait again.
func (a *slowApp) Hold() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.gate = make(chan struct{})
}

// Inside returns how many requests are inside.
func (a *slowApp) Inside() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.inside
}

// Seen returns how many requests came.
func (a *slowApp) Seen() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.seen
}

// Header returns a header of the latest request.
func (a *slowApp) Header(name string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.headers.Get(name)
}

// wantInside waits until n requests are inside.
func (a *slowApp) wantInside(t *testing.T, n int) {
	t.Helper()
	testenv.Eventually(t, 20*time.Second, fmt.Sprintf("have %d requests inside", n), func() string {
		if got := a.Inside(); got != n {
			return fmt.Sprintf("%d are inside", got)
		}
		return ""
	})
}

// Crowd returns how many requests were inside at once, at most, of those that
// were not cut off: one that Envoy has cut off has ended for everybody but the
// application, which is the last to hear of it.
func (a *slowApp) Crowd() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	type event struct {
		at time.Time
		by int
	}
	var events []event
	for _, v := range a.visits {
		if v.whole {
			events = append(events, event{v.from, 1}, event{v.to, -1})
		}
	}
	sort.Slice(events, func(i, j int) bool { return events[i].at.Before(events[j].at) })
	most, now := 0, 0
	for _, e := range events {
		now += e.by
		most = max(most, now)
	}
	return most
}

// Most returns how many were inside at once, whatever became of them.
func (a *slowApp) Most() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.most
}

// busy returns what share of n places was taken, from the first visit to the
// start of the last one.
func (a *slowApp) busy(n int) float64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.visits) == 0 {
		return 0
	}
	first, last := a.visits[0].from, a.visits[0].from
	for _, v := range a.visits {
		if v.from.Before(first) {
			first = v.from
		}
		if v.from.After(last) {
			last = v.from
		}
	}
	taken := time.Duration(0)
	for _, v := range a.visits {
		to := v.to
		if to.After(last) {
			to = last
		}
		taken += to.Sub(v.from)
	}
	return float64(taken) / float64(last.Sub(first)) / float64(n)
}
