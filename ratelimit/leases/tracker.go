package leases

import (
	"cmp"
	"context"
	"crypto/rand"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/internal/kit/background"
	"github.com/headgate-rls/headgate/limit"
)

// DefaultOwnerGrace is when a proxy counts as gone that no replica hears of.
const DefaultOwnerGrace = 15 * time.Second

// Config is what a Tracker needs. Backend, Local, Now, Log, Metrics and Timeout are required.
type Config struct {
	// Backend counts leases. ServerClock says that it has a clock of its own; else Now is its clock.
	Backend     backends.Backend
	ServerClock bool
	Now         func() limit.Instant
	// Local has the leases that are granted while the backend fails.
	Local backends.Backend
	// Registry is what replicas share beside the counters. Without one, replicas know nothing of each other's proxies,
	// and leases of a proxy that is gone are left to expire.
	Registry backends.Registry
	// Signer signs tokens. Replicas need the same secret; nil means a secret that the Registry keeps, or without a
	// Registry one that only this process knows.
	Signer *Signer
	// Replica names this process in tokens.
	Replica uint32
	// OwnerGrace is how long a proxy counts as present that no replica hears from; default 15 s.
	OwnerGrace time.Duration
	// Timeout bounds each call to the backend.
	Timeout time.Duration
	// Log gets one record per event that an operator acts on.
	Log *slog.Logger
	// Metrics counts what becomes of leases.
	Metrics Metrics
	// Returned, if set, is called with the holder of a lease that its caller has ended or renewed, perhaps more than once.
	Returned func(holder string, renewed bool)
	// Renewed, if set, is called with the key of a renewed lease, the labels of its rule, and how long it lives now.
	Renewed func(domain, rule string, key *limit.Key, life time.Duration)
	// Panics are reported to it; nil means to the default logger.
	Panics *background.Reporter
	// Reservations is for leases under limit.ReservationPart.
	Reservations Reservations
}

// A Tracker knows the leases that have been granted: it ends, renews and counts them, and ends those of proxies that
// are gone. Its methods may be called concurrently.
type Tracker struct {
	conf     Config
	store    store
	tally    tally
	owners   owners
	releaser *releaser

	logged       background.LogLimits
	wall         func() time.Time // for durations; a test's clock in tests
	longest      atomic.Int64     // time.Duration: see SetLongest
	failedRounds atomic.Int64

	me     string // this process in the registry
	secret string // of Signer if the registry keeps it, else ""

	mu   sync.Mutex
	gone []*owner // whose leases are to be ended
}

// New returns a tracker. It does nothing in the background before
// [Tracker.Run], except that it retries lease releases until [Tracker.Close].
func New(conf Config) *Tracker {
	t := &Tracker{wall: time.Now, me: rand.Text(), logged: background.LogLimits{PerSecond: 1}}
	conf.OwnerGrace = cmp.Or(max(conf.OwnerGrace, 0), DefaultOwnerGrace)
	if conf.Signer == nil {
		t.secret = rand.Text()
		conf.Signer = NewSigner([]byte(t.secret))
	}
	t.conf = conf
	t.store.backend, t.store.local, t.store.serverClock = conf.Backend, conf.Local, conf.ServerClock
	t.store.now, t.store.timeout, t.store.panics = conf.Now, conf.Timeout, conf.Panics
	t.releaser = newReleaser(&t.store, func(r *release, v *limit.Verdict) {
		if r.settlement != nil {
			t.NoteSettled(r.settlement, v)
			return
		}
		t.record(&r.ops[0], &v.Outcomes[0], r.domain, r.rule, Unknown, v.At)
	}, func(r *release) {
		if r.settlement != nil {
			conf.Metrics.Reservation(r.domain, r.rule).At(int(LostOne)).Inc()
			return
		}
		conf.Metrics.Lease(r.domain, r.rule).At(int(Lost)).Inc()
	})
	return t
}

// SetLongest sets the longest life of the leases that are granted from now on, zero if none are.
func (t *Tracker) SetLongest(ttl time.Duration) { t.longest.Store(int64(ttl)) }

func (t *Tracker) longestLife() time.Duration { return time.Duration(t.longest.Load()) }

// Close releases what is queued, until ctx ends. No other method may be called after it.
func (t *Tracker) Close(ctx context.Context) { t.releaser.close(ctx) }

// record counts the outcome of an op that was to end or renew a lease: as gone if the store does not have the lease.
func (t *Tracker) record(op *limit.Op, out *limit.Outcome, domain, rule string, gone Event, now limit.Instant) {
	event := gone
	if op.Cost < 0 {
		t.tally.observeEnd(op.Key, inFlightAfter(out), now)
	}
	switch {
	case out.Held && op.Cost == 0:
		event = Renewed
		t.tally.observe(op.Key, domain, rule, op.Limit.Window(), inFlightAfter(out), now)
		if t.conf.Renewed != nil {
			t.conf.Renewed(domain, rule, &op.Key, op.Limit.Window())
		}
	case out.Held && op.Ending == limit.EndAttempt:
		event = Abandoned
	case out.Held:
		event = Released
	case op.Ending == limit.EndKnown, op.Ending == limit.EndAttempt:
		return // the end was reported before, or the attempt had no lease
	}
	t.conf.Metrics.Lease(domain, rule).At(int(event)).Inc()
}

// warn logs a message, at most once per second.
func (t *Tracker) warn(message string, args ...any) {
	if ok, skipped := t.logged.Allow(message); ok {
		t.conf.Log.Warn(message, append(args, "suppressed", skipped)...)
	}
}

// Stats are figures about leases for metrics.
type Stats struct {
	Keys     int   // under which requests in flight are counted
	Owners   int   // known proxies with leases
	Failures int64 // rounds in which the registry or the backend failed
}

// Stats returns the present figures.
func (t *Tracker) Stats() Stats {
	return Stats{Keys: t.tally.size(), Owners: t.owners.count(), Failures: t.failedRounds.Load()}
}

// every is the time between two rounds in the background.
func (t *Tracker) every() time.Duration {
	return min(max(t.conf.OwnerGrace/roundsPerGrace, minRound), maxRound)
}

const (
	// roundsPerGrace is how often presence is reported within the grace time.
	roundsPerGrace = 4
	minRound       = 10 * time.Millisecond
	maxRound       = 5 * time.Second
)

// refreshEvery is the time between two refreshes of all counts.
func (t *Tracker) refreshEvery() time.Duration { return roundsPerRefresh * t.every() }

// roundsPerRefresh is after how many rounds all counts are read again.
const roundsPerRefresh = roundsPerGrace

// InFlight returns how many requests are in flight by rule, of all replicas together, as far as this process knows, and
// whether it knows them all. It does not ask the backend.
func (t *Tracker) InFlight() (list []InFlight, complete bool) {
	return t.tally.byRule(t.wall(), t.refreshEvery())
}
