package candidate

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/internal/app/capture"
	"github.com/headgate-rls/headgate/internal/kit/background"
	"github.com/headgate-rls/headgate/internal/kit/metrics"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/ratelimit"
	"github.com/headgate-rls/headgate/ratelimit/leases"
)

// Bounds of what waits and of what is kept.
const (
	maxQueued      = 8192
	maxQueuedBytes = 8 << 20 // of jobs that wait or are being decided
	maxBatch       = 64
	maxLeases      = 1 << 16
)

// A Config is what a Candidate needs.
type Config struct {
	// Service decides as the live service does, on counters of its own.
	Service ratelimit.Config
	Sample  float64 // part of the keys, by their first descriptor
	Panics  *background.Reporter
	// Evicted returns how many counters in use the store has evicted; nil: it evicts none.
	Evicted func() int64
}

// A Candidate decides live requests by rules on trial. It is a [ratelimit.Tap].
type Candidate struct {
	conf    Config
	service *ratelimit.Service
	queue   chan *job
	queued  atomic.Int64 // bytes of jobs that wait or are being decided
	jobs    sync.Pool    // *job

	rules atomic.Pointer[rules] // nil: there are none, and nothing is decided
	state atomic.Pointer[state]

	decisions       metrics.Counters
	dropped, failed metrics.Counter

	// Of the goroutine of Run.
	leases map[string]held // of the candidate, by the names of the live ones
	swept  time.Time       // when those that have expired were last looked for
	reqs   []*ratelimit.Request
	resps  []*ratelimit.Response
}

var _ ratelimit.Tap = (*Candidate)(nil)

// rules are what a candidate decides by, and what has come of it.
type rules struct {
	domains map[string]string // copies by name, which keep no request in memory
	*tally
}

// state is what came of the last reading of the rules.
type state struct {
	Loaded time.Time
	Error  string
}

// held is a lease of the candidate.
type held struct {
	leases.Lease
	until limit.Instant // when it expires unless it is renewed once more
}

// New returns a candidate without rules.
func New(c Config) (*Candidate, error) {
	c.Service.Dry = true
	c.Service.Timeout = cmp.Or(max(c.Service.Timeout, 0), ratelimit.DefaultTimeout)
	s, err := ratelimit.New(c.Service, nil)
	if err != nil {
		return nil, err
	}
	k := &Candidate{conf: c, service: s, queue: make(chan *job, maxQueued), leases: map[string]held{}}
	k.jobs.New = func() any { return new(job) }
	k.state.Store(new(state))
	k.Rows() // names the labels
	return k, nil
}

// SetRules puts rules on trial, from now on with unused figures. Rules without domains end the trial.
func (k *Candidate) SetRules(set *descriptors.Set) error {
	if err := k.service.SetRules(set); err != nil {
		k.Failed(err)
		return err
	}
	r := &rules{domains: map[string]string{}, tally: newTally()}
	for _, d := range set.Domains() {
		r.domains[d] = d
	}
	if len(r.domains) == 0 {
		r = nil
	}
	k.rules.Store(r)
	k.state.Store(&state{Loaded: time.Now()})
	return nil
}

// Failed notes that new rules could not be put on trial; the former ones stay.
func (k *Candidate) Failed(err error) {
	s := *k.state.Load()
	s.Error = err.Error()
	k.state.Store(&s)
}

// Read notes that the last rules are the ones on trial.
func (k *Candidate) Read() {
	s := *k.state.Load()
	s.Error = ""
	k.state.Store(&s)
}

// Active implements [ratelimit.Tap].
func (k *Candidate) Active() bool { return k.rules.Load() != nil }

// See implements [ratelimit.Tap].
func (k *Candidate) See(a *ratelimit.Asked) {
	r := k.rules.Load()
	if r == nil || a.Degraded {
		return
	}
	domain, known := r.domains[a.Request.Domain]
	if !known {
		return
	}
	first := a.First()
	if first < 0 || !capture.Sampled(k.conf.Sample, a.Request.Domain, a.Request.Descriptors[first].Entries) {
		return
	}
	text, size := sizeOf(a.Request)
	if k.queued.Add(size) > maxQueuedBytes {
		k.queued.Add(-size)
		k.dropped.Inc()
		return
	}
	j := k.jobs.Get().(*job)
	j.copy(a, domain, text)
	j.size = size
	k.push(j)
}

// Ended implements [ratelimit.Tap].
func (k *Candidate) Ended(holder string, how ratelimit.ReservationEnd, cost int64) {
	if k.rules.Load() == nil {
		return
	}
	j := k.jobs.Get().(*job)
	j.ended, j.holder, j.how, j.cost = true, strings.Clone(holder), how, cost
	k.push(j)
}

// Renewed implements [ratelimit.Tap].
func (k *Candidate) Renewed(holder string) {
	if k.rules.Load() == nil {
		return
	}
	j := k.jobs.Get().(*job)
	j.renewed, j.holder = true, strings.Clone(holder)
	k.push(j)
}

func (k *Candidate) push(j *job) {
	select {
	case k.queue <- j:
	default:
		k.dropped.Inc()
		k.free(j)
	}
}

// free returns a job to the pool.
func (k *Candidate) free(j *job) {
	k.queued.Add(-j.size)
	j.forget()
	k.jobs.Put(j)
}

// Run decides what is queued until ctx ends.
func (k *Candidate) Run(ctx context.Context) {
	batch := make([]*job, 0, maxBatch)
	for {
		select {
		case <-ctx.Done():
			return
		case j := <-k.queue:
			batch = append(batch[:0], j)
		}
		for more := true; more && len(batch) < maxBatch; {
			select {
			case j := <-k.queue:
				batch = append(batch, j)
			default:
				more = false
			}
		}
		_ = k.conf.Panics.Do("candidate", func() { k.decide(ctx, batch) })
		for _, j := range batch {
			k.free(j)
		}
	}
}

// decide does jobs in their order: requests in a row are decided together, and renewals in a row are done together.
func (k *Candidate) decide(ctx context.Context, batch []*job) {
	asks := func(j *job) bool { return !j.ended && !j.renewed }
	renews := func(j *job) bool { return j.renewed }
	for len(batch) > 0 {
		n := leading(batch, asks)
		k.ask(ctx, batch[:n])
		batch = batch[n:]
		n = leading(batch, renews)
		k.renew(ctx, batch[:n])
		for batch = batch[n:]; len(batch) > 0 && batch[0].ended; batch = batch[1:] {
			k.end(ctx, batch[0])
		}
	}
}

// leading returns how many jobs at the beginning of a batch are of a kind.
func leading(batch []*job, kind func(*job) bool) int {
	if n := slices.IndexFunc(batch, func(j *job) bool { return !kind(j) }); n >= 0 {
		return n
	}
	return len(batch)
}

func (k *Candidate) ask(ctx context.Context, batch []*job) {
	if len(batch) == 0 {
		return
	}
	k.reqs, k.resps = k.reqs[:0], k.resps[:0]
	for _, j := range batch {
		k.reqs, k.resps = append(k.reqs, &j.req), append(k.resps, &j.resp)
	}
	ctx, cancel := context.WithTimeout(ctx, k.conf.Service.Timeout)
	k.service.Decide(ctx, k.reqs, k.resps)
	cancel()
	r := k.rules.Load()
	for _, j := range batch {
		if j.resp.Err != nil || j.resp.Degraded {
			k.failed.Inc()
			continue
		}
		k.keep(j)
		if r != nil {
			k.count(r, j)
		}
		j.resp.Forget()
	}
}

// keep keeps a request of the candidate in flight as long as the live one.
func (k *Candidate) keep(j *job) {
	lease := j.resp.Inside.Lease
	// Reservations with a token end with their request. Reports settle the others, and are decided like requests.
	lease.Reserved = slices.DeleteFunc(lease.Reserved, func(r leases.Reservation) bool { return r.Oldest })
	switch {
	case len(lease.Held)+len(lease.Reserved) == 0:
	case j.holder == "" || len(k.leases) >= maxLeases: // nobody will report its end and its cost
		k.finish(context.Background(), &lease, ratelimit.Unsettled, 0)
	default:
		k.leases[j.holder] = held{lease, lease.Until}
	}
}

// finish ends a request's leases and settles its reservations.
func (k *Candidate) finish(ctx context.Context, l *leases.Lease, how ratelimit.ReservationEnd, cost int64) {
	if len(l.Held) > 0 {
		k.service.Leases().ApplyOwn(ctx, leases.End, *l)
	}
	if len(l.Reserved) > 0 {
		k.service.EndReservation(ctx, l, how, uint64(cost))
	}
}

// renew renews the leases of requests whose live leases were renewed.
func (k *Candidate) renew(ctx context.Context, batch []*job) {
	var list []leases.Lease
	for _, j := range batch {
		lease, held := k.leases[j.holder]
		if !held {
			continue
		}
		list = append(list, lease.Lease)
		lease.until = limit.InstantOf(time.Now()).Add(lease.Until.Sub(lease.Granted))
		k.leases[j.holder] = lease
	}
	if len(list) > 0 {
		k.service.Leases().ApplyOwn(ctx, leases.Renew, list...)
	}
}

func (k *Candidate) end(ctx context.Context, j *job) {
	if lease, held := k.leases[j.holder]; held {
		delete(k.leases, j.holder)
		k.finish(ctx, &lease.Lease, j.how, j.cost)
	}
	if len(k.leases) <= maxLeases/2 || time.Since(k.swept) < time.Second {
		return
	}
	k.swept = time.Now()
	now := limit.InstantOf(k.swept)
	for name, lease := range k.leases {
		if lease.until < now { // its end was dropped
			delete(k.leases, name)
		}
	}
}

// count counts the two answers to a request.
func (k *Candidate) count(r *rules, j *job) {
	in, refused := &j.resp.Inside, j.resp.OverLimit
	rule := in.Rule
	if !refused && j.refused || rule == "" {
		rule = j.rule
	}
	k.decisions.Of(j.req.Domain, r.label(rule), outcome(j.refused), outcome(refused)).Inc()
	r.add(j, rule, time.Now())
}

func outcome(refused bool) string {
	if refused {
		return "over_limit"
	}
	return "ok"
}

// Close releases what is kept in the store.
func (k *Candidate) Close(ctx context.Context) { k.service.Close(ctx) }
