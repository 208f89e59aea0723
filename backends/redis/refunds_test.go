package redis

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/internal/kit/background"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/test/testenv"
)

// A refundCase takes units at 0, has others take some later, and then gives the
// first ones back. What is left must be what there would be if they had never
// been taken, or less, and not more.
type refundCase struct {
	name      string
	algorithm limit.Algorithm
	took      int64
	later     time.Duration
	others    int64
	ask       time.Duration // when to look
	want      int64         // units left then
}

// Of every limit: 10 units per second.
var refundCases = []refundCase{
	{"within the window all comes back", limit.FixedWindow, 4, 900 * time.Millisecond, 3, 900 * time.Millisecond, 7},
	{"the next window's units are others'", limit.FixedWindow, 4, time.Second, 3, time.Second, 7},
	{"within the window all comes back", limit.SlidingWindow, 4, 900 * time.Millisecond, 3, 900 * time.Millisecond, 7},
	{"the next window's units are others'", limit.SlidingWindow, 4, time.Second, 3, 2 * time.Second, 7},
	{"a bucket that was not full since gets all", limit.TokenBucket, 4, 0, 6, 0, 4},
	{"a bucket that is full already gets none", limit.TokenBucket, 10, time.Second, 10, time.Second, 0},
	{"a bucket that could have been full gets less", limit.TokenBucket, 10, 500 * time.Millisecond, 5,
		500 * time.Millisecond, 5},
	{"a bucket that has filled up again keeps what came back", limit.TokenBucket, 10, 900 * time.Millisecond, 1,
		900 * time.Millisecond, 9},
	{"the record of the refund goes, not the newest", limit.SlidingLog, 4, 600 * time.Millisecond, 3,
		600 * time.Millisecond, 7},
	{"the newest record counts to its end", limit.SlidingLog, 4, 600 * time.Millisecond, 3, 1599 * time.Millisecond, 7},
	{"a record that has expired is no other's", limit.SlidingLog, 4, 1100 * time.Millisecond, 3,
		1100 * time.Millisecond, 7},
}

func TestRefundsAdmitNothing(t *testing.T) {
	s := testenv.StartRedis(t)
	for _, layout := range []string{"list", "zset"} {
		b := open(t, s.URL()+"?layout="+layout)
		for i, c := range refundCases {
			at := limit.InstantOf(time.Now().Add(time.Hour).Truncate(time.Minute))
			op := limit.Op{
				Key: limit.Key{Group: layout + strconv.Itoa(i), Limit: "l"}, Cost: c.took,
				Limit: limit.MustNew(limit.Spec{Algorithm: c.algorithm, Max: 10, Window: time.Second}),
			}
			first := takeOp(t, b, at, op)
			if c.others > 0 {
				other := op
				other.Cost = c.others
				if v := takeOp(t, b, at.Add(c.later), other); !v.Admitted {
					t.Fatalf("%v, %s: others got %+v", c.algorithm, c.name, v)
				}
			}
			giveBackOne(t, b, at, op, &first)
			op.Cost = 0
			if left := takeOp(t, b, at.Add(c.ask), op).Outcomes[0].Remaining; left != c.want {
				t.Errorf("%s, %v, %s: %d units are left, want %d", layout, c.algorithm, c.name, left, c.want)
			}
		}
	}
}

func takeOp(t *testing.T, b *Backend, at limit.Instant, ops ...limit.Op) limit.Verdict {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	out := make([]limit.Verdict, 1)
	b.Take(ctx, []limit.Request{{At: at, Ops: ops}}, out)
	if out[0].Err != nil {
		t.Fatal(out[0].Err)
	}
	return out[0]
}

func giveBackOne(t *testing.T, b *Backend, at limit.Instant, op limit.Op, v *limit.Verdict) {
	t.Helper()
	r := refund{at: b.told(at)}
	r.add(&op, asOf(&op, &v.Outcomes[0], v.At, v.At))
	b.refunds.push([]refund{r})
	waitRefunds(t, b)
}

// TestRefundOfRepeatedLease: a refused request that is repeated, with the same
// holder, before its lease was given back is not charged again: so neither the
// lease nor what was charged with it goes while the repetition has it.
func TestRefundOfRepeatedLease(t *testing.T) {
	s := testenv.StartRedis(t)
	b := open(t, s.URL())
	at := limit.InstantOf(time.Now().Add(time.Hour).Truncate(time.Minute))
	lease := limit.Op{Key: limit.Key{Group: "g", Limit: "lease"}, Cost: 1, Holder: "h",
		Limit: limit.MustNew(limit.Spec{Algorithm: limit.Concurrency, Max: 5, Window: time.Minute})}
	count := limit.Op{Key: limit.Key{Group: "g", Limit: "count"}, Cost: 2,
		Limit: limit.MustNew(limit.Spec{Algorithm: limit.FixedWindow, Max: 10, Window: time.Minute})}
	giveBack := func() {
		r := refund{at: b.told(at)}
		r.add(&lease, 0)
		r.add(&count, at.Add(time.Minute))
		b.refunds.push([]refund{r})
		waitRefunds(t, b)
	}
	want := func(when string, inFlight, left int64) {
		t.Helper()
		askLease, askCount := lease, count
		askLease.Cost, askLease.Holder, askCount.Cost = 0, "", 0
		v := takeOp(t, b, at, askLease, askCount)
		if v.Outcomes[0].InFlight != inFlight || v.Outcomes[1].Remaining != left {
			t.Errorf("%s: %+v, want %d in flight and %d left", when, v.Outcomes, inFlight, left)
		}
	}
	takeOp(t, b, at, lease, count)
	takeOp(t, b, at, lease, count)
	want("acquired twice", 1, 8)
	giveBack()
	want("one of two given back", 1, 8)
	giveBack()
	want("both given back", 0, 10)
	giveBack()
	want("given back once more", 0, 10)
	if v := takeOp(t, b, at, lease, count); !v.Admitted {
		t.Errorf("a refund without a lease keeps its holder from acquiring: %+v", v)
	}
}

// TestRefundsAreBounded: what cannot be given back waits in bounded memory and
// for a bounded time, is counted, and keeps Close waiting no longer than a call.
func TestRefundsAreBounded(t *testing.T) {
	s := testenv.StartRedis(t)
	c := mustParse(t, s.URL())
	c.Timeout = 2 * time.Second
	b, err := Open(context.Background(), c, nil)
	if err != nil {
		t.Fatal(err)
	}
	op := limit.Op{Key: limit.Key{Group: "g", Limit: "l"}, Cost: 1, Limit: testLimit}
	v := takeOp(t, b, 0, op)
	s.Pause()
	defer s.Resume()
	const sent = 3 * maxRefunds
	for range sent {
		r := refund{at: -1}
		r.add(&op, asOf(&op, &v.Outcomes[0], v.At, v.At))
		b.refunds.push([]refund{r})
		b.refunds.mu.Lock()
		workers := b.refunds.workers
		b.refunds.mu.Unlock()
		if st := b.Stats(); st.RefundsPending > maxRefunds || st.RefundBytes > maxRefundBytes || workers > refundWorkers {
			t.Fatalf("%d workers, %+v", workers, st)
		}
	}
	began := time.Now()
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if d := time.Since(began); d > 10*time.Second {
		t.Errorf("Close took %v", d)
	}
	st := b.Stats()
	if st.RefundsPending != 0 || st.RefundBytes != 0 || st.Refunds+st.RefundsLate+st.RefundsLost != sent {
		t.Errorf("of %d refunds: %+v", sent, st)
	}
}

// TestRefundsTryAgain: a refund that is known to have had no effect is tried
// again, and one that may have had one is not.
func TestRefundsTryAgain(t *testing.T) {
	s := testenv.StartRedis(t)
	b := open(t, s.URL()+"?timeout=1s&dial_timeout=1s")
	op := limit.Op{Key: limit.Key{Group: "g", Limit: "l"}, Cost: 1, Limit: testLimit}
	v := takeOp(t, b, 0, op)
	push := func() {
		r := refund{at: -1}
		r.add(&op, asOf(&op, &v.Outcomes[0], v.At, v.At))
		b.refunds.push([]refund{r})
	}
	c, ctx := s.Client(), context.Background()
	c.ConfigSet(ctx, "min-replicas-to-write", "1") // NOREPLICAS: nothing was recorded
	push()
	time.Sleep(50 * time.Millisecond)
	if n, _ := b.refunds.waiting(); n != 1 {
		t.Errorf("%d wait, want 1: %+v", n, b.Stats())
	}
	c.ConfigSet(ctx, "min-replicas-to-write", "0")
	waitRefunds(t, b)
	if st := b.Stats(); st.Refunds != 1 {
		t.Errorf("%+v", st)
	}
	s.Pause()
	push()
	waitRefunds(t, b)
	s.Resume()
	if st := b.Stats(); st.RefundsLost != 1 {
		t.Errorf("%+v", st)
	}
}

// TestPanicLosesItsRefunds: a panic while refunds are sent is counted and loses
// them; later ones are sent.
func TestPanicLosesItsRefunds(t *testing.T) {
	s := testenv.StartRedis(t)
	b := open(t, s.URL())
	op := limit.Op{Key: limit.Key{Group: "g", Limit: "l"}, Cost: 1, Limit: testLimit}
	v := takeOp(t, b, 0, op)
	var panics atomic.Int64
	b.cfg.Panics = &background.Reporter{Log: slog.New(slog.DiscardHandler), Count: func(string) { panics.Add(1) }}
	b.refunds.push([]refund{{at: -1, ops: []limit.Op{{Cost: 1}}, size: 1}}) // without a limit
	waitRefunds(t, b)
	r := refund{at: -1}
	r.add(&op, asOf(&op, &v.Outcomes[0], v.At, v.At))
	b.refunds.push([]refund{r})
	waitRefunds(t, b)
	if st := b.Stats(); panics.Load() != 1 || st.RefundsLost != 1 || st.Refunds != 1 {
		t.Errorf("%d panics, %+v", panics.Load(), st)
	}
}

// TestRefundsOfLogsAreHeavy: a call has few of the refunds that write a log anew or
// take many members out of a set, since Redis does nothing else meanwhile.
func TestRefundsOfLogsAreHeavy(t *testing.T) {
	op := limit.Op{Key: limit.Key{Group: "g", Limit: "l"}, Cost: 15_000,
		Limit: limit.MustNew(limit.Spec{Algorithm: limit.SlidingLog, Max: 20_000, Window: time.Minute})}
	for layout, most := range map[string]int{"list": 16, "zset": 1} {
		b := open(t, "redis://127.0.0.1:1?layout="+layout)
		s, calls := &scratch{}, map[*call]int{}
		for range refundSlice {
			var f refund
			f.add(&op, 1)
			_, c := b.callFor(s, 0, b.refundWeight(&f))
			c.refund(&b.keys, f.at, f.ops, f.asOf)
			if calls[c]++; calls[c] > most {
				t.Fatalf("%s: a call has %d refunds, want at most %d", layout, calls[c], most)
			}
		}
	}
}

// TestPartsThatFailed: what of a request over several slots is known decides
// what its error says.
func TestPartsThatFailed(t *testing.T) {
	unapplied := fmt.Errorf("%w: %w", backends.ErrUnavailable, backends.ErrNotApplied)
	for name, c := range map[string]struct {
		errs       []error
		notApplied bool
	}{
		"none applied":       {[]error{unapplied, unapplied}, true},
		"one may be applied": {[]error{unapplied, backends.ErrUnavailable}, false},
		"one was decided":    {[]error{unapplied, nil}, false},
	} {
		sr := &splitRequest{}
		for _, err := range c.errs {
			sr.parts = append(sr.parts, &part{verdict: limit.Verdict{Err: err}})
		}
		err := sr.partsError()
		if !errors.Is(err, backends.ErrUnavailable) || errors.Is(err, backends.ErrNotApplied) != c.notApplied {
			t.Errorf("%s: error %v", name, err)
		}
	}
}
