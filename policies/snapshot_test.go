package policies

import (
	"fmt"
	"maps"
	"runtime"
	"testing"

	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/test/random"
)

func window(capacity int64, seconds Amount) Figures {
	return Figures{Algorithm: limit.SlidingWindow, Capacity: capacity, Window: seconds * One}
}

// All calls each for every policy, in no order. key is valid until each returns.
func (s *Snapshot) All(each func(key []byte, f Figures)) {
	if s == nil {
		return
	}
	for _, sh := range s.shards {
		if sh != nil {
			sh.all(func(key []byte, f Figures, _ []byte) { each(key, f) })
		}
	}
}

// contents reads a snapshot in both ways, and compares them.
func contents(t *testing.T, s *Snapshot) map[string]Figures {
	t.Helper()
	all := map[string]Figures{}
	s.All(func(key []byte, f Figures) {
		if _, twice := all[string(key)]; twice {
			t.Fatalf("%s is there twice", key)
		}
		all[string(key)] = f
	})
	for key, f := range all {
		if got, ok := s.Find([]byte(key)); !ok || got != f {
			t.Fatalf("%s: found %v, %v; want %v", key, got, ok, f)
		}
	}
	if s.Len() != len(all) {
		t.Fatalf("a snapshot of %d says %d", len(all), s.Len())
	}
	return all
}

// TestSnapshotsAreMaps compares snapshots with a map over many changes.
func TestSnapshotsAreMaps(t *testing.T) {
	rng := random.Rand(t, 1)
	want, s := map[string]Figures{}, (*Snapshot)(nil)
	for range random.Times(60, 2000) {
		var changes []Change
		for range 1 + rng.IntN(40) {
			c := Change{Key: fmt.Sprintf("user:%d", rng.IntN(600)), Removed: rng.IntN(3) == 0}
			if !c.Removed {
				c.Figures = Figures{limit.TokenBucket, rng.Int64N(limit.MaxUnits), Amount(rng.Int64N(1e13)),
					Amount(rng.Int64N(3e14))}
			}
			changes = append(changes, c)
		}
		before, old := s, maps.Clone(want)
		s = s.With(changes)
		for _, c := range changes {
			delete(want, c.Key)
			if !c.Removed {
				want[c.Key] = c.Figures
			}
		}
		if got := contents(t, s); !maps.Equal(got, want) {
			t.Fatalf("%d policies, want %d: %v and %v", len(got), len(want), got, want)
		}
		if before != nil {
			if got := contents(t, before); !maps.Equal(got, old) {
				t.Fatal("a change has altered the snapshot before it")
			}
		}
		if _, ok := s.Find([]byte("user:x")); ok {
			t.Fatal("found a policy that is not there")
		}
	}
	var b Builder
	for key, f := range want {
		b.Add(key, f)
	}
	if got := contents(t, b.Snapshot()); !maps.Equal(got, want) {
		t.Fatal("a built snapshot differs")
	}
}

func TestSnapshotWithoutPolicies(t *testing.T) {
	for _, s := range []*Snapshot{nil, {}, (*Snapshot)(nil).With(nil), new(Builder).Snapshot(),
		(*Snapshot)(nil).With([]Change{{Key: "a", Figures: window(1, 1)}}).With([]Change{{Key: "a", Removed: true}})} {
		if _, ok := s.Find([]byte("a")); ok || s.Len() != 0 || s.Bytes() != 0 {
			t.Errorf("%d policies of %d bytes", s.Len(), s.Bytes())
		}
	}
}

// TestSnapshotMemory: a million policies, all of them different, take no more than 200 MiB. In
// short, a tenth of both.
func TestSnapshotMemory(t *testing.T) {
	n := random.Times(100_000, 1_000_000)
	bound := uint64(n) * 200 << 20 / 1_000_000
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	var b Builder
	for i := range n {
		b.Add(fmt.Sprintf("user:customer-%09d|route:/v1/payments/%d", i, i%50),
			Figures{limit.TokenBucket, int64(1000 + i), Amount(i+1) * 1_234_567, Amount(60+i) * One})
	}
	peak := heap() - before
	s := b.Snapshot()
	held := heap() - before
	// One more snapshot, of which all is changed but the keys, and both are there.
	var changes []Change
	for i := 0; i < n; i += 100 {
		changes = append(changes, Change{Key: fmt.Sprintf("user:customer-%09d|route:/v1/payments/%d", i, i%50),
			Figures: window(int64(i), 60)})
	}
	next := s.With(changes)
	both := heap() - before
	t.Logf("%d policies: %d KiB by Bytes, %d KiB held, %d KiB while they are read, %d KiB with a second snapshot",
		n, s.Bytes()>>10, held>>10, peak>>10, both>>10)
	if s.Len() != n || next.Len() != n {
		t.Fatalf("%d and %d policies", s.Len(), next.Len())
	}
	if held > bound || peak > bound || both > bound {
		t.Errorf("more than %d KiB", bound>>10)
	}
	if diff := int64(held) - s.Bytes(); diff > s.Bytes()/5 || diff < -s.Bytes()/5 {
		t.Errorf("Bytes says %d, and the heap has %d", s.Bytes(), held)
	}
	runtime.KeepAlive(s)
	runtime.KeepAlive(changes)
}

func TestFindDoesNotAllocate(t *testing.T) {
	s := (*Snapshot)(nil).With([]Change{{Key: "user:alice", Figures: window(2, 60)}})
	tmpl := template(t, "user:{user}", "user")
	value := of("alice")
	var found bool
	if n := testing.AllocsPerRun(100, func() {
		var buf [MaxKey]byte
		_, found = s.Find(tmpl.Append(buf[:0], value))
	}); n != 0 || !found {
		t.Errorf("%v allocations, found %v", n, found)
	}
}

func BenchmarkFind(b *testing.B) {
	var build Builder
	for i := range 100_000 {
		build.Add(fmt.Sprintf("user:%d", i), window(int64(i), 60))
	}
	s, tmpl := build.Snapshot(), template(b, "user:{user}", "user")
	value := of("4711")
	b.ReportAllocs()
	for b.Loop() {
		var buf [MaxKey]byte
		if _, ok := s.Find(tmpl.Append(buf[:0], value)); !ok {
			b.Fatal("not found")
		}
	}
}
