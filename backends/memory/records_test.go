package memory

import (
	"context"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/test/random"
)

// take takes one unit of l under the key called name.
func takeUnit(t *testing.T, b *Backend, name string, l *limit.Limit, at limit.Instant) limit.Outcome {
	t.Helper()
	reqs := []limit.Request{{At: at, Ops: []limit.Op{{Key: limit.Key{Group: name, Limit: "l"}, Limit: l, Cost: 1}}}}
	var out [1]limit.Verdict
	b.Take(context.Background(), reqs, out[:])
	if out[0].Err != nil {
		t.Fatal(out[0].Err)
	}
	return out[0].Outcomes[0]
}

// TestRecordsAreBounded: keys whose logs are long come to no more memory than
// MaxRecords and a few for each key, and still admit their limit and no more.
// Keys with few records lose nothing.
func TestRecordsAreBounded(t *testing.T) {
	const most = 4000
	keys := random.Times(100, 500)
	records := 100 * keys
	b := New(Config{MaxKeys: 4 * keys, MaxRecords: records})
	l := limit.MustNew(limit.Spec{Algorithm: limit.SlidingLog, Max: most, Window: time.Hour})
	quiet := limit.MustNew(limit.Spec{Algorithm: limit.SlidingLog, Max: minRecords, Window: time.Hour})
	start := limit.Instant(1_700_000_000_000_000)
	for i := range minRecords {
		takeUnit(t, b, "quiet", quiet, start+limit.Instant(i))
	}
	before := heapInUse()
	now := start
	for range most {
		now += 800_000 // within the hour
		for k := range keys {
			if out := takeUnit(t, b, strconv.Itoa(k), l, now); !out.Admitted {
				t.Fatalf("refused within the limit: %+v", out)
			}
		}
		if n := b.Stats().Records; n > int64(records+2*minRecords*keys) {
			t.Fatalf("%d records, at most %d and a few for each of %d keys were wanted", n, records, keys)
		}
	}
	s, grown := b.Stats(), heapInUse()-before
	t.Logf("%+v, heap grew by %d KiB; exact logs would have %d KiB", s, grown>>10, keys*most*16>>10)
	if s.Evicted > 0 || s.Merged == 0 {
		t.Errorf("%+v", s)
	}
	if grown > int64(keys)<<13 {
		t.Errorf("the heap grew by %d KiB", grown>>10)
	}
	for k := range keys {
		if out := takeUnit(t, b, strconv.Itoa(k), l, now); out.Admitted {
			t.Fatalf("key %d: more than its limit was admitted", k)
		}
	}
	if out := takeUnit(t, b, "quiet", quiet, start.Add(time.Hour)); !out.Admitted || out.Remaining != 0 {
		t.Errorf("a quiet key, when its first record is over: %+v", out)
	}
	b.Sweep(now.Add(2 * time.Hour))
	if s := b.Stats(); s.Records != 0 || s.Keys != 0 {
		t.Errorf("after their end: %+v", s)
	}
}

// TestRecordsAreCounted: what is counted is what the logs hold, whatever
// happens to them.
func TestRecordsAreCounted(t *testing.T) {
	b := New(Config{MaxKeys: 100})
	l := limit.MustNew(limit.Spec{Algorithm: limit.SlidingLog, Max: 100, Window: time.Second})
	now := limit.Instant(1_700_000_000_000_000)
	counted := func() (n int64) {
		for i := range b.shards {
			for _, e := range b.shards[i].queue {
				if e.large.records < int64(cap(e.large.log)) {
					t.Errorf("%d records counted of a log with room for %d", e.large.records, cap(e.large.log))
				}
				n += e.large.records
			}
		}
		return n
	}
	for i := range 5000 {
		now += 7_000
		op := limit.Op{Key: limit.Key{Group: strconv.Itoa(i % 150), Limit: "l"}, Limit: l, Cost: int64(1 + i%3)}
		switch i % 17 {
		case 0:
			op.Cost = -5
		case 1:
			now += 2_000_000
		}
		reqs := []limit.Request{{At: now, Ops: []limit.Op{op}}}
		if i%5 == 0 {
			other := op
			other.Key.Group += "'"
			reqs[0].Ops = append(reqs[0].Ops, other, op)
		}
		b.Take(context.Background(), reqs, make([]limit.Verdict, 1))
		if i%40 == 0 {
			_ = b.Forget(context.Background(), []limit.Key{op.Key})
		}
		if n := counted(); n != b.Stats().Records {
			t.Fatalf("step %d: %d are counted, the logs have %d", i, b.Stats().Records, n)
		}
	}
	if b.Stats().Records == 0 {
		t.Error("nothing was counted")
	}
	_ = b.Close()
	if n := b.Stats().Records; n != 0 {
		t.Errorf("%d are counted after Close", n)
	}
}

func heapInUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestShortLogsStayExact though there is no room for records at all.
func TestShortLogsStayExact(t *testing.T) {
	b := New(Config{MaxRecords: 1})
	l := limit.MustNew(limit.Spec{Algorithm: limit.SlidingLog, Max: 100, Window: time.Hour})
	for i := range 4 * minRecords {
		takeUnit(t, b, "k", l, limit.Instant(1_700_000_000_000_000+i*60_000_000))
		if merged := b.Stats().Merged > 0; i < minRecords && merged {
			t.Fatalf("a log of %d records was merged", i+1)
		}
	}
	if b.Stats().Merged == 0 {
		t.Error("a long log was not merged")
	}
}
