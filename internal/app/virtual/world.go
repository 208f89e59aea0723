package virtual

import (
	"container/heap"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/backends/stack"
	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/policies"
	"github.com/headgate-rls/headgate/ratelimit"
	"github.com/headgate-rls/headgate/ratelimit/leases"
)

// Options say what a World has beside rules. The zero Options are usable.
type Options struct {
	// Policies take the place of limits; nil: there are none.
	Policies *policies.Snapshot
	// MaxKeys bounds the counters; zero means a million.
	MaxKeys int
	// Store is what decides in the place of the memory that it gets; nil: the memory does.
	Store func(backends.Backend) backends.Backend
}

// A World decides requests by rules, in its own time. It is for one goroutine.
type World struct {
	service *ratelimit.Service
	store   *stack.Stack
	now     limit.Instant
	set     *policies.Set
	ends    ends
	ended   int
	reqs    [1]*ratelimit.Request
	resps   [1]*ratelimit.Response
}

// New returns a world where nobody has asked before. The caller closes it.
func New(set *descriptors.Set, opt Options) (*World, error) {
	url := "memory://?max_leases=" + fmt.Sprint(limit.MaxInFlight)
	if opt.MaxKeys > 0 {
		url += "&max_keys=" + fmt.Sprint(opt.MaxKeys)
	}
	store, err := stack.New(context.Background(), url, stack.Options{})
	if err != nil {
		return nil, err
	}
	w := &World{store: store, now: 1}
	conf := ratelimit.Config{Backend: store.Backend, Caps: store.Caps, Local: store.Local, Registry: store.Registry,
		Now: func() limit.Instant { return w.now }, Log: slog.New(slog.DiscardHandler), Dry: true}
	if opt.Store != nil {
		conf.Backend = opt.Store(store.Backend)
	}
	if opt.Policies != nil {
		w.set = &policies.Set{Keeps: store.Caps.Check}
		conf.Policies = w.set
		w.SetPolicies(opt.Policies)
	}
	if w.service, err = ratelimit.New(conf, set); err != nil {
		return nil, fmt.Errorf("rules for a store in memory: %w", err)
	}
	return w, nil
}

// SetPolicies puts policies in force. The world was made with some, possibly none.
func (w *World) SetPolicies(p *policies.Snapshot) { w.set.Install(p, time.Now()) }

// Close drops all counters.
func (w *World) Close() error { return w.store.Close() }

// Decide answers a request at an instant, after the requests have ended that end until then. Instants do not go back.
func (w *World) Decide(at limit.Instant, req *ratelimit.Request, resp *ratelimit.Response) {
	w.endUntil(at)
	w.now = max(w.now, at)
	w.reqs[0], w.resps[0] = req, resp
	w.service.Decide(context.Background(), w.reqs[:], w.resps[:])
}

// Costs of requests that have not reported any.
const (
	Unknown = -1
	Failed  = -2 // the request has failed
)

// Hold has the request that was answered last be in flight until an instant, if it got a lease. It has cost so much
// then; it may be Unknown or Failed.
func (w *World) Hold(resp *ratelimit.Response, until limit.Instant, cost int64) {
	if lease := resp.Inside.Lease; len(lease.Held)+len(lease.Reserved) > 0 {
		w.ended++
		w.push(end{until: until, n: w.ended, lease: lease, cost: cost})
	}
}

// maxRenewals bounds the work for one request: files may say that one ends in thousands of years.
const maxRenewals = 1 << 16

// push has a lease end, or be renewed before it expires, as a service does while the request lasts.
func (w *World) push(e end) {
	life := e.lease.Until - e.lease.Granted
	e.at = e.until
	if e.until > w.now+life && e.renewed < maxRenewals {
		e.renewed++
		e.at = w.now + life*2/3 // reservations are not renewed in the first half
	}
	heap.Push(&w.ends, e)
}

// renew renews a lease. What a report settles is not renewed.
func (w *World) renew(l leases.Lease) {
	l.Reserved = slices.DeleteFunc(slices.Clone(l.Reserved), func(r leases.Reservation) bool { return r.Oldest })
	w.service.Leases().ApplyOwn(context.Background(), leases.Renew, l)
}

// endUntil ends the requests in flight that end until an instant, each at its time.
func (w *World) endUntil(at limit.Instant) {
	for len(w.ends) > 0 && w.ends[0].at <= at {
		e := heap.Pop(&w.ends).(end)
		w.now = max(w.now, e.at)
		if e.at < e.until {
			w.renew(e.lease)
			w.push(e)
			continue
		}
		w.service.Leases().ApplyOwn(context.Background(), leases.Release, e.lease)
		if len(e.lease.Reserved) > 0 {
			w.settle(&e)
		}
	}
}

// settle ends what a request has reserved.
func (w *World) settle(e *end) {
	how := ratelimit.Settled
	if e.cost < 0 {
		how = ratelimit.Unsettled
	}
	if e.cost == Failed {
		how = ratelimit.Failed
	}
	w.service.EndReservation(context.Background(), &e.lease, how, uint64(max(e.cost, 0)))
}

// An end is of a request in flight.
type end struct {
	at      limit.Instant // of the end, or of the next renewal
	until   limit.Instant // of the end
	n       int           // those of the same instant end in the order of their beginning
	lease   leases.Lease
	cost    int64
	renewed int // how often
}

// ends are a heap, the next one first.
type ends []end

func (e ends) Len() int      { return len(e) }
func (e ends) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e ends) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].n < e[j].n
}
func (e *ends) Push(x any) { *e = append(*e, x.(end)) }
func (e *ends) Pop() any {
	last := len(*e) - 1
	x := (*e)[last]
	(*e)[last] = end{}
	*e = (*e)[:last]
	return x
}

// Evicted is [Evicted] of this world.
func (w *World) Evicted() int64 { return Evicted(w.store.Figures()) }

// Evicted returns how many counters in use a store in memory has dropped for want of room: above zero, answers may be
// wrong.
func Evicted(figures []backends.Figure) (n int64) {
	for _, f := range figures {
		if strings.HasSuffix(f.Name, "_evictions_total") {
			n += int64(f.Value())
		}
	}
	return n
}
