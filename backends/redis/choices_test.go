package redis

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/backends/memory"
	"github.com/headgate-rls/headgate/backends/redis/script"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/test/random"
	"github.com/headgate-rls/headgate/test/testenv"
)

// A choiceMaker makes random slices of requests with alternatives near their limits, most of which the common script
// decides.
type choiceMaker struct {
	*rand.Rand
	round int
	at    limit.Instant
}

func (m *choiceMaker) slice() []limit.Request {
	reqs := make([]limit.Request, 1+m.IntN(5))
	for i := range reqs {
		m.at += limit.Instant(m.IntN(150_000))
		reqs[i] = limit.Request{At: m.at, Ops: m.ops()}
	}
	return reqs
}

func (m *choiceMaker) ops() (ops []limit.Op) {
	for i, key := range m.Perm(12)[:1+m.IntN(6)] {
		ops = append(ops, m.op(key))
		if m.IntN(4) > 0 {
			ops[i].Choice = limit.Choice{Set: []uint8{1, 1, 1, 2, 255}[m.IntN(5)], Group: []uint8{0, 1, 7, 255}[m.IntN(4)]}
		}
	}
	if m.IntN(100) == 0 {
		ops = append(ops, ops[0]) // only the full script decides that
	}
	return ops
}

// op makes an op under one of few keys, whose figures change, but not its algorithm.
func (m *choiceMaker) op(key int) limit.Op {
	spec := limit.Spec{Max: 1 + m.Int64N(6), Window: time.Second * time.Duration(1+key%2+m.IntN(20)/19)}
	spec.Algorithm = []limit.Algorithm{limit.FixedWindow, limit.SlidingWindow, limit.TokenBucket}[key%3]
	if m.round%3 == 0 {
		spec.Algorithm = limit.FixedWindow // for these the script has a way of its own
	}
	if spec.Algorithm == limit.FixedWindow && m.IntN(3) == 0 || m.IntN(50) == 0 {
		spec.Overflow = limit.Saturate
	}
	if m.IntN(100) == 0 {
		spec.Overflow = limit.Debt
	}
	return limit.Op{
		Key:   limit.Key{Group: fmt.Sprint("choices", m.round), Limit: fmt.Sprint(key)},
		Limit: limit.MustNew(spec), Cost: m.Int64N(6) - 1, Shadow: m.IntN(6) == 0, Each: m.IntN(5) == 0,
	}
}

// TestAlternativesAreDecidedAsInMemory compares random slices. The common script decides most of them.
func TestAlternativesAreDecidedAsInMemory(t *testing.T) {
	s := testenv.StartRedis(t)
	b, model := open(t, s.URL()), memory.New(memory.Config{})
	m := &choiceMaker{Rand: random.Rand(t, 23), at: limit.InstantOf(time.Now().Add(time.Hour).Truncate(time.Hour))}
	take(t, b, limit.Request{Ops: m.ops()})
	slices, common := 0, 0
	for m.round = range random.Times(400, 10_000) {
		for range 6 {
			reqs := m.slice()
			before := b.Stats().Calls
			got, want := take(t, b, reqs...), take(t, model, reqs...)
			for i := range reqs {
				if got[i].Err != nil || !sameVerdict(&got[i], &want[i]) {
					t.Fatalf("round %d, request %d of %+v:\nRedis:  %+v\nmemory: %+v", m.round, i, reqs, got[i], want[i])
				}
			}
			slices++
			if scriptFor(b, reqs...) == script.Common && b.Stats().Calls == before+1 {
				common++
			}
		}
	}
	if common < slices/2 {
		t.Errorf("the common script has decided %d of %d slices", common, slices)
	}
}

// scriptFor returns the script that a call with these requests begins with.
func scriptFor(b *Backend, reqs ...limit.Request) *script.Script {
	c := b.newCall(&scratch{})
	for i := range reqs {
		b.pack(c, &reqs[i])
	}
	c.seal()
	return c.script
}

// TestTheCommonScriptDecidesAlternatives: it passes on nothing, whichever alternative has room, and a request that it
// passes on is decided all the same.
func TestTheCommonScriptDecidesAlternatives(t *testing.T) {
	s := testenv.StartRedis(t)
	b, c := open(t, s.URL()), s.Client()
	var ops []limit.Op
	for i, a := range []limit.Algorithm{limit.FixedWindow, limit.SlidingWindow, limit.TokenBucket} {
		spec := limit.Spec{Algorithm: a, Max: 1, Window: time.Hour}
		ops = append(ops, limit.Op{Key: limit.Key{Group: "g", Limit: a.String()}, Limit: limit.MustNew(spec), Cost: 1,
			Choice: limit.Choice{Set: 1, Group: uint8(3 - i)}})
	}
	now := limit.InstantOf(time.Now().Truncate(time.Hour))
	for want := 2; want >= -1; want-- {
		v := take(t, b, limit.Request{At: now, Ops: ops})[0]
		for i := range ops {
			if v.Err != nil || v.Outcomes[i].Chosen != (i == want) {
				t.Fatalf("%+v, want op %d chosen", v, want)
			}
		}
	}
	if have := c.ScriptExists(t.Context(), script.Common.SHA, script.Full.SHA).Val(); !have[0] || have[1] {
		t.Errorf("the server was sent the common and the full script: %v, want the common one only", have)
	}
	ops[0].Key.Limit = "another"
	v := take(t, b, limit.Request{At: now - 1000, Ops: ops})[0] // the bucket's state lies ahead
	if v.Err != nil || !v.Admitted || v.Outcomes[1].Chosen || v.Outcomes[2].Chosen || !v.Outcomes[0].Chosen {
		t.Errorf("after a clock that has stepped back: %+v", v)
	}
	if have := c.ScriptExists(t.Context(), script.Full.SHA).Val(); !have[0] {
		t.Error("the full script was not asked")
	}
}

// TestWindowsOfAlternativesAreNoNumbers: INCRBY counts no alternatives, also not one that is alone, and the script
// writes a number by two commands in place of one.
func TestWindowsOfAlternativesAreNoNumbers(t *testing.T) {
	s := testenv.StartRedis(t)
	b, c := open(t, s.URL()), s.Client()
	l := limit.MustNew(limit.Spec{Algorithm: limit.FixedWindow, Max: 10, Window: time.Hour})
	key := limit.Key{Group: "g", Limit: "l"}
	for choice, want := range map[limit.Choice]int64{{Set: 1}: 28, {}: 19} {
		take(t, b, limit.Request{Ops: []limit.Op{{Key: key, Limit: l, Cost: 1, Choice: choice}}})
		if n := c.StrLen(t.Context(), b.ownKey(key)).Val(); n != want {
			t.Errorf("choice %v leaves %d bytes, want %d", choice, n, want)
		}
		c.FlushDB(t.Context())
	}
}
