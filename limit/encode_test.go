package limit

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"
)

// reread returns s as it is read back from its binary form.
func reread(t testing.TB, s State) State {
	t.Helper()
	data, err := s.AppendBinary([]byte("before"))
	if err != nil || !bytes.HasPrefix(data, []byte("before")) {
		t.Fatalf("%q, %v", data, err)
	}
	data = data[len("before"):]
	var read State
	if err := read.UnmarshalBinary(data); err != nil {
		t.Fatalf("%v of %x, made from %+v", err, data, s)
	}
	again, _ := read.AppendBinary(nil)
	if !bytes.Equal(data, again) {
		t.Fatalf("%x is read as %+v and written as %x", data, read, again)
	}
	return read
}

// randomOp is one of those that change leases.
func randomOp(r *rand.Rand, l *Limit) Op {
	op := Op{Limit: l, Cost: pick[int64](r, 1, 1, 1, 1, 0, -1, -1, -2), Holder: strconv.Itoa(r.IntN(12))}
	op.Ending = pick(r, EndLease, EndAttempt, EndOwner, EndKnown)
	if op.Cost < 1 && r.IntN(4) == 0 {
		op.Holder = ""
	}
	return op
}

// TestStatesThatAreReadBackDecideAlike lives two lives of each limit: in one of
// them each state is written and read back before the next op.
func TestStatesThatAreReadBackDecideAlike(t *testing.T) {
	limits := lawLimits(t)
	for _, hold := range []time.Duration{0, time.Second} {
		limits = append(limits, MustNew(Spec{Algorithm: Concurrency, Max: 4, Window: time.Second, Hold: hold}))
	}
	r := seeded(t)
	for _, l := range limits {
		w := newWalk(r, l)
		var a, b State
		for range 300 {
			w.move()
			op := Op{Limit: l, Cost: 1 + r.Int64N(3)}
			if l.Is(Leased) {
				op = randomOp(r, l)
			}
			var x, y Outcome
			a, x = Step(a, &op, w.now)
			b, y = Step(reread(t, b), &op, w.now)
			if x != y {
				t.Fatalf("%v: %+v at %d: %+v, read back %+v", l, op, w.now, x, y)
			}
			if l.Ends(a) != l.Ends(b) {
				t.Fatalf("%v: ends at %d, read back at %d", l, l.Ends(a), l.Ends(b))
			}
			w.retry = x.Retry
			if len(a.Log) > 200 {
				a, b = State{}, State{}
			}
		}
	}
}

// TestStatesHaveTheirSize: states are no larger than is documented.
func TestStatesHaveTheirSize(t *testing.T) {
	size := func(s State) int {
		data, _ := s.AppendBinary(nil)
		return len(data)
	}
	if n := size(State{At: MaxInstant, N: maxExact, M: maxExact}); n > MaxFiguresSize {
		t.Errorf("figures take %d bytes, more than %d", n, MaxFiguresSize)
	}
	now, logged := MaxInstant-1000, State{}
	log := MustNew(Spec{Algorithm: SlidingLog, Max: MaxUnits, Window: MaxWindow})
	for i := range 100 {
		logged, _ = Step(logged, &Op{Limit: log, Cost: 1 << 30}, now+Instant(i))
	}
	if n := size(logged); n > MaxFiguresSize+100*MaxRecordSize {
		t.Errorf("a log of 100 records takes %d bytes", n)
	}
	leased := State{}
	leases := MustNew(Spec{Algorithm: Concurrency, Max: 100, Window: MaxWindow})
	for i := range 100 {
		op := Op{Limit: leases, Cost: 1, Holder: fmt.Sprintf("%0*d", MaxHolderLen, i)}
		leased, _ = Step(leased, &op, now)
		op.Cost, op.Holder = -1, "unknown"+op.Holder[7:]
		leased, _ = Step(leased, &op, now)
	}
	if n := size(leased); n > MaxFiguresSize+200*MaxLeaseSize {
		t.Errorf("100 leases and 100 ends take %d bytes", n)
	}
}

// TestDamagedStatesAreRefused: data that is cut off, of another version, or in
// contradiction with itself is an error, and changes nothing.
func TestDamagedStatesAreRefused(t *testing.T) {
	log := MustNew(Spec{Algorithm: SlidingLog, Max: 10, Window: time.Second})
	s, _ := Step(State{}, &Op{Limit: log, Cost: 3}, benchStart)
	good, _ := s.AppendBinary(nil)
	bad := map[string][]byte{
		"nothing":         nil,
		"version 0":       append([]byte{stateVersion - 1}, good[1:]...),
		"a later version": append([]byte{stateVersion + 1}, good[1:]...),
		"the last one":    {0xff},
		"cut off":         good[:len(good)-1],
		"too long":        append(bytes.Clone(good), 0, 0, 0, 0),
		"sum of a log":    {stateVersion, 0, 3, 0, 1, 1, 2},
		"empty record":    {stateVersion, 0, 0, 0, 1, 1, 0},
		"huge count":      {stateVersion, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x7f},
		"one lease twice": {stateVersion, 0, 0, 0, 0, 2, 8, 1, 'a', 8, 1, 'a'},
		"no order":        {stateVersion, 0, 0, 0, 0, 2, 8, 1, 'b', 0, 1, 'a'},
		"long holder": append([]byte{stateVersion, 0, 0, 0, 0, 1, 8, MaxHolderLen + 1},
			strings.Repeat("x", MaxHolderLen+1)...),
	}
	for name, data := range bad {
		kept := s
		err := kept.UnmarshalBinary(data)
		if err == nil || !reflect.DeepEqual(kept, s) {
			t.Errorf("%s: %v, state %+v", name, err, kept)
		}
		if later := len(data) > 0 && data[0] > stateVersion; errors.Is(err, ErrLater) != later {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzUnmarshalState: whatever the bytes, the result is an error, or a state that
// is written as it was read and that every limit can step.
func FuzzUnmarshalState(f *testing.F) {
	f.Add([]byte{stateVersion, 1, 2, 3})
	f.Add([]byte{stateVersion, 9, 3, 0, 2, 1, 1, 8, 2})
	f.Add([]byte{stateVersion, 0, 0, 0, 0, 2, 8, 1, 'a', 1, 1, 'b', 1, 9, 9, 1, 200, 1, 1, 'c'})
	now := Instant(time.Hour.Microseconds())
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, a := range AllAlgorithms() {
			var s State
			if s.UnmarshalBinary(data) != nil {
				return
			}
			if again := reread(t, s); !reflect.DeepEqual(again, s) {
				t.Fatalf("%+v is read back as %+v", s, again)
			}
			l := MustNew(Spec{Algorithm: a, Max: 3, Window: time.Second})
			s, _ = Step(s, &Op{Limit: l, Cost: 1, Holder: "h"}, now)
			s, out := Step(s, &Op{Limit: l, Cost: -5}, now+1)
			if !out.Admitted {
				t.Fatalf("%v: giving back is refused: %+v", l, out)
			}
			l.Ends(s)
		}
	})
}
