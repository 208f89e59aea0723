package insight

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/ratelimit"
	"github.com/headgate-rls/headgate/test/random"
)

var (
	hundred = limit.MustNew(limit.Spec{Algorithm: limit.FixedWindow, Max: 100, Window: time.Minute})
	noon    = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC).UnixMicro()
)

const (
	second = int64(1_000_000)
	minute = 60 * second
)

// sighting is a descriptor d|user=VALUE under one rule.
func sighting(value string, at int64) *Seen {
	return &Seen{Domain: "d", Entries: []descriptors.Entry{{Key: "user", Value: value}}, Rule: "d/user", Limit: hundred,
		Group: limit.MakeGroup(limit.AppendPart(nil, value)), At: at}
}

// refuse does what a decision does.
func (w *Watch) refuse(s *Seen, id string) {
	kept, record := w.Refuse(s.Rule, s.Group, s.At)
	if !kept {
		record = w.AddRefused(s) || record
	}
	if record {
		w.Record(s, Refusal{Cause: "limit", RequestID: id})
	}
}

func (w *Watch) leave(s *Seen, left int64) {
	if !w.Approach(s.Rule, s.Group, s.At, s.Limit, left) {
		w.AddNear(s, left)
	}
}

func names(list []Stat) string {
	var b strings.Builder
	for _, s := range list {
		fmt.Fprintf(&b, "%s %d+%d\n", s.Name, s.Figure, s.Error)
	}
	return b.String()
}

// TestRefusalsAreCountedByKey for each minute, and forgotten with it.
func TestRefusalsAreCountedByKey(t *testing.T) {
	w := NewWatch()
	for i := range 5 {
		w.refuse(sighting("noisy", noon+int64(i)*minute), "")
	}
	w.refuse(sighting("calm", noon+4*minute), "")
	for _, c := range []struct {
		at     int64
		window int
		want   string
	}{
		{noon + 4*minute, 5, "d|user=noisy 5+0\nd|user=calm 1+0\n"},
		{noon + 4*minute, 1, "d|user=calm 1+0\nd|user=noisy 1+0\n"},
		{noon + 6*minute, 5, "d|user=noisy 3+0\nd|user=calm 1+0\n"},
		{noon + 9*minute, 5, ""},
		{noon + 24*60*minute, 15, ""},
		{noon - 24*60*minute, 15, ""}, // the clock was set back
	} {
		if list, exact := w.Refused(c.at, c.window, 10); names(list) != c.want || !exact {
			t.Errorf("after %d s, window %d:\n%s, exact %v, want\n%s", (c.at-noon)/second, c.window, names(list), exact, c.want)
		}
	}
	list, _ := w.Refused(noon+5*minute, 5, 1)
	if got := fmt.Sprint(list[0].Minutes); got != "[0 0 0 0 0 0 0 0 0 1 1 1 1 1 0]" || list[0].Rule != "d/user" {
		t.Errorf("%+v", list[0])
	}
}

// TestFloodOfKeysHidesNobody: a key that is refused often is found among a hundred times as many keys that are refused
// once, and no figure is larger than what happened.
func TestFloodOfKeysHidesNobody(t *testing.T) {
	w := NewWatch()
	at, noisy := noon, 0
	for i := range random.Times(100_000, 1_000_000) {
		at += 50 // 20,000 in a second
		w.refuse(sighting(fmt.Sprint("visitor-", i), at), "")
		if i%100 == 0 {
			noisy++
			w.refuse(sighting("noisy", at), "")
		}
	}
	list, exact := w.Refused(at, 1, 5)
	if len(list) == 0 || list[0].Name != "d|user=noisy" || list[0].Figure > int64(noisy) ||
		list[0].Figure < int64(noisy)*8/10 || exact {
		t.Errorf("%d refusals of one key among a hundred times as many others, exact %v:\n%s", noisy, exact, names(list))
	}
	if n := len(w.Refusals()); n > numRefusals {
		t.Errorf("%d refusals are kept", n)
	}
	if list, exact = w.Refused(at+16*minute, 15, 5); len(list) != 0 || !exact {
		t.Errorf("after a while exact is %v:\n%s", exact, names(list))
	}
}

// TestNearKeysAreThoseWithTheLeastLeft, at their worst moment, and they stay among many with more.
func TestNearKeysAreThoseWithTheLeastLeft(t *testing.T) {
	w := NewWatch()
	for i, left := range []int64{20, 3, 9, 5} {
		w.leave(sighting("close", noon+int64(i)*second), left)
	}
	for i := range 100_000 {
		w.leave(sighting(fmt.Sprint("visitor-", i), noon+int64(i)*1000), 24)
	}
	list, _ := w.Near(noon+100*second, 5, 2)
	if len(list) != 2 || list[0].Name != "d|user=close" || list[0].Figure != 970 || list[1].Figure != 760 {
		t.Errorf("%s", names(list))
	}
}

// TestLastRefusals: each key's first, of a flood some, the newest first.
func TestLastRefusals(t *testing.T) {
	w := NewWatch()
	for i := range 100_000 {
		w.refuse(sighting("noisy", noon+int64(i)*100), fmt.Sprint("noisy-", i))
	}
	w.refuse(sighting("calm", noon+11*second), "calm-1")
	list := w.Refusals()
	if len(list) < 300 || len(list) > 400 || list[0].RequestID != "calm-1" || list[0].Key != "d|user=calm" ||
		list[len(list)-1].RequestID != "noisy-0" || list[0].Limit != hundred || list[0].At.UnixMicro() != noon+11*second {
		t.Errorf("%d refusals, from %+v to %+v", len(list), list[0], list[len(list)-1])
	}
	for i := range 2000 {
		w.refuse(sighting("noisy", noon+int64(i)*minute), fmt.Sprint("later-", i))
	}
	if list = w.Refusals(); len(list) != numRefusals || list[0].RequestID != "later-1999" ||
		list[999].RequestID != "later-1000" {
		t.Errorf("%d refusals, from %+v to %+v", len(list), list[0], list[len(list)-1])
	}
	w.refuse(sighting("calm", noon-24*60*minute), "before") // the clock was set back
	if list = w.Refusals(); list[0].RequestID != "before" {
		t.Errorf("%+v", list[0])
	}
}

// TestWatchIsSmall: all that a process keeps, at its largest, is less than 2 MiB, with 128 KiB for its last reloads.
func TestWatchIsSmall(t *testing.T) {
	live := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := live()
	w, c := NewWatch(), ratelimit.NewCoverage()
	binary := func(i int) string { return fmt.Sprint(i) + strings.Repeat("\xff", 8<<10) }
	plain := func(i int) string { return fmt.Sprint(i) + strings.Repeat("x", 200) }
	for i := range 3000 {
		at := noon + int64(i)*second
		for _, s := range []*Seen{sighting(binary(i), at), sighting(plain(i), at)} {
			w.refuse(s, strings.Repeat("r", 256))
			w.leave(s, 0)
		}
		c.Of("d", []descriptors.Entry{{Key: plain(i), Value: plain(i)}}, at)
		c.Of("d", []descriptors.Entry{{Key: plain(i) + plain(i)}}, at)
	}
	if grown := live() - before; grown > 2<<20-128<<10 {
		t.Errorf("%d KiB are kept", grown>>10)
	}
	list, _ := w.Refused(noon+2999*second, 15, 1000)
	if len(list) != numKeys || len(w.Refusals()) != numRefusals || len(c.Shapes()) < 1000 {
		t.Errorf("%d keys, %d refusals and %d shapes are no test", len(list), len(w.Refusals()), len(c.Shapes()))
	}
	for _, s := range list {
		if len(s.Name) > maxName || s.Cut != strings.Contains(s.Name, "%FF") || strings.Contains(s.Name, "\xff") {
			t.Fatalf("%+v", s)
		}
	}
	runtime.KeepAlive(w)
	runtime.KeepAlive(c)
}

// TestReloadsAreKept: the last ones, the newest first, in at most 128 KiB.
func TestReloadsAreKept(t *testing.T) {
	w := NewWatch()
	changes := make([]string, 20)
	for i := range changes {
		changes[i] = strings.Repeat("x", 200)
	}
	for range 3 * maxReloads {
		w.RulesChanged(changes)
	}
	w.PoliciesChanged([]string{"last"})
	list, size := w.Reloads(), 0
	for _, r := range list {
		for _, line := range r.Changes {
			size += len(line) + 16
		}
	}
	if size > 128<<10 || len(list) != maxReloads {
		t.Errorf("%d reloads take %d bytes", len(list), size)
	}
	if r := list[0]; r.Source != "policies" || r.Changes[0] != "last" || time.Since(r.At) > time.Minute ||
		list[1].Source != "rules" {
		t.Errorf("the newest are %v and %v", r, list[1])
	}
}
