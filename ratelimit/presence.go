package ratelimit

import (
	"context"
	"encoding/hex"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-rls/headgate/limit"
)

// What a replica does in the background for requests in flight: it agrees with
// the others on the secret of leases, tells them and hears from them which
// proxies are there, reads how many requests are in flight, and ends those of
// proxies that are gone. Nobody waits for any of this.

const (
	secretClaim = "lease-secret"
	secretLife  = 30 * 24 * time.Hour // since a replica ran last
	// perGrace is how often presence is reported within the grace time.
	perGrace = 4
	maxRound = 5 * time.Second
	// maxTending bounds a round that ends leases; the next one goes on.
	maxTending = 30 * time.Second
	minRound   = 10 * time.Millisecond
	// roundsPerCount is after how many rounds all counts are read again.
	roundsPerCount = perGrace
)

// presence is the state of that work.
type presence struct {
	id       string // of this process
	secret   string // claimed, or to be claimed; "" if one is configured
	failures atomic.Int64

	mu   sync.Mutex
	gone []*owner // whose leases are to be ended
}

// every is the time between two rounds.
func (s *Service) every() time.Duration {
	return min(max(s.conf.OwnerGrace/perGrace, minRound), maxRound)
}

// Join learns what other replicas know: the secret of leases, the proxies and
// the keys with requests in flight. Run goes on with it, so that an error only
// means that the registry could not be asked so far.
func (s *Service) Join(ctx context.Context) error {
	if s.conf.Registry == nil {
		return nil
	}
	err := s.meet(ctx)
	if err == nil {
		err = s.count(ctx)
	}
	return err
}

// Run does the background work until ctx ends.
func (s *Service) Run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	if s.conf.Registry != nil {
		running.Add(1)
		s.conf.Panics.Go("presence", func() {
			defer running.Done()
			s.repeat(ctx, s.every(), func(uint64) error { return s.meet(ctx) })
		})
	}
	// On its own: presence must be reported however long this takes.
	s.repeat(ctx, s.every(), func(round uint64) error { return s.tend(ctx, round) })
}

// repeat does f in each round, and logs that it fails.
func (s *Service) repeat(ctx context.Context, every time.Duration, f func(round uint64) error) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for round := uint64(0); ; round++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		var err error
		if panicked := s.conf.Panics.Do("presence", func() { err = f(round) }); panicked != nil {
			err = panicked
		}
		if err != nil && ctx.Err() == nil {
			s.presence.failures.Add(1)
			if ok, skipped := s.sharing.allow(); ok {
				s.conf.Log.Warn("the registry of requests in flight cannot be read or written; until it can, headgate does not notice proxies that are gone", "error", err, "not_logged", skipped)
			}
		}
	}
}

// meet reports who is there, and finds who is gone.
func (s *Service) meet(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, max(s.conf.OwnerGrace/2, s.conf.Timeout))
	defer cancel()
	r, o := s.conf.Registry, &s.owners
	if err := s.agree(ctx); err != nil {
		o.missed()
		return err
	}
	if s.rules.Load().longest == 0 && o.count() == 0 {
		return nil // no rule grants leases
	}
	asked := s.wall()
	rows, err := r.List(ctx, ownersTable)
	if err != nil {
		o.missed()
		return err
	}
	o.merge(rows, asked, s.wall(), s.every())
	s.presence.mu.Lock()
	s.presence.gone = o.gone(asked, s.presence.id, s.conf.OwnerGrace)
	s.presence.mu.Unlock()
	rows, heard := o.report(s.presence.id)
	left, err := r.Put(ctx, ownersTable, rows, s.ownerLife())
	o.reported(heard, err != nil, err == nil && left == 0)
	if err != nil {
		o.missed()
	}
	return err
}

// ownerLife is how long an owner stays in the table that nobody hears of: as
// long as it can have leases.
func (s *Service) ownerLife() time.Duration { return 2*s.rules.Load().longest + 4*s.conf.OwnerGrace }

// agree makes the secret of leases the one that all replicas use: the first
// one wins. If the store has lost it, the one that is in use comes back.
func (s *Service) agree(ctx context.Context) error {
	p := &s.presence
	if p.secret == "" {
		return nil
	}
	there, err := s.conf.Registry.Claim(ctx, secretClaim, p.secret, secretLife)
	if err == nil && there != p.secret {
		p.secret = there
		s.conf.Leases.Prefer([]byte(there))
	}
	return err
}

// tend ends the leases of proxies that are gone, and reads now and then how
// many requests are in flight.
func (s *Service) tend(ctx context.Context, round uint64) error {
	s.presence.mu.Lock()
	gone := s.presence.gone
	s.presence.gone = nil
	s.presence.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, max(maxTending, 2*s.conf.OwnerGrace))
	defer cancel()
	if len(gone) == 0 && round%roundsPerCount != 0 {
		return s.putPlaces(ctx)
	}
	if err := s.count(ctx); err != nil {
		return err
	}
	for _, o := range gone {
		if err := s.endOwner(ctx, o); err != nil {
			return err
		}
	}
	return nil
}

func (s *Service) putPlaces(ctx context.Context) error {
	rows, life, put := s.places.toPut(s.countsEvery())
	if len(rows) == 0 || s.conf.Registry == nil {
		return nil
	}
	left, err := s.conf.Registry.Put(ctx, placesTable, rows, life)
	if err != nil {
		s.places.putAgain(put)
	}
	if left > 0 {
		s.places.leftOut()
	}
	return err
}

// countsEvery is how often all counts are read again.
func (s *Service) countsEvery() time.Duration { return roundsPerCount * s.every() }

// count reads under which keys requests are in flight, and how many.
func (s *Service) count(ctx context.Context) (err error) {
	defer func() { s.places.next(s.countsEvery(), err == nil, s.wall()) }()
	if s.rules.Load().longest == 0 && s.places.keys() == 0 {
		return nil
	}
	if err = s.putPlaces(ctx); err != nil {
		return err
	}
	if s.conf.Registry != nil {
		rows, err := s.conf.Registry.List(ctx, placesTable)
		if err != nil {
			return err
		}
		s.places.merge(rows)
	}
	list, ops := s.places.all(limit.Op{})
	return s.inSlices(ctx, ops, func(from int, out []limit.Verdict) {
		for i := range out {
			s.places.counted(list[from+i], &out[i])
		}
	})
}

// inSlices does each op as a request of its own, a bounded number in one call,
// and has each call's verdicts read. It ends at the first error.
func (s *Service) inSlices(ctx context.Context, ops []limit.Op, read func(from int, out []limit.Verdict)) error {
	for from := 0; from < len(ops); from += returnsSlice {
		out := s.takeOps(ctx, ops[from:min(from+returnsSlice, len(ops))])
		for i := range out {
			if out[i].Err != nil {
				return out[i].Err
			}
		}
		read(from, out)
	}
	return nil
}

// maxEndings bounds how often one key is asked to end an owner's leases, each
// time of limit.OwnerSlice.
const maxEndings = 2 * limit.MaxInFlight / limit.OwnerSlice

// endOwner ends the leases of an owner that is gone, under all keys where
// requests are in flight. One replica does it, and another one if that fails.
func (s *Service) endOwner(ctx context.Context, gone *owner) error {
	r := s.conf.Registry
	who, err := r.Claim(ctx, "end/"+hex.EncodeToString(gone.id[:]), s.presence.id, 2*s.conf.OwnerGrace)
	if err != nil || who != s.presence.id || !s.owners.still(gone) {
		return err
	}
	all, ops := s.places.all(limit.Op{Cost: -1, Holder: string(gone.id[:]), Ending: limit.EndOwner})
	var list []*place
	n := 0
	for i, a := range all {
		if s.places.inFlight(a.place) > 0 {
			list, ops[n] = append(list, a.place), ops[i]
			n++
		}
	}
	ended, err := s.endAt(ctx, list, ops[:n])
	if err == nil {
		if err = r.Drop(ctx, ownersTable, []string{ownerRow + string(gone.id[:])}); err == nil {
			s.owners.forget(gone)
		}
	}
	s.conf.Log.Warn("a proxy is gone: no replica has heard of it for the grace time; its requests in flight are ended",
		"owner", gone.name, "peer", gone.peer, "grace", s.conf.OwnerGrace, "ended", ended, "error", err)
	return err
}

// endAt does ops, which are about list, until each has ended all it is about,
// and returns how many leases that were.
func (s *Service) endAt(ctx context.Context, list []*place, ops []limit.Op) (ended int64, err error) {
	for try := 0; len(ops) > 0 && try < maxEndings && err == nil; try++ {
		again := 0
		err = s.inSlices(ctx, ops, func(from int, out []limit.Verdict) {
			for i := range out {
				p := list[from+i]
				n := s.places.reaped(p, &out[i])
				ended += n
				counters := s.conf.Metrics.Lease(p.of.domain, p.of.rule)
				for range n {
					counters[LeaseReaped].Inc()
				}
				if rest, more := ops[from+i].Rest(&out[i]); more {
					list[again], ops[again] = p, rest
					again++
				}
			}
		})
		list, ops = list[:again], ops[:again]
	}
	return ended, err
}

// InFlight returns, summed by rule, how many requests are in flight under the
// keys that this process knows, all replicas' together, and whether it knows
// all of them. It does not ask the backend.
func (s *Service) InFlight() (list []InFlight, complete bool) {
	return s.places.list(s.wall(), s.countsEvery())
}

// Stats are figures about requests in flight for metrics.
type Stats struct {
	Keys     int   // under which they are counted
	Owners   int   // proxies that are known to have leases
	Failures int64 // rounds in which the registry or the backend failed
}

// Stats returns the present figures.
func (s *Service) Stats() Stats {
	return Stats{Keys: s.places.keys(), Owners: s.owners.count(), Failures: s.presence.failures.Load()}
}
