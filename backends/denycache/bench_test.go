package denycache

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/limit"
)

// An admitting store costs nothing, so that only the cache is measured.
type admitting struct {
	*store
	remaining int64
}

func (s *admitting) Take(_ context.Context, reqs []limit.Request, out []limit.Verdict) {
	for i := range reqs {
		out[i].Reset(len(reqs[i].Ops))
		out[i].At, out[i].Admitted = 1, true
		for j := range out[i].Outcomes {
			out[i].Outcomes[j] = limit.Outcome{Admitted: true, Remaining: s.remaining}
		}
	}
}

func benchRequests(n, ops int) []limit.Request {
	reqs := make([]limit.Request, n)
	for i := range reqs {
		for j := range ops {
			l := newLimit(limit.TokenBucket, 1, 24*time.Hour)
			key := "5:check4:user" + strconv.Itoa(1000000+i) + ":5:value"
			reqs[i].Ops = append(reqs[i].Ops, limit.Op{Key: limit.Key{Group: key, Limit: "rule" + strconv.Itoa(j)}, Limit: l, Cost: 1})
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
			h := New(s, s.caps(), Config{MaxAge: time.Hour}, time.Now)
			reqs, out := benchRequests(c.keys, c.ops), make([]limit.Verdict, c.keys)
			for range 3 {
				h.Take(context.Background(), reqs, out)
			}
			before := s.calls.Load()
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				from := i * c.slice % c.keys
				h.Take(context.Background(), reqs[from:from+c.slice], out[:c.slice])
			}
			reportPerOp(b, c.slice*c.ops)
			if s.calls.Load() != before {
				b.Fatal("the store was asked")
			}
		})
	}
}

// BenchmarkHitParallel: one hot key, asked from all sides.
func BenchmarkHitParallel(b *testing.B) {
	s := newStore(time.Now)
	h := New(s, s.caps(), Config{MaxAge: time.Hour}, time.Now)
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
			s := &admitting{store: newStore(time.Now), remaining: 5}
			var h backends.Backend = s
			if cached {
				name, h = name+"/cache", New(s, s.caps(), Config{}, time.Now)
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
	c := newClock()
	s := &refusing{newStore(c.now)}
	h := New(s, s.caps(), Config{}, time.Now)
	keys := benchRequests(1<<18, 1)
	out := make([]limit.Verdict, 1)
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		at := i & (1<<18 - 1)
		h.Take(context.Background(), keys[at:at+1], out)
	}
}

// A refusing store costs nothing either.
type refusing struct{ *store }

func (s *refusing) Take(_ context.Context, reqs []limit.Request, out []limit.Verdict) {
	for i := range reqs {
		out[i].Reset(len(reqs[i].Ops))
		out[i].At = 1
		for j := range out[i].Outcomes {
			out[i].Outcomes[j] = limit.Outcome{Retry: time.Hour, Reset: time.Hour}
		}
	}
}
