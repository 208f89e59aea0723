package limit

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// anyLimit makes a valid limit of arbitrary figures.
func anyLimit(algorithm uint8, most, window, burst int64) *Limit {
	a := Algorithms()[int(algorithm)%len(Algorithms())]
	s := Spec{Algorithm: a}
	s.Window = MinWindow + time.Duration(uint64(window)%uint64(MaxWindow-MinWindow+1)).Truncate(us)
	if a.Is(Refilled) {
		fastest := min(int64(micro(s.Window))*(MaxRate/1_000_000), MaxUnits)
		s.Max = 1 + int64(uint64(most)%uint64(fastest))
		s.Burst = 1 + int64(uint64(burst)%MaxUnits)
	} else {
		s.Max = int64(uint64(most) % uint64(a.MaxUnits()+1))
	}
	l, err := New(s)
	for err != nil { // a burst that takes too long to refill
		s.Burst /= 2
		l, err = New(s)
	}
	return l
}

// logOf makes a log, oldest first and with its sum, of arbitrary bytes.
func logOf(b []byte, at Instant) State {
	s := State{At: max(at, 0)}
	for ; len(b) >= 3; b = b[3:] {
		s.At += Instant(binary.LittleEndian.Uint16(b))
		s.Log = append(s.Log, Record{At: s.At, N: 1 + int64(b[2])})
		s.N += 1 + int64(b[2])
	}
	return s
}

// FuzzStep: whatever the state, no panic, no admission over capacity, and an
// outcome that keeps its word.
func FuzzStep(f *testing.F) {
	f.Add(uint8(0), int64(10), int64(time.Second), int64(0), int64(5_000_000), int64(3), int64(0), []byte(nil), int64(1),
		int64(5_500_000))
	f.Add(uint8(1), int64(10), int64(time.Second), int64(0), int64(5_000_000), int64(0), int64(0), []byte("abcdefghi"),
		int64(11), int64(5_900_000))
	f.Add(uint8(2), int64(1000), int64(time.Hour), int64(0), int64(3_600_000_000), int64(900), int64(1000), []byte(nil),
		int64(5), int64(7_000_000_000))
	f.Add(uint8(3), int64(7), int64(3*time.Second), int64(2), int64(77), int64(1_000_001), int64(3_000_000), []byte(nil),
		int64(-1), int64(78))
	f.Add(uint8(2), int64(-1), int64(-1), int64(-1), int64(math.MaxInt64), int64(math.MaxInt64), int64(math.MaxInt64),
		[]byte(nil), int64(math.MinInt64), int64(math.MinInt64))
	f.Add(uint8(3), int64(-1), int64(-1), int64(-1), int64(math.MinInt64), int64(math.MinInt64), int64(math.MinInt64),
		[]byte(nil), int64(math.MaxInt64), int64(math.MaxInt64))
	f.Fuzz(func(t *testing.T, algorithm uint8, most, window, burst, at, n, m int64, log []byte, cost, now int64) {
		_, _ = New(Spec{Algorithm: Algorithm(algorithm), Max: most, Window: time.Duration(window), Burst: burst})
		l := anyLimit(algorithm, most, window, burst)
		s := State{At: Instant(at), N: n, M: m}
		stepGarbage(t, l, State{At: s.At, N: n, M: m, Log: garbageLog(log, n)}, cost, Instant(now))
		if l.Is(Logged) {
			s = logOf(log, Instant(at%int64(MaxInstant)))
		}
		stepKeepsWord(t, l, s, cost, Instant(now))
	})
}

func garbageLog(b []byte, n int64) []Record {
	var log []Record
	for ; len(b) >= 2; b = b[2:] {
		log = append(log, Record{At: Instant(n << (b[0] % 64)), N: n >> (b[1] % 64)})
	}
	return log
}

// stepGarbage: a state that nothing of ours wrote must do no harm.
func stepGarbage(t *testing.T, l *Limit, s State, cost int64, now Instant) {
	after, out := Step(s, &Op{Limit: l, Cost: cost}, now)
	if out.Admitted && cost > l.Capacity() {
		t.Errorf("%v: cost %d admitted", l, cost)
	}
	if out.Remaining < 0 || out.Remaining > l.Capacity() {
		t.Errorf("%v: %d remain", l, out.Remaining)
	}
	l.Ends(after)
}

func stepKeepsWord(t *testing.T, l *Limit, s State, cost int64, now Instant) {
	after, out := try(s, l, cost, now)
	if out.Remaining < 0 || out.Remaining > l.Capacity() || out.Retry < Never || out.Reset < 0 {
		t.Fatalf("%v: %+v", l, out)
	}
	if out.Admitted && cost > 0 && out.Remaining > l.Capacity()-cost {
		t.Fatalf("%v: cost %d admitted, %d remain", l, cost, out.Remaining)
	}
	if !out.Admitted && (cost < 0 || out.Retry == 0) {
		t.Fatalf("%v: cost %d: %+v", l, cost, out)
	}
	want := max(cost, 1)
	if (out.Retry == Never) != (want > l.Capacity()) {
		t.Fatalf("%v: cost %d: %+v", l, cost, out)
	}
	begin := min(max(now, 0), MaxInstant)
	then := begin + micro(out.Retry)
	if out.Retry == Never || s.At > MaxInstant || then > MaxInstant {
		return // time stands still there
	}
	if _, o := try(after, l, want, then); !o.Admitted {
		t.Fatalf("%v: Retry %v is not enough: %+v", l, out.Retry, o)
	}
	if _, o := try(after, l, want, then-1); out.Retry > 0 && o.Admitted {
		t.Fatalf("%v: Retry %v is too long", l, out.Retry)
	}
}

// decideLimits are the limits of FuzzDecide's keys; small, so that a few ops
// reach their edges. Each algorithm is among them, so that the naive model must
// know it.
func decideLimits() []*Limit {
	all := []*Limit{
		MustNew(Spec{Algorithm: FixedWindow, Max: 3, Window: time.Second}),
		MustNew(Spec{Algorithm: FixedWindow, Max: 0, Window: time.Second}),
		MustNew(Spec{Algorithm: SlidingLog, Max: 4, Window: time.Second}),
		MustNew(Spec{Algorithm: SlidingLog, Max: 40, Window: MinWindow}),
		MustNew(Spec{Algorithm: SlidingWindow, Max: 5, Window: time.Second}),
		MustNew(Spec{Algorithm: SlidingWindow, Max: 100, Window: time.Hour}),
		MustNew(Spec{Algorithm: TokenBucket, Max: 7, Window: 3 * time.Second, Burst: 4}),
		MustNew(Spec{Algorithm: TokenBucket, Max: 999983, Window: MaxWindow, Burst: 1_000_003}),
		MustNew(Spec{Algorithm: FixedWindow, Max: 5, Window: time.Second, Overflow: Saturate}),
		MustNew(Spec{Algorithm: FixedWindow, Max: 3, Window: time.Second, Overflow: Debt, MaxDebt: 8}),
		MustNew(Spec{Algorithm: SlidingLog, Max: 5, Window: time.Second, Overflow: Saturate}),
		MustNew(Spec{Algorithm: SlidingLog, Max: 3, Window: time.Second, Overflow: Debt}),
		MustNew(Spec{Algorithm: SlidingLog, Max: 130, Window: time.Second, Overflow: Debt, MaxDebt: 1000}),
		MustNew(Spec{Algorithm: SlidingWindow, Max: 6, Window: time.Second, Overflow: Saturate}),
		MustNew(Spec{Algorithm: SlidingWindow, Max: 4, Window: time.Second, Overflow: Debt, MaxDebt: 9}),
		MustNew(Spec{Algorithm: TokenBucket, Max: 7, Window: 3 * time.Second, Burst: 4, Overflow: Saturate}),
		MustNew(Spec{Algorithm: TokenBucket, Max: 7, Window: 3 * time.Second, Burst: 4, Overflow: Debt, MaxDebt: 11}),
		MustNew(Spec{Algorithm: TokenBucket, Max: MaxRate, Window: time.Second, Burst: 25, Overflow: Debt}),
	}
	for _, a := range Algorithms() {
		for _, o := range []Overflow{Refuse, Saturate, Debt} {
			all = append(all, MustNew(Spec{Algorithm: a, Max: 4, Window: time.Second, Overflow: o}))
		}
	}
	return all
}

// A script reads a sequence of requests from bytes.
type script struct {
	b     []byte
	now   Instant
	retry time.Duration
}

func (s *script) next() byte {
	if len(s.b) == 0 {
		return 0
	}
	c := s.b[0]
	s.b = s.b[1:]
	return c
}

func (s *script) request(limits []*Limit) Request {
	move, n := s.next(), s.next()
	ops := make([]Op, 1+n%5)
	for i := range ops {
		which, cost := s.next(), s.next()
		l := limits[int(which)%len(limits)]
		ops[i] = Op{
			Key:    Key{Group: "g" + strconv.Itoa(int(which>>3)%2), Limit: l.String()},
			Limit:  l,
			Cost:   int64(int8(cost<<2)) / 16, // -8 to 7
			Shadow: which>>5&3 == 3,
			Each:   which>>7 == 1,
		}
		if cost>>6 == 3 {
			ops[i].Cost = l.Capacity() + int64(cost&3) - 1
		}
		if n >= 128 {
			choice := s.next()
			ops[i].Choice = Choice{Set: choice % 3, Group: choice / 3 % 4}
		}
	}
	w := micro(ops[0].Limit.Window())
	switch move % 12 {
	case 0, 1, 2:
	case 3:
		s.now++
	case 4:
		s.now += w - 1
	case 5:
		s.now += w
	case 6:
		s.now += w + 1
	case 7:
		s.now = s.now.Add(s.retry)
	case 8:
		s.now = max(s.now.Add(s.retry)-1, 0)
	case 9:
		s.now += w - s.now%w
	case 10:
		s.now += w * Instant(move) / 256
	case 11:
		s.now -= min(w*Instant(move)/16, s.now) // up to 16 windows
	}
	return Request{Ops: ops}
}

// playScript compares Decide with the naive model on the requests in b.
func playScript(t *testing.T, b []byte) {
	limits := decideLimits()
	s := script{b: b, now: 1_700_000_000_123_456}
	states, store := map[Key]State{}, naiveStore{}
	var v Verdict
	scratch := make([]State, 8)
	for i := 0; len(s.b) > 0 && i < 60; i++ {
		req := s.request(limits)
		if s.now > MaxInstant/2 {
			return
		}
		got := make([]State, len(req.Ops))
		for j := range req.Ops {
			got[j] = states[req.Ops[j].Key]
		}
		Decide(got, &req, s.now, &v, scratch)
		var admitted bool
		var outs []Outcome
		store, admitted, outs = store.take(req.Ops, int64(s.now))
		if v.Admitted != admitted || v.At != s.now || !slices.Equal(v.Outcomes, outs) {
			t.Fatalf("request %d at %d: %s\n got %v %+v\nwant %v %+v", i, s.now, describe(req.Ops), v.Admitted, v.Outcomes,
				admitted, outs)
		}
		for j := range req.Ops {
			if firstWithKey(req.Ops, j) == j {
				states[req.Ops[j].Key] = got[j]
			}
			if r := v.Outcomes[j].Retry; r > 0 {
				s.retry = r
			}
		}
	}
}

func describe(ops []Op) string {
	var b strings.Builder
	for _, op := range ops {
		fmt.Fprintf(&b, "\n  %v cost %d shadow %v each %v choice %v", op.Key, op.Cost, op.Shadow, op.Each, op.Choice)
	}
	return b.String()
}

// FuzzDecide: sequences of requests get the naive model's answers.
func FuzzDecide(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x04\x00\x00\x00\x04\x03\x00\x00\x04\x07\x00\x00\x04"))
	f.Add([]byte("\x00\x01\x02\x08\x02\x0c\x05\x01\x02\x04\x02\x08\x08\x00\x02\x04\x07\x00\x02\x04"))
	f.Add([]byte("\x09\x02\x04\x0c\x84\x04\x64\x04\x09\x00\x04\xc1\x0a\x00\x04\x04\x08\x00\x04\x10\x07\x00\x04\x10"))
	f.Add([]byte("\x00\x03\x06\x08\x06\x08\x07\xc1\x00\x04\x0b\x00\x06\xff\x07\x00\x06\x08"))
	f.Add([]byte("\x00\x81\x00\x0c\x01\x00\x04\x04\x00\x81\x00\x0c\x01\x00\x04\x04" +
		"\x00\x82\x00\x0c\x01\x08\x04\x04\x02\x04\x00"))
	f.Fuzz(func(t *testing.T, b []byte) { playScript(t, b) })
}

// decodeParts undoes AppendPart.
func decodeParts(b []byte) (parts []string, ok bool) {
	for len(b) > 0 {
		size, rest, found := strings.Cut(string(b), ":")
		n, err := strconv.Atoi(size)
		if !found || err != nil || n < 0 || n > len(rest) || strconv.Itoa(n) != size {
			return nil, false
		}
		parts = append(parts, rest[:n])
		b = []byte(rest[n:])
	}
	return parts, true
}

// FuzzKey: an encoding can be decoded, so different parts give different
// groups; plain, raw and hashed groups do not meet.
func FuzzKey(f *testing.F) {
	f.Add("a", "b_c", "a_b", "c")
	f.Add("1:a", "", "", "1:a")
	f.Add(strings.Repeat("x", 61), strings.Repeat("y", 61), strings.Repeat("x", 122), "")
	f.Add("h0", "=", "", strings.Repeat("=", 200))
	f.Fuzz(func(t *testing.T, a, b, c, d string) {
		one, two := AppendPart(AppendPart(nil, a), b), AppendPart(AppendPart(nil, c), d)
		for _, e := range []struct {
			encoding []byte
			parts    []string
		}{{one, []string{a, b}}, {two, []string{c, d}}, {AppendPart(one, c), []string{a, b, c}}} {
			if got, ok := decodeParts(e.encoding); !ok || !slices.Equal(got, e.parts) {
				t.Fatalf("%q decodes to %q, want %q", e.encoding, got, e.parts)
			}
		}
		g1, g2 := MakeGroup(one), MakeGroup(two)
		if (g1 == g2) != (a == c && b == d) {
			t.Errorf("(%q, %q) gives %q, (%q, %q) gives %q", a, b, g1, c, d, g2)
		}
		raw1, raw2 := RawGroup(a), RawGroup(c)
		if (raw1 == raw2) != (a == c) {
			t.Errorf("raw %q gives %q, %q gives %q", a, raw1, c, raw2)
		}
		for _, g := range []string{g1, g2} {
			if g == raw1 || g == raw2 {
				t.Errorf("raw and encoded give %q", g)
			}
		}
		for _, g := range []string{g1, g2, raw1, raw2} {
			if len(g) > MaxGroupLen {
				t.Errorf("group of %d bytes", len(g))
			}
		}
	})
}
