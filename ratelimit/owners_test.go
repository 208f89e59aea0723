package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/backends/memory"
	"github.com/headgate-rls/headgate/limit"
)

// A fleet is replicas on one store.
type fleet struct {
	*testing.T
	be       *modelBackend
	registry backends.Registry
	now      moment
	members  []*member
	reverse  bool // the last member comes first in each round
}

const fleetGrace = 20 * time.Second // so that a round is 5 s

// A member is a replica with a clock and a way to the store of its own.
type member struct {
	*Service
	fleet  *fleet
	clock  time.Duration // is wrong by this
	dead   bool
	cut    atomic.Bool // off the registry
	log    strings.Builder
	counts *countingMetrics
}

func newFleet(t *testing.T, n int) *fleet {
	f := &fleet{T: t, be: newModel()}
	f.registry = memory.NewRegistry(func() time.Time { return time.Unix(0, 0).Add(f.now.get()) })
	for range n {
		f.join()
	}
	return f
}

// join starts a replica.
func (f *fleet) join() *member {
	f.Helper()
	m := &member{fleet: f, counts: newCounting()}
	caps := modelCaps(false)
	caps.ServerClock = true
	s, err := New(Config{
		Backend: clocked{f}, Caps: caps, Local: newModel(), Registry: m,
		Now: func() limit.Instant { panic("the store has a clock") },
		Log: slog.New(slog.NewTextHandler(&m.log, nil)), Metrics: m.counts, OwnerGrace: fleetGrace,
	}, mustLoad(f.T, strings.Replace(inFlightRules, "lease_ttl: 1m", "lease_ttl: 1h", 1)))
	if err != nil {
		f.Fatal(err)
	}
	s.wall = func() time.Time { return time.Unix(0, 0).Add(f.now.get() + m.clock) }
	m.Service = s
	f.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		s.Close(ctx)
	})
	_ = s.Join(context.Background())
	f.members = append(f.members, m)
	return m
}

// A moment is the time since the start. Releasers read it in the background.
type moment struct{ ns atomic.Int64 }

func (m *moment) get() time.Duration   { return time.Duration(m.ns.Load()) }
func (m *moment) pass(d time.Duration) { m.ns.Add(int64(d)) }

// clocked is the fleet's store, which has a clock.
type clocked struct{ f *fleet }

func (c clocked) Take(ctx context.Context, reqs []limit.Request, out []limit.Verdict) {
	timed := make([]limit.Request, len(reqs))
	for i := range reqs {
		timed[i] = limit.Request{Ops: reqs[i].Ops, At: start2026.Add(c.f.now.get())}
	}
	c.f.be.Take(ctx, timed, out)
}

func (c clocked) Forget(context.Context, []limit.Key) error { return nil }
func (c clocked) Ping(context.Context) error                { return nil }
func (c clocked) Close() error                              { return nil }

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

// pass lets time pass, with the rounds of those who live; each, if set, is done
// in every round.
func (f *fleet) pass(d time.Duration, each ...func()) {
	const round = fleetGrace / perGrace
	for i := range d / round {
		f.now.pass(round)
		for _, f := range each {
			f()
		}
		members := slices.Clone(f.members)
		if f.reverse {
			slices.Reverse(members)
		}
		for _, m := range members {
			if !m.dead {
				_ = m.meet(context.Background())
				_ = m.tend(context.Background(), uint64(i))
			}
		}
	}
}

// inFlight is how many leases the store has under a tenant's key.
func (f *fleet) inFlight() (n int64) {
	f.be.mu.Lock()
	defer f.be.mu.Unlock()
	for k, s := range f.be.states {
		_, out := limit.Step(s, &limit.Op{Key: k, Limit: lifeOf(time.Minute)}, start2026.Add(f.now.get()))
		n += inFlight(&out)
	}
	return n
}

func (f *fleet) want(n int64, when string) {
	f.Helper()
	if got := f.inFlight(); got != n {
		f.Fatalf("%s: %d in flight, want %d", when, got, n)
	}
}

// ask sends a question of an owner's and returns the lease, "" if refused.
func (m *member) ask(who ownerName, tenant string) string {
	resp := new(Response)
	m.Decide(context.Background(), []*Request{{Domain: "d", Descriptors: []Descriptor{desc("tenant=" + tenant)}, Owner: who.name, Peer: who.peer}}, []*Response{resp})
	if len(resp.metadata) == 0 || resp.OverLimit {
		return ""
	}
	return meta(m.fleet.T, resp, DefaultLeaseKey)
}

// openLog opens an access log that renews leases.
func (m *member) openLog(tokens ...string) (renew, closeLog func()) {
	ctx := context.Background()
	var closed []func()
	for _, o := range m.Lease(ctx, "accesslog", OpRenew, tokens) {
		closed = append(closed, m.Watch(o))
	}
	return func() { m.Lease(ctx, "accesslog", OpRenew, tokens) }, func() {
		for _, f := range closed {
			f()
		}
	}
}

var envoy1, envoy2 = ownerName{"", "envoy-1"}, ownerName{"", "envoy-2"}

// gone is by when an owner's leases are ended that all live replicas know: the
// grace, the round before, that of the last report, and the one that notices.
const (
	gone       = fleetGrace + 3*fleetGrace/perGrace
	goneWithIt = gone + fleetGrace + fleetGrace/perGrace
)

// TestProxyGone: a proxy that is gone loses its requests, on whichever replica
// they were granted, and nobody else does.
func TestProxyGone(t *testing.T) {
	f := newFleet(t, 3)
	a, b := f.members[0], f.members[1]
	one, two := a.ask(envoy1, "x"), b.ask(envoy1, "y")
	other := b.ask(envoy2, "x")
	_, hangUp := a.openLog(one, two)
	renew, _ := b.openLog(other)
	f.pass(2*fleetGrace, renew)
	f.want(3, "both are there")
	hangUp()
	f.pass(fleetGrace-fleetGrace/perGrace, renew)
	f.want(3, "within the grace")
	f.pass(gone-fleetGrace+fleetGrace/perGrace, renew)
	f.want(1, "after it")
	f.pass(3*fleetGrace, renew)
	f.want(1, "later")
	said, reaped := 0, 0
	for _, m := range f.members {
		said += strings.Count(m.log.String(), "a proxy is gone")
		reaped += m.counts.count("d/tenant reaped")
	}
	if said != 1 || reaped != 2 {
		t.Errorf("%d replicas say so, and %d leases are counted; want 1 and 2", said, reaped)
	}
}

// TestProxyAndReplicaGone: when a proxy and the replica that it spoke to die
// together, another replica ends its requests.
func TestProxyAndReplicaGone(t *testing.T) {
	f := newFleet(t, 2)
	a := f.members[0]
	renew, _ := a.openLog(a.ask(envoy1, "x"), a.ask(envoy1, "x"))
	f.pass(fleetGrace, renew)
	a.dead = true
	f.pass(goneWithIt)
	f.want(0, "after both died")
}

// TestProxyGoneBeforeRestart: a headgate that starts knows the owners of leases
// that were granted before.
func TestProxyGoneBeforeRestart(t *testing.T) {
	f := newFleet(t, 1)
	a := f.members[0]
	renew, _ := a.openLog(a.ask(envoy1, "x"))
	f.pass(fleetGrace, renew)
	a.dead = true
	f.join()
	f.pass(fleetGrace)
	f.want(1, "it may come back")
	f.pass(goneWithIt - fleetGrace)
	f.want(0, "after the restart")
}

// TestLiveProxyStays: no trouble of a replica or of the store ends requests of
// a proxy that is there.
func TestLiveProxyStays(t *testing.T) {
	cut := func(which ...int) func(f *fleet) {
		return func(f *fleet) {
			for _, i := range which {
				f.members[i].cut.Store(!f.members[i].cut.Load())
			}
		}
	}
	for name, c := range map[string]struct {
		hurt, heal func(f *fleet)
		lasts      time.Duration
	}{
		"the store is away for everybody":         {cut(0, 1), cut(0, 1), 10 * fleetGrace},
		"the store is away for those who look":    {cut(1), cut(1), 10 * fleetGrace},
		"a short cut for the one who reports":     {cut(0), cut(0), fleetGrace + fleetGrace/2},
		"a replica stands still":                  {func(f *fleet) { f.members[1].dead = true }, func(f *fleet) { f.members[1].dead = false }, 10 * fleetGrace},
		"all stand still":                         {func(f *fleet) { f.now.pass(3 * fleetGrace) }, nil, 0},
		"a clock goes forward":                    {func(f *fleet) { f.members[1].clock = 24 * time.Hour }, nil, fleetGrace},
		"a clock goes back":                       {func(f *fleet) { f.members[1].clock = -24 * time.Hour }, nil, fleetGrace},
		"the store forgets":                       {func(f *fleet) { f.registry = memory.NewRegistry(time.Now) }, nil, fleetGrace},
		"a replica joins while the store is away": {func(f *fleet) { cut(0, 1)(f); f.joinCut() }, cut(0, 1, 2), 5 * fleetGrace},
	} {
		for _, reverse := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, reverse=%v", name, reverse), func(t *testing.T) {
				f := newFleet(t, 2)
				a := f.members[0]
				renew, _ := a.openLog(a.ask(envoy1, "x"))
				f.pass(fleetGrace, renew)
				c.hurt(f)
				f.pass(c.lasts, renew)
				if c.heal != nil {
					c.heal(f)
				}
				f.reverse = reverse // so that one looks before the other reports again
				f.pass(4*fleetGrace, renew)
				f.want(1, "the proxy was there all the time")
				for i, m := range f.members {
					if strings.Contains(m.log.String(), "a proxy is gone") {
						t.Errorf("replica %d: %s", i, &m.log)
					}
				}
			})
		}
	}
}

// TestWhoAsksIsThere: a proxy whose access log is gone is there as long as it
// asks, also where it is only refused, and as long as it ends or renews.
func TestWhoAsksIsThere(t *testing.T) {
	for name, sign := range map[string]func(b *member, token string){
		"refused": func(b *member, _ string) {
			if b.ask(envoy1, "x") != "" {
				t.Error("a full limit let somebody pass")
			}
		},
		"asks about another": func(b *member, _ string) { b.ask(envoy1, "y"+strconv.Itoa(int(b.fleet.now.get()))) },
		"renews":             func(b *member, token string) { b.Lease(context.Background(), "x", OpRenew, []string{token}) },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t, 2)
			a, b := f.members[0], f.members[1]
			one, two := a.ask(envoy1, "x"), a.ask(envoy1, "x")
			renew, hangUp := a.openLog(one, two)
			f.pass(fleetGrace, renew)
			hangUp()
			f.pass(4*fleetGrace, func() { sign(b, two); renew() })
			if n := f.inFlight(); n < 2 {
				t.Errorf("%d of 2 are left of a proxy that is there", n)
			}
			f.pass(4*fleetGrace, func() { sign(b, two) })
			for i, m := range f.members {
				if strings.Contains(m.log.String(), "a proxy is gone") {
					t.Errorf("replica %d: %s", i, &m.log)
				}
			}
		})
	}
}

// TestSilentProxyWithoutAccessLog: nothing can be said of a proxy that has no
// access log: one long request keeps it silent.
func TestSilentProxyWithoutAccessLog(t *testing.T) {
	f := newFleet(t, 2)
	f.members[0].ask(envoy1, "x")
	f.pass(2 * fleetGrace)
	f.want(1, "after a silence")
}

// TestStranger: who gives another proxy's name, and is no such proxy, neither
// ends its requests nor keeps them.
func TestStranger(t *testing.T) {
	f := newFleet(t, 2)
	a, b := f.members[0], f.members[1]
	good := ownerName{"uri:spiffe://good", "envoy-1"}
	bad := ownerName{"uri:spiffe://bad", "envoy-1"}
	a.ask(good, "x") // has no access log
	_, hangUp := b.openLog(b.ask(bad, "y"), "forged")
	f.pass(fleetGrace)
	hangUp()
	f.pass(goneWithIt)
	f.want(1, "the stranger's is ended, and no other")

	f = newFleet(t, 2)
	a, b = f.members[0], f.members[1]
	_, hangUp = a.openLog(a.ask(good, "x"))
	f.pass(fleetGrace)
	hangUp()
	f.pass(goneWithIt, func() { b.ask(bad, "y") })
	if got := f.members[0].log.String() + f.members[1].log.String(); strings.Count(got, "a proxy is gone") != 1 {
		t.Errorf("the stranger keeps another's requests: %s", got)
	}
}

// TestManyNames: a caller who invents names makes no room for itself, and does
// not make anybody forget proxies that have leases.
func TestManyNames(t *testing.T) {
	f := newFleet(t, 1)
	a := f.members[0]
	var real []ownerName
	for i := range 20 {
		real = append(real, ownerName{"", fmt.Sprint("envoy-", i)})
		_, hangUp := a.openLog(a.ask(real[i], "x"+strconv.Itoa(i)))
		hangUp()
	}
	f.pass(fleetGrace / perGrace)
	for i := range 2 * maxOwners {
		a.Abandon(granting(a, "owner-"+strconv.Itoa(i)))
	}
	if n := a.Stats().Owners; n > maxOwners {
		t.Errorf("%d owners are kept, at most %d", n, maxOwners)
	}
	for _, name := range real {
		if o := a.owners.byID[name.id()]; o == nil || !o.listed {
			t.Errorf("%s is forgotten", name.name)
		}
	}
	f.pass(4*fleetGrace, func() {
		for i, o := range real {
			a.ask(o, "x"+strconv.Itoa(i))
		}
	})
	if strings.Contains(a.log.String(), "a proxy is gone") {
		t.Errorf("%s", &a.log)
	}
}

// TestUncountedAccessLogEndsNoOther: the end of an access log for whose proxy there
// was no room does not end another log of the same proxy.
func TestUncountedAccessLogEndsNoOther(t *testing.T) {
	s := setup(t, basic).Service
	for i := range maxOwners {
		s.owners.find(ownerName{"", strconv.Itoa(i)}.id()).listed = true
	}
	envoy := ownerName{"", "envoy"}.id()
	hangUp := s.Watch(envoy)
	for _, o := range s.owners.byID {
		o.listed = false
	}
	s.Watch(envoy)
	hangUp()
	if o := s.owners.byID[envoy]; o == nil || o.streams != 1 {
		t.Errorf("the proxy is %+v, want one that has an access log", o)
	}
}

func granting(m *member, owner string) *Response {
	resp := new(Response)
	m.Decide(context.Background(), []*Request{{Domain: "d", Descriptors: []Descriptor{desc("tenant=" + owner)}, Owner: owner}}, []*Response{resp})
	return resp
}

// TestFailedEndingIsRepeated: what could not be ended is ended later, by
// another replica if need be.
func TestFailedEndingIsRepeated(t *testing.T) {
	f := newFleet(t, 2)
	a := f.members[0]
	_, hangUp := a.openLog(a.ask(envoy1, "x"))
	f.pass(fleetGrace)
	hangUp()
	f.be.fail(backends.ErrUnavailable)
	f.pass(gone)
	f.be.fail(nil)
	f.want(1, "the store was away")
	f.pass(4 * fleetGrace)
	f.want(0, "the store is back")
}

// TestProxyOfManyGone: all leases of a proxy go with it, however many calls the
// store needs for them, and although one of the calls fails.
func TestProxyOfManyGone(t *testing.T) {
	const n = 3*limit.OwnerSlice + 7
	f := newFleet(t, 1)
	a := f.members[0]
	rules := fmt.Sprintf("domain: d\ndescriptors:\n  - {key: tenant, lease_ttl: 1h, concurrency: [{threshold: %d, response: {statusCode: 429}}]}\n", n+1)
	if err := a.SetRules(mustLoad(t, rules)); err != nil {
		t.Fatal(err)
	}
	_, hangUp := a.openLog(a.ask(envoy1, "x"))
	for range n {
		f.now.pass(time.Millisecond)
		a.ask(envoy1, "x")
	}
	f.want(n+1, "all are there")
	hangUp()
	f.pass(gone - fleetGrace)
	failing := 3
	f.be.before = func() error {
		if failing--; failing == 0 {
			return backends.ErrUnavailable
		}
		return nil
	}
	f.pass(2 * fleetGrace)
	f.want(0, "after the grace")
	if got := a.counts.count("d/tenant reaped"); got != n+1 || failing >= 0 {
		t.Errorf("%d are counted, want %d; %d more calls until one fails", got, n+1, failing)
	}
}

// TestSharedSecret: replicas without a configured secret end each other's
// leases, also after the store has forgotten everything, and so does a replica
// that could not ask for it when it started.
func TestSharedSecret(t *testing.T) {
	f := newFleet(t, 2)
	a, b := f.members[0], f.members[1]
	release := func(m *member, token string) {
		t.Helper()
		before := f.inFlight()
		m.Lease(context.Background(), "x", OpRelease, []string{token})
		if got := f.inFlight(); got != before-1 {
			t.Errorf("%d in flight after an end, %d before it", got, before)
		}
	}
	release(b, a.ask(envoy1, "x"))
	release(a, b.ask(envoy1, "x"))
	f.registry = memory.NewRegistry(time.Now)
	late := f.join() // is first now
	token := a.ask(envoy1, "x")
	f.pass(fleetGrace)
	for _, m := range f.members {
		release(m, late.ask(envoy1, "x"))
		release(late, m.ask(envoy1, "x"))
	}
	release(a, token)

	for _, m := range f.members {
		m.cut.Store(true)
	}
	lonely := f.joinCut()
	token = lonely.ask(envoy1, "x")
	lonely.cut.Store(false)
	f.pass(fleetGrace)
	release(lonely, token)
	release(a, lonely.ask(envoy1, "x"))
	for _, m := range f.members {
		if secret := m.presence.secret; secret == "" || strings.Contains(m.log.String(), secret) {
			t.Error("the secret is in the log, or there is none")
		}
	}
}

// joinCut starts a replica that cannot reach the registry.
func (f *fleet) joinCut() *member {
	was := f.registry
	f.registry = away{}
	m := f.join()
	f.registry = was
	m.cut.Store(true)
	return m
}

type away struct{ backends.Registry }

func (away) Claim(context.Context, string, string, time.Duration) (string, error) {
	return "", errors.Join(backends.ErrUnavailable)
}
