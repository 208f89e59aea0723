package layers

import (
	"log/slog"
	"sync"
	"time"

	"github.com/headgate-rls/headgate/backends/layers/breaker"
)

// An outageLog says once that a store fails, answers again, or is slow, however often the circuit breaker opens and
// closes meanwhile: behind a store that is slower than its callers wait it does so all the time.
type outageLog struct {
	log  *slog.Logger
	name string
	now  func() time.Time

	mu    sync.Mutex
	why   error     // the breaker opened; nil while it is closed
	since time.Time // then
	said  bool      // the log has that it opened
	last  time.Time // when it last had that
	slow  bool
}

const (
	// outagesEvery is how often short outages are logged at most. One that lasts longer than shortOutage always is.
	outagesEvery = 10 * time.Second
	shortOutage  = time.Second
)

func (l *outageLog) changed(to breaker.State, why error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch to {
	case breaker.Open:
		if l.why == nil {
			l.why, l.since = why, l.now()
		}
		if l.last.IsZero() || l.now().Sub(l.last) >= outagesEvery {
			l.say()
		}
	case breaker.Closed:
		if l.said {
			l.log.Info("circuit breaker closed: backend answers again", "backend", l.name)
		}
		l.why, l.said = nil, false
	}
}

// say logs that the breaker is open, unless the log has it, or has that the store is slow.
func (l *outageLog) say() {
	if l.said || l.slow {
		return
	}
	l.said, l.last = true, l.now()
	l.log.Error("circuit breaker opened: backend failing, failure policies decide", "backend", l.name, "error", l.why)
}

// tick logs an outage that was not logged when it began, and lasts.
func (l *outageLog) tick() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.why != nil && l.now().Sub(l.since) >= shortOutage {
		l.say()
	}
}

// paced logs that the store has become slow, or is no longer.
func (l *outageLog) paced(p breaker.Pace, slow bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.slow = slow
	switch {
	case slow:
		l.said = false // the state in between is over
		l.log.Warn("backend is slower than callers wait, failure policies decide", "backend", l.name, "pace", p.String())
	case l.why == nil:
		l.log.Info("backend answers in time again", "backend", l.name, "pace", p.String())
	}
}
