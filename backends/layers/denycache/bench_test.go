package denycache

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/backends/internal/remote"
	"github.com/headgate-rls/headgate/limit"
)

// Admitting and refusing stores cost nothing, so that only the cache is
// measured.
func admitting(now func() time.Time, remaining int64) *remote.Constant {
	return &remote.Constant{Store: newStore(now), Outcome: limit.Outcome{Admitted: true, Remaining: remaining}}
}

func refusing(now func() time.Time) *remote.Constant {
	return &remote.Constant{Store: newStore(now), Outcome: limit.Outcome{Retry: time.Hour, Reset: time.Hour}}
}

func benchRequests(n, ops int) []limit.Request {
	reqs := make([]limit.Request, n)
	for i := range reqs {
		for j := range ops {
			l := newLimit(limit.TokenBucket, 1, 24*time.Hour)
			key := "5:check4:user" + strconv.Itoa(1000000+i) + ":5:value"
			reqs[i].Ops = append(reqs[i].Ops, limit.Op{Key: limit.Key{Group: key, Limit: "rule" + strconv.Itoa(j)},
				Limit: l, Cost: 1})
		}
	}
	return reqs
}

func reportPerOp(b *testing.B, ops int) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*ops), "ns/op1")
}

// BenchmarkHit: keys that are known to be refused.
func BenchmarkHit(b *testing.B) {
	for _, c := range []struct{ keys, slice, ops int }{{1, 1, 1}, {1024, 1, 1}, {64, 64, 1}, {1, 1, 3}} {
		b.Run("keys="+strconv.Itoa(c.keys)+"/slice="+strconv.Itoa(c.slice)+"/ops="+strconv.Itoa(c.ops), func(b *testing.B) {
			s := newStore(time.Now)
			h := New(s, s.Caps(), time.Now)
			h.maxAge = time.Hour
			reqs, out := benchRequests(c.keys, c.ops), make([]limit.Verdict, c.keys)
			for range 3 {
				h.Take(context.Background(), reqs, out)
			}
			before := s.Calls.Load()
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				from := i * c.slice % c.keys
				h.Take(context.Background(), reqs[from:from+c.slice], out[:c.slice])
			}
			reportPerOp(b, c.slice*c.ops)
			if s.Calls.Load() != before {
				b.Fatal("the store was asked")
			}
		})
	}
}

// BenchmarkHitParallel: one hot key, asked from all sides.
func BenchmarkHitParallel(b *testing.B) {
	s := newStore(time.Now)
	h := New(s, s.Caps(), time.Now)
	h.maxAge = time.Hour
	reqs := benchRequests(1, 1)
	for range 3 {
		h.Take(context.Background(), reqs, make([]limit.Verdict, 1))
	}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		out := make([]limit.Verdict, 1)
		for pb.Next() {
			h.Take(context.Background(), reqs, out)
		}
	})
}

// BenchmarkMiss: what a take that the store admits costs more.
func BenchmarkMiss(b *testing.B) {
	for _, c := range []struct{ slice, ops int }{{1, 1}, {1, 3}, {64, 1}} {
		for _, cached := range []bool{false, true} {
			name := "slice=" + strconv.Itoa(c.slice) + "/ops=" + strconv.Itoa(c.ops)
			s := admitting(time.Now, 5)
			var h backends.Backend = s
			if cached {
				name, h = name+"/cache", New(s, s.Caps(), time.Now)
			}
			b.Run(name, func(b *testing.B) {
				const keys = 1024
				reqs, out := benchRequests(keys, c.ops), make([]limit.Verdict, c.slice)
				b.ReportAllocs()
				b.ResetTimer()
				for i := range b.N {
					from := i * c.slice % keys
					h.Take(context.Background(), reqs[from:from+c.slice], out)
				}
				reportPerOp(b, c.slice*c.ops)
			})
		}
	}
}

// BenchmarkInsert: refusals of ever new keys, a flood.
func BenchmarkInsert(b *testing.B) {
	c := remote.NewClock()
	s := refusing(c.Now)
	h := New(s, s.Caps(), time.Now)
	keys := benchRequests(1<<18, 1)
	out := make([]limit.Verdict, 1)
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		at := i & (1<<18 - 1)
		h.Take(context.Background(), keys[at:at+1], out)
	}
}
