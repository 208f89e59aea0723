package leases

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/backends/memory"
	"github.com/headgate-rls/headgate/limit"
)

var envoy1, envoy2 = Proxy{Name: "envoy-1"}, Proxy{Name: "envoy-2"}

// gone is by when an owner's leases are ended that all live replicas know: the
// grace, the round before, that of the last report, and the one that notices.
const (
	gone       = fleetGrace + 3*fleetGrace/roundsPerGrace
	goneWithIt = gone + fleetGrace + fleetGrace/roundsPerGrace
)

// TestLeasesOfGoneProxyEnd: a proxy that is gone loses its requests, on whichever replica
// they were granted, and nobody else does.
func TestLeasesOfGoneProxyEnd(t *testing.T) {
	f := newFleet(t, 3)
	a, b := f.members[0], f.members[1]
	one, two := a.ask(envoy1, "x"), b.ask(envoy1, "y")
	other := b.ask(envoy2, "x")
	_, hangUp := a.openLog(one, two)
	renew, _ := b.openLog(other)
	f.pass(2*fleetGrace, renew)
	f.want(3, "both are there")
	hangUp()
	f.pass(fleetGrace-fleetGrace/roundsPerGrace, renew)
	f.want(3, "within the grace")
	f.pass(gone-fleetGrace+fleetGrace/roundsPerGrace, renew)
	f.want(1, "after it")
	f.pass(3*fleetGrace, renew)
	f.want(1, "later")
	said, reaped := 0, 0
	for _, m := range f.members {
		said += strings.Count(m.log.String(), "proxy gone")
		reaped += m.counts.count("d/tenant reaped")
	}
	if said != 1 || reaped != 2 {
		t.Errorf("%d replicas say so, and %d leases are counted; want 1 and 2", said, reaped)
	}
}

// TestFailingCounterHoldsNoOtherLeases: where the store fails requests about one tenant, because it has foreign data
// there or that server does not answer, a proxy that is gone loses its requests of all others.
func TestFailingCounterHoldsNoOtherLeases(t *testing.T) {
	const others = 2 * batchSize
	for _, spoiled := range []error{backends.ErrCorrupt, backends.ErrUnavailable} {
		f := newFleet(t, 2)
		a, b := f.members[0], f.members[1]
		tokens := []string{a.ask(envoy1, "spoiled")}
		for i := range others {
			tokens = append(tokens, a.ask(envoy1, fmt.Sprint("other-", i)))
		}
		renew, _ := a.openLog(tokens...)
		f.pass(fleetGrace, renew)
		f.store.spoil("spoiled", spoiled)
		a.dead = true
		f.pass(goneWithIt)
		f.want(1, "the proxy and its replica are gone")
		corrupt := spoiled == backends.ErrCorrupt
		if log := b.log.String(); corrupt != strings.Contains(log, "corrupt") || strings.Count(log, "proxy gone") != 1 {
			t.Errorf("%v: the log: %s", spoiled, log)
		}
		f.store.spoil("spoiled", nil)
		f.pass(fleetGrace)
		left := int64(0)
		if corrupt {
			left = 1 // until it expires
		}
		f.want(left, "nothing fails any longer")
		if n := b.Stats().Owners; n != 0 {
			t.Errorf("%v: %d owners are left", spoiled, n)
		}
	}
}

// TestLeasesEndWhenProxyAndReplicaAreGone: when a proxy and the replica that it spoke to die
// together, another replica ends its requests.
func TestLeasesEndWhenProxyAndReplicaAreGone(t *testing.T) {
	f := newFleet(t, 2)
	a := f.members[0]
	renew, _ := a.openLog(a.ask(envoy1, "x"), a.ask(envoy1, "x"))
	f.pass(fleetGrace, renew)
	a.dead = true
	f.pass(goneWithIt)
	f.want(0, "after both died")
}

// TestRestartedReplicaEndsLeasesOfGoneProxy: a headgate that starts knows the owners of leases
// that were granted before.
func TestRestartedReplicaEndsLeasesOfGoneProxy(t *testing.T) {
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

// laterRows has what is put in the form of a later version.
type laterRows struct{ backends.Registry }

func (r laterRows) Put(ctx context.Context, table string, rows []backends.Row, ttl time.Duration) (int, error) {
	for i := range rows {
		rows[i].Value = "\x80" + rows[i].Value
	}
	return r.Registry.Put(ctx, table, rows, ttl)
}

// TestPresentProxyKeepsItsLeases: no trouble of a replica or of the store ends requests of
// a proxy that is there.
func TestPresentProxyKeepsItsLeases(t *testing.T) {
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
		"the store is away for everybody":      {cut(0, 1), cut(0, 1), 10 * fleetGrace},
		"the store is away for those who look": {cut(1), cut(1), 10 * fleetGrace},
		"a short cut for the one who reports":  {cut(0), cut(0), fleetGrace + fleetGrace/2},
		"a replica stands still": {func(f *fleet) { f.members[1].dead = true },
			func(f *fleet) { f.members[1].dead = false }, 10 * fleetGrace},
		"all stand still":      {func(f *fleet) { f.now.pass(3 * fleetGrace) }, nil, 0},
		"a clock goes forward": {func(f *fleet) { f.members[1].clock = 24 * time.Hour }, nil, fleetGrace},
		"a clock goes back":    {func(f *fleet) { f.members[1].clock = -24 * time.Hour }, nil, fleetGrace},
		"the store forgets": {func(f *fleet) { f.registry = memory.NewRegistry(time.Now) },
			nil, fleetGrace},
		"a later version writes the rows": {func(f *fleet) { f.registry = laterRows{f.registry} }, nil, 10 * fleetGrace},
		"a replica joins while the store is away": {func(f *fleet) { cut(0, 1)(f); f.joinCut() }, cut(0, 1, 2),
			5 * fleetGrace},
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
					if strings.Contains(m.log.String(), "proxy gone") {
						t.Errorf("replica %d: %s", i, &m.log)
					}
				}
			})
		}
	}
}

// TestProxyThatCallsIsPresent: a proxy whose access log is gone is there as long as it
// asks, also where it is only refused, and as long as it ends or renews.
func TestProxyThatCallsIsPresent(t *testing.T) {
	for name, sign := range map[string]func(b *member, token string){
		"refused": func(b *member, _ string) {
			if b.ask(envoy1, "x") != "" {
				t.Error("a full limit let somebody pass")
			}
		},
		"asks about another": func(b *member, _ string) { b.ask(envoy1, "y"+strconv.Itoa(int(b.fleet.now.get()))) },
		"renews":             func(b *member, token string) { b.Apply(context.Background(), "x", Renew, []string{token}) },
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
				if strings.Contains(m.log.String(), "proxy gone") {
					t.Errorf("replica %d: %s", i, &m.log)
				}
			}
		})
	}
}

// TestSilentProxyWithoutAccessLogKeepsItsLeases: nothing can be said of a proxy that has no
// access log: one long request keeps it silent.
func TestSilentProxyWithoutAccessLogKeepsItsLeases(t *testing.T) {
	f := newFleet(t, 2)
	f.members[0].ask(envoy1, "x")
	f.pass(2 * fleetGrace)
	f.want(1, "after a silence")
}

// TestNameOfAnotherProxyIsNoPresence: a client that gives the name of another proxy neither ends that proxy's requests
// nor keeps them.
func TestNameOfAnotherProxyIsNoPresence(t *testing.T) {
	f := newFleet(t, 2)
	a, b := f.members[0], f.members[1]
	good := Proxy{"uri:spiffe://good", "envoy-1"}
	bad := Proxy{"uri:spiffe://bad", "envoy-1"}
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
	if got := f.members[0].log.String() + f.members[1].log.String(); strings.Count(got, "proxy gone") != 1 {
		t.Errorf("the stranger keeps another's requests: %s", got)
	}
}

// TestInventedNamesPushOutNoOwner: a caller who invents names makes no room for itself, and does
// not make anybody forget proxies that have leases.
func TestInventedNamesPushOutNoOwner(t *testing.T) {
	f := newFleet(t, 1)
	a := f.members[0]
	var real []Proxy
	for i := range 20 {
		real = append(real, Proxy{Name: fmt.Sprint("envoy-", i)})
		_, hangUp := a.openLog(a.ask(real[i], "x"+strconv.Itoa(i)))
		hangUp()
	}
	f.pass(fleetGrace / roundsPerGrace)
	for i := range 2 * maxOwners {
		name := "owner-" + strconv.Itoa(i)
		_, g := a.acquire(Proxy{Name: name}, name)
		a.Abandon(&g)
	}
	if n := a.Stats().Owners; n > maxOwners {
		t.Errorf("%d owners are kept, at most %d", n, maxOwners)
	}
	for _, name := range real {
		if o := a.owners.byID[name.ID()]; o == nil || !o.listed {
			t.Errorf("%s is forgotten", name.Name)
		}
	}
	f.pass(4*fleetGrace, func() {
		for i, o := range real {
			a.ask(o, "x"+strconv.Itoa(i))
		}
	})
	if strings.Contains(a.log.String(), "proxy gone") {
		t.Errorf("%s", &a.log)
	}
}

// TestUncountedAccessLogEndsNoOther: the end of an access log for whose proxy there
// was no room does not end another log of the same proxy.
func TestUncountedAccessLogEndsNoOther(t *testing.T) {
	var m Tracker
	for i := range maxOwners {
		m.owners.findOrAdd(Proxy{Name: strconv.Itoa(i)}.ID()).listed = true
	}
	envoy := Proxy{Name: "envoy"}.ID()
	hangUp := m.Watch(envoy)
	for _, o := range m.owners.byID {
		o.listed = false
	}
	m.Watch(envoy)
	hangUp()
	if o := m.owners.byID[envoy]; o == nil || o.streams != 1 {
		t.Errorf("the proxy is %+v, want one that has an access log", o)
	}
}

// TestReplicasThatNoticeTogetherEndLeasesOnce: of replicas that notice at the same time that a proxy is gone, one ends
// its leases and says so.
func TestReplicasThatNoticeTogetherEndLeasesOnce(t *testing.T) {
	f := newFleet(t, 3)
	f.between = func() {}
	_, hangUp := f.members[0].openLog(f.members[0].ask(envoy1, "x"))
	f.pass(fleetGrace)
	hangUp()
	f.pass(gone)
	f.want(0, "after the grace")
	said := 0
	for _, m := range f.members {
		said += strings.Count(m.log.String(), "proxy gone")
	}
	if said != 1 {
		t.Errorf("%d replicas say that the proxy is gone, want one", said)
	}
}

// TestProxyThatComesBackInTimeKeepsItsLeases: a proxy that calls after a replica has noticed its absence, and before
// that replica ends its leases, keeps them.
func TestProxyThatComesBackInTimeKeepsItsLeases(t *testing.T) {
	for _, elsewhere := range []bool{false, true} { // it calls another replica
		f := newFleet(t, 2)
		renew, hangUp := f.members[0].openLog(f.members[0].ask(envoy1, "x"))
		f.pass(fleetGrace, renew)
		hangUp()
		called := -1
		f.between = func() {
			noticed := slices.IndexFunc(f.members, func(m *member) bool { return len(m.gone) > 0 })
			if called < 0 && noticed < 0 {
				return
			}
			if called < 0 {
				called = noticed
			}
			if !elsewhere {
				f.members[called].HeardFrom(envoy1)
				return
			}
			f.members[1-called].HeardFrom(envoy1)
			for _, m := range []*member{f.members[1-called], f.members[called]} { // while a slow round of ends waits
				gone := m.gone
				_ = m.exchangePresence(t.Context())
				m.gone = gone
			}
		}
		f.pass(gone)
		f.want(1, fmt.Sprint("it calls another replica: ", elsewhere))
		if called < 0 {
			t.Error("nobody has noticed that the proxy was gone")
		}
	}
}

// TestFailedEndingIsRepeated: what could not be ended is ended later, by
// another replica if need be.
func TestFailedEndingIsRepeated(t *testing.T) {
	f := newFleet(t, 2)
	a := f.members[0]
	_, hangUp := a.openLog(a.ask(envoy1, "x"))
	f.pass(fleetGrace)
	hangUp()
	f.store.fail(backends.ErrUnavailable)
	f.pass(gone)
	f.store.fail(nil)
	f.want(1, "the store was away")
	f.pass(4 * fleetGrace)
	f.want(0, "the store is back")
}

// TestAllLeasesOfGoneProxyEnd: all leases of a proxy go with it, however many calls the
// store needs for them, and although one of the calls fails.
func TestAllLeasesOfGoneProxyEnd(t *testing.T) {
	const n = 3*limit.OwnerSlice + 7
	f := newFleet(t, 1)
	a := f.members[0]
	f.setMax(n + 1)
	_, hangUp := a.openLog(a.ask(envoy1, "x"))
	for range n {
		f.now.pass(time.Millisecond)
		a.ask(envoy1, "x")
	}
	f.want(n+1, "all are there")
	hangUp()
	f.pass(gone - fleetGrace)
	failing := 3
	f.store.before = func() error {
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

// TestReplicasShareTheSecret: replicas without a configured secret end each other's
// leases, also after the store has forgotten everything, and so does a replica
// that could not ask for it when it started.
func TestReplicasShareTheSecret(t *testing.T) {
	f := newFleet(t, 2)
	a, b := f.members[0], f.members[1]
	release := func(m *member, token string) {
		t.Helper()
		before := f.inFlight()
		m.Apply(context.Background(), "x", Release, []string{token})
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
	f.registry = memory.NewRegistry(time.Now)
	if _, err := f.registry.Claim(t.Context(), secretClaim, "\x80later", time.Hour); err != nil {
		t.Fatal(err)
	}
	a.cut.Store(false)
	token = a.ask(envoy1, "x")
	f.pass(fleetGrace)
	release(a, token)
	release(a, a.ask(envoy1, "x"))
	if !strings.Contains(a.log.String(), "a later version of headgate keeps the secret") {
		t.Errorf("nothing is said about the secret of a later version: %s", a.log.String())
	}
	for _, m := range f.members {
		if secret := m.secret; secret == "" || strings.Contains(m.log.String(), secret) {
			t.Error("the secret is in the log, or there is none")
		}
	}
}
