package leases

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/limit"
)

// published is what a scrape of a replica's metrics says.
func (m *member) published() string {
	list, complete := m.InFlight()
	text := fmt.Sprint(complete)
	for _, f := range list {
		text += fmt.Sprintf(" %s/%s=%d", f.Domain, f.Rule, f.Count)
	}
	return text
}

func (m *member) wantPublished(want, when string) {
	m.fleet.Helper()
	if got := m.published(); got != want {
		m.fleet.Errorf("%s: %q is published, want %q", when, got, want)
	}
}

// TestPublishedCountFollowsLeases: what is published is what is in flight, at once where it
// happens, soon on other replicas, and right after a restart. A scrape never
// asks the store.
func TestPublishedCountFollowsLeases(t *testing.T) {
	f := newFleet(t, 2)
	a, b := f.members[0], f.members[1]
	a.wantPublished("true", "before the first")
	one, two := a.ask(envoy1, "x"), a.ask(Proxy{}, "x")
	a.wantPublished("true d/tenant=2", "after two")
	f.pass(2 * fleetGrace)
	b.wantPublished("true d/tenant=2", "elsewhere")
	a.dead = true
	c := f.join()
	c.wantPublished("true d/tenant=2", "right after a start")
	takes := f.store.takes
	for range 100 {
		c.InFlight()
	}
	if f.store.takes != takes {
		t.Error("a scrape asks the store")
	}
	b.Apply(context.Background(), "x", Release, []string{one})
	b.wantPublished("true d/tenant=1", "after an end")
	b.Apply(context.Background(), "x", Release, []string{two})
	b.wantPublished("true d/tenant=0", "after all ends")
}

// TestPublishedCountFollowsClocksSetBack: it follows the store, whose clock may be
// behind this process's and be set back.
func TestPublishedCountFollowsClocksSetBack(t *testing.T) {
	f := newFleet(t, 2)
	a := f.members[0]
	f.now.pass(10*time.Hour - f.now.get())
	token := a.ask(envoy1, "x")
	f.now.pass(-time.Hour / 2)
	f.pass(2 * fleetGrace)
	for _, m := range f.members {
		m.wantPublished("true d/tenant=1", "after the step")
	}
	a.Apply(context.Background(), "x", Release, []string{token})
	if err := a.refreshCounts(context.Background()); err != nil {
		t.Fatal(err)
	}
	a.wantPublished("true d/tenant=0", "after the end")
}

// TestIncompleteCountSaysSo: beyond the bound on keys, and while the store is
// away, what is published says that it is not all.
func TestIncompleteCountSaysSo(t *testing.T) {
	f := newFleet(t, 1)
	a := f.members[0]
	for i := range maxEntries - 1 {
		a.ask(Proxy{}, fmt.Sprint(i))
	}
	f.pass(fleetGrace)
	a.wantPublished(fmt.Sprintf("true d/tenant=%d", maxEntries-1), "below the bound")
	a.ask(Proxy{}, "one more")
	a.ask(Proxy{}, "and one")
	f.pass(fleetGrace / roundsPerGrace)
	if got := a.published(); !strings.HasPrefix(got, "false") || a.Stats().Keys > maxEntries {
		t.Errorf("beyond it: %q, %d keys", got, a.Stats().Keys)
	}

	f = newFleet(t, 1)
	a = f.members[0]
	a.ask(Proxy{}, "x")
	f.store.fail(backends.ErrUnavailable)
	f.now.pass(4 * fleetGrace)
	a.wantPublished("false d/tenant=1", "when the store is away")
	f.store.fail(nil)
	if err := a.refreshCounts(context.Background()); err != nil {
		t.Fatal(err)
	}
	a.wantPublished("true d/tenant=1", "when it is back")
}

// TestLongNamesAreCounted: a key that is too long for the table counts here.
func TestLongNamesAreCounted(t *testing.T) {
	var s tally
	s.observe(limit.Key{Group: "g"}, "d", strings.Repeat("r", backends.MaxRowLen), time.Minute, 3, 1)
	if rows, _, _ := s.rowsToPut(time.Second); len(rows) != 0 {
		t.Error("a row that is too long is put")
	}
	if list, _ := s.byRule(time.Now(), time.Second); len(list) != 1 || list[0].Count != 3 || s.missed == 0 {
		t.Errorf("%+v", list)
	}
}

// TestRowsRoundTrip: rows are read as they were written, and no others.
func TestRowsRoundTrip(t *testing.T) {
	e := &entry{key: limit.Key{Group: "4:sh\x00op", Limit: "c:"}, of: ruleName{domain: "d:1"},
		ttl: 1500 * time.Millisecond}
	if got := decodeEntry(e.encode()); got == nil || *got != *e {
		t.Errorf("%+v", got)
	}
	for _, bad := range []string{"", "x", "1:a", "-1:a", "9:a", "1:d1:r1:g1:c1:x", "1:d1:r1:g1:c1:0",
		"1:d1:r1:g1:c99999999999:1"} {
		if got := decodeEntry(bad); got != nil {
			t.Errorf("%q is read as %+v", bad, got)
		}
	}
}
