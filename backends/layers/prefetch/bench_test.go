package prefetch

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/backends/internal/remote"
	"github.com/headgate-rls/headgate/limit"
)

// An admitting store costs nothing, so that only what stands before it is
// measured.
func admitting() *remote.Constant {
	return &remote.Constant{Store: newStore(time.Now), Outcome: limit.Outcome{Admitted: true, Remaining: 1e9,
		Reset: time.Hour}}
}

func benchRequests(n, ops int, share int64) []limit.Request {
	reqs := make([]limit.Request, n)
	for i := range reqs {
		for j := range ops {
			l := newLimit(limit.FixedWindow, 1e9, 24*time.Hour)
			o := op("5:check4:user"+strconv.Itoa(1000000+i)+":5:value", l, 1, share)
			o.Key.Limit = "rule" + strconv.Itoa(j)
			reqs[i].Ops = append(reqs[i].Ops, o)
		}
	}
	return reqs
}

// BenchmarkUnshared: what a take costs more for ops without a share. "bare" is
// the store alone.
func BenchmarkUnshared(b *testing.B) {
	for _, c := range []struct{ slice, ops int }{{1, 1}, {1, 3}, {64, 1}} {
		s := admitting()
		for name, be := range map[string]backends.Backend{"bare": s, "share": New(s, s.Caps(), Config{}, time.Now)} {
			b.Run("slice="+strconv.Itoa(c.slice)+"/ops="+strconv.Itoa(c.ops)+"/"+name, func(b *testing.B) {
				reqs, out := benchRequests(c.slice, c.ops, 0), make([]limit.Verdict, c.slice)
				b.ReportAllocs()
				for b.Loop() {
					be.Take(context.Background(), reqs, out)
				}
			})
		}
	}
}

// BenchmarkPaid: requests that are paid from held units.
func BenchmarkPaid(b *testing.B) {
	for _, c := range []struct{ keys, slice, ops int }{{1, 1, 1}, {1024, 1, 1}, {64, 64, 1}, {1, 1, 3}} {
		b.Run("keys="+strconv.Itoa(c.keys)+"/slice="+strconv.Itoa(c.slice)+"/ops="+strconv.Itoa(c.ops), func(b *testing.B) {
			s := admitting()
			h := New(s, s.Caps(), Config{}, time.Now)
			reqs, out := benchRequests(c.keys, c.ops, 1e12), make([]limit.Verdict, c.keys)
			h.Take(context.Background(), reqs, out)
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				from := i * c.slice % c.keys
				h.Take(context.Background(), reqs[from:from+c.slice], out[:c.slice])
				i++
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*c.slice*c.ops), "ns/op1")
			if h.Stats().Taken != uint64(c.keys*c.ops)*(1e12-1) {
				b.Fatal("the store was asked")
			}
		})
	}
}

// BenchmarkPaidParallel: one hot key, asked from all sides.
func BenchmarkPaidParallel(b *testing.B) {
	s := admitting()
	h := New(s, s.Caps(), Config{}, time.Now)
	reqs := benchRequests(1, 1, 1e12)
	h.Take(context.Background(), reqs, make([]limit.Verdict, 1))
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		out := make([]limit.Verdict, 1)
		for pb.Next() {
			h.Take(context.Background(), reqs, out)
		}
	})
}

// BenchmarkTrip: takes that bring a share of two, every other of which goes to
// the store.
func BenchmarkTrip(b *testing.B) {
	s := admitting()
	h := New(s, s.Caps(), Config{}, time.Now)
	reqs, out := benchRequests(1, 1, 2), make([]limit.Verdict, 1)
	b.ReportAllocs()
	for b.Loop() {
		h.Take(context.Background(), reqs, out)
	}
}
