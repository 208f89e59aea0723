package leases

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/backends/memory"
	"github.com/headgate-rls/headgate/internal/kit/metrics"
	"github.com/headgate-rls/headgate/limit"
)

// A fleet is replicas on one store.
type fleet struct {
	*testing.T
	store    *clockedStore
	registry backends.Registry
	limit    *limit.Limit // of each tenant
	tenants  map[string]bool
	now      moment
	members  []*member
	reverse  bool   // the last member comes first in each round
	between  func() // if not nil, all members exchange their presence, this is called, and then all of them tend
}

const (
	fleetGrace = 20 * time.Second // so that a round is 5 s
	fleetLife  = time.Hour        // of a lease
)

// A member is a replica with a clock and a way to the store of its own.
type member struct {
	*Tracker
	fleet  *fleet
	clock  time.Duration // is wrong by this
	dead   bool
	cut    atomic.Bool // off the registry
	log    strings.Builder
	counts eventCounts
}

func newFleet(t *testing.T, n int) *fleet {
	f := &fleet{T: t, tenants: map[string]bool{}}
	f.setMax(2)
	be := memory.New(memory.Config{})
	t.Cleanup(func() { _ = be.Close() })
	f.store = &clockedStore{Backend: be, now: &f.now}
	f.registry = memory.NewRegistry(func() time.Time { return time.Unix(0, 0).Add(f.now.get()) })
	for range n {
		f.join()
	}
	return f
}

// setMax sets how many requests each tenant may have in flight.
func (f *fleet) setMax(n int64) {
	f.limit = limit.MustNew(limit.Spec{Algorithm: limit.Concurrency, Max: n, Window: fleetLife})
}

// join starts a replica.
func (f *fleet) join() *member {
	f.Helper()
	m := &member{fleet: f}
	m.Tracker = New(Config{
		Backend: f.store, ServerClock: true, Local: memory.New(memory.Config{}), Registry: m,
		Now: func() limit.Instant { panic("the store has a clock") }, Timeout: 500 * time.Millisecond,
		Log: slog.New(slog.NewTextHandler(&m.log, nil)), Metrics: &m.counts, OwnerGrace: fleetGrace,
	})
	m.SetLongest(fleetLife)
	m.wall = func() time.Time { return time.Unix(0, 0).Add(f.now.get() + m.clock) }
	f.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		m.Close(ctx)
		_ = m.conf.Local.Close()
	})
	_ = m.Join(context.Background())
	f.members = append(f.members, m)
	return m
}

// joinCut starts a replica that cannot reach the registry.
func (f *fleet) joinCut() *member {
	registry := f.registry
	f.registry = unreachable{}
	m := f.join()
	f.registry = registry
	m.cut.Store(true)
	return m
}

type unreachable struct{ backends.Registry }

func (unreachable) Claim(context.Context, string, string, time.Duration) (string, error) {
	return "", errors.Join(backends.ErrUnavailable)
}

// A moment is the time since the start. Releasers read it in the background.
type moment struct{ ns atomic.Int64 }

func (m *moment) get() time.Duration   { return time.Duration(m.ns.Load()) }
func (m *moment) pass(d time.Duration) { m.ns.Add(int64(d)) }

// start2026 is a whole hour.
var start2026 = limit.InstantOf(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))

// A clockedStore is a store in memory with the fleet's clock.
type clockedStore struct {
	backends.Backend
	now *moment

	mu      sync.Mutex
	takes   int                 // calls of Take
	before  func() error        // if not nil, decides whether a Take fails
	spoiled map[limit.Key]error // what requests about a key fail with
}

func (c *clockedStore) Take(ctx context.Context, reqs []limit.Request, out []limit.Verdict) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.takes++
	if c.before != nil {
		if err := c.before(); err != nil {
			backends.Fail(out, err)
			return
		}
	}
	for i := range reqs {
		if err := c.spoiled[reqs[i].Ops[0].Key]; err != nil {
			out[i].Fail(err)
			continue
		}
		c.Backend.Take(ctx, []limit.Request{{Ops: reqs[i].Ops, At: start2026.Add(c.now.get())}}, out[i:i+1])
	}
}

// spoil has requests about a tenant fail from now on, or no more.
func (c *clockedStore) spoil(tenant string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.spoiled = map[limit.Key]error{tenantKey(tenant): err}
}

// fail answers every Take with err.
func (c *clockedStore) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.before = func() error { return err }
}

var errCut = fmt.Errorf("%w: cut off", backends.ErrUnavailable)

func (m *member) Claim(ctx context.Context, name, value string, ttl time.Duration) (string, error) {
	if m.cut.Load() {
		return "", errCut
	}
	return m.fleet.registry.Claim(ctx, name, value, ttl)
}

func (m *member) Put(ctx context.Context, table string, rows []backends.Row, ttl time.Duration) (int, error) {
	if m.cut.Load() {
		return 0, errCut
	}
	return m.fleet.registry.Put(ctx, table, rows, ttl)
}

func (m *member) List(ctx context.Context, table string) ([]backends.Row, error) {
	if m.cut.Load() {
		return nil, errCut
	}
	return m.fleet.registry.List(ctx, table)
}

func (m *member) Drop(ctx context.Context, table string, keys []string) error {
	if m.cut.Load() {
		return errCut
	}
	return m.fleet.registry.Drop(ctx, table, keys)
}

// pass lets time pass, with the rounds of the members that live; each, if set,
// is called in every round.
func (f *fleet) pass(d time.Duration, each ...func()) {
	const round = fleetGrace / roundsPerGrace
	for i := range d / round {
		f.now.pass(round)
		for _, f := range each {
			f()
		}
		members := slices.Clone(f.members)
		if f.reverse {
			slices.Reverse(members)
		}
		members = slices.DeleteFunc(members, func(m *member) bool { return m.dead })
		exchange := func(m *member) { _ = m.exchangePresence(context.Background()) }
		if f.between != nil {
			for _, m := range members {
				exchange(m)
			}
			f.between()
			exchange = func(*member) {}
		}
		for _, m := range members {
			exchange(m)
			_ = m.tend(context.Background(), uint64(i))
		}
	}
}

func tenantKey(tenant string) limit.Key {
	return limit.Key{Group: limit.MakeGroup(limit.AppendPart(nil, tenant)), Limit: "c"}
}

// inFlight is how many leases the store has.
func (f *fleet) inFlight() (n int64) {
	f.Helper()
	for tenant := range f.tenants {
		out := make([]limit.Verdict, 1)
		op := limit.Op{Key: tenantKey(tenant), Limit: lifeLimit(fleetLife)}
		f.store.Backend.Take(context.Background(), []limit.Request{{Ops: []limit.Op{op}, At: start2026.Add(f.now.get())}},
			out)
		if out[0].Err != nil {
			f.Fatal(out[0].Err)
		}
		n += inFlightAfter(&out[0].Outcomes[0])
	}
	return n
}

func (f *fleet) want(n int64, when string) {
	f.Helper()
	if got := f.inFlight(); got != n {
		f.Fatalf("%s: %d in flight, want %d", when, got, n)
	}
}

// acquire asks for a lease as package ratelimit does, and returns its token, ""
// if it was refused.
func (m *member) acquire(who Proxy, tenant string) (token string, g Grant) {
	m.fleet.Helper()
	m.fleet.tenants[tenant] = true
	m.HeardFrom(who)
	g = Grant{Op: limit.Op{Key: tenantKey(tenant), Limit: m.fleet.limit, Cost: 1, Holder: Holder("d", "", who)},
		Domain: "d", Rule: "tenant"}
	out := make([]limit.Verdict, 1)
	m.fleet.store.Take(context.Background(), []limit.Request{{Ops: []limit.Op{g.Op}}}, out)
	if v := &out[0]; v.Err != nil || !v.Admitted {
		return "", g
	}
	m.Observe(g.Op.Key, "d", "tenant", fleetLife, out[0].Outcomes[0].InFlight, out[0].At)
	token, err := m.Sign(&Lease{Holder: g.Op.Holder, Domain: "d", Until: out[0].At.Add(fleetLife),
		Held: []Held{{Key: g.Op.Key, TTL: fleetLife, Rule: "tenant"}}}, who)
	if err != nil {
		m.fleet.Fatal(err)
	}
	return token, g
}

func (m *member) ask(who Proxy, tenant string) string {
	m.fleet.Helper()
	token, _ := m.acquire(who, tenant)
	return token
}

// openLog opens an access log that renews leases.
func (m *member) openLog(tokens ...string) (renew, closeLog func()) {
	ctx := context.Background()
	var closed []func()
	for _, o := range m.Apply(ctx, "accesslog", Renew, tokens) {
		closed = append(closed, m.Watch(o))
	}
	return func() { m.Apply(ctx, "accesslog", Renew, tokens) }, func() {
		for _, f := range closed {
			f()
		}
	}
}

// eventCounts counts by "domain/rule event".
type eventCounts struct {
	metrics.Counters
	once sync.Once
}

func (e *eventCounts) Lease(domain, rule string) *metrics.Series {
	e.once.Do(func() { e.Row("", "", metrics.Open("domain", "rule").Closed("event", metrics.Texts(0, NumEvents)...)) })
	return e.Hold(domain, rule)
}

// Reservation counts nothing: package ratelimit tests what becomes of reservations.
func (e *eventCounts) Reservation(_, _ string) *metrics.Series   { return nil }
func (e *eventCounts) ReservedUnits(_, _ string) *metrics.Series { return nil }

func (e *eventCounts) count(name string) int {
	of, event, _ := strings.Cut(name, " ")
	domain, rule, _ := strings.Cut(of, "/")
	i := slices.Index(metrics.Texts(0, NumEvents), event)
	return int(e.Lease(domain, rule).At(i).Value())
}

func (f *fleet) eventually(what string, ok func() bool) {
	f.Helper()
	for until := time.Now().Add(10 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			f.Fatalf("not within 10 s: %s", what)
		}
	}
}
