package batch

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/test/random"
)

// A partStore keeps long logs in parts, as a database would.
type partStore struct {
	rows        map[limit.Key]limit.State
	parts       map[limit.Key]map[limit.Instant]limit.State
	whole, size int
	oldest      int // how many parts are read with a row

	fetched, decided, cut int
}

func newPartStore(r *rand.Rand) *partStore {
	return &partStore{rows: map[limit.Key]limit.State{}, parts: map[limit.Key]map[limit.Instant]limit.State{},
		whole: pick(r, 0, 5, 20), size: pick(r, limit.MaxFiguresSize+40, limit.MaxFiguresSize+80), oldest: pick(r, 0, 1, 2)}
}

// take decides requests on what is stored.
func (p *partStore) take(t *testing.T, reqs []limit.Request, now limit.Instant) []limit.Verdict {
	t.Helper()
	var b Batch
	out := make([]limit.Verdict, len(reqs))
	for i := range reqs {
		b.Add(&reqs[i], &out[i])
	}
	keys := b.Keys()
	for i, k := range keys {
		b.Put(i, reread(t, p.rows[k]))
		for n, at := range p.instants(k) {
			if n < p.oldest {
				p.put(t, &b, i, k, at)
			}
		}
	}
	for i, missing := range b.Missing(now) {
		for _, at := range missing {
			p.put(t, &b, i, keys[i], at)
			p.fetched++
		}
	}
	if again := b.Missing(now); len(again) > 0 {
		t.Fatalf("%v are missing although they were put", again)
	}
	b.Decide(now)
	for i, c := range b.Changed() {
		p.write(t, keys[i], &c)
	}
	p.decided++
	return out
}

func (p *partStore) instants(k limit.Key) (all []limit.Instant) {
	for at := range p.parts[k] {
		all = append(all, at)
	}
	slices.Sort(all)
	return all
}

func (p *partStore) put(t *testing.T, b *Batch, i int, k limit.Key, at limit.Instant) {
	t.Helper()
	part, ok := p.parts[k][at]
	if !ok {
		t.Fatalf("there is no part at %d", at)
	}
	if !b.PutPart(i, reread(t, part)) {
		t.Fatalf("the part at %d is said to be damaged: %+v", at, part)
	}
}

func (p *partStore) write(t *testing.T, k limit.Key, c *Change) {
	t.Helper()
	s, add, gone := c.Split(p.whole, p.size)
	p.rows[k] = s
	if p.parts[k] == nil {
		p.parts[k] = map[limit.Instant]limit.State{}
	}
	for _, at := range gone {
		if _, ok := p.parts[k][at]; !ok {
			t.Fatalf("the part at %d, which is to be deleted, is not there", at)
		}
		delete(p.parts[k], at)
	}
	for _, part := range add {
		if _, ok := p.parts[k][part.At]; ok {
			t.Fatalf("there is a part at %d already", part.At)
		}
		if data, _ := part.AppendBinary(nil); len(data) > p.size {
			t.Fatalf("a part has %d bytes, more than %d", len(data), p.size)
		}
		p.parts[k][part.At] = part
		p.cut++
	}
	if int(s.M) != len(p.parts[k]) {
		t.Fatalf("the log says that it has %d parts, and has %d", s.M, len(p.parts[k]))
	}
}

// log returns the whole log of a key, one record for each instant.
func (p *partStore) log(k limit.Key) (log []limit.Record) {
	s := p.rows[k]
	for _, r := range s.Log[:s.M] {
		part := p.parts[k][r.At]
		old := part.N - r.N
		for _, r := range part.Log {
			if old > 0 {
				old -= r.N
				continue
			}
			log = append(log, r)
		}
	}
	return merged(append(log, s.Log[s.M:]...))
}

// TestLogsInPartsDecideAlike compares decisions on logs of which parts are kept
// elsewhere with those on whole logs: with refunds that reach into parts, costs that wait
// for units deep inside, debt, limits and windows that change, clocks that stand still or
// step back, and several requests for one key.
func TestLogsInPartsDecideAlike(t *testing.T) {
	r := seeded(t)
	fetched, decided, cut := 0, 0, 0
	for range random.Times(50, 150) {
		store, model := newPartStore(r), map[limit.Key]limit.State{}
		limits := partLimits(r)
		now, wait := start, time.Duration(0)
		pace := pick[int64](r, 100, 5000, 20_000)
		for range 250 {
			switch r.IntN(250) {
			case 0:
				now += limit.Instant(wait.Microseconds())
			case 1:
				now += limit.Instant(wait.Microseconds()) - 1
			case 2:
				now += limit.Instant(r.Int64N(1_500_000))
			case 3:
				now -= limit.Instant(r.Int64N(pick[int64](r, 10, 10_000, 100_000, 3_000_000)))
			case 4: // the clock stands still
			default:
				now += limit.Instant(r.Int64N(pace))
			}
			reqs := make([]limit.Request, 1+r.IntN(4))
			for i := range reqs {
				reqs[i] = partRequest(r, limits, now)
			}
			got := store.take(t, reqs, now)
			for i := range reqs {
				at := reqs[i].At
				if at == 0 {
					at = now
				}
				want := decideOn(model, &reqs[i], at)
				if want.Admitted != got[i].Admitted || !slices.Equal(want.Outcomes, got[i].Outcomes) {
					t.Fatalf("at %d: %+v\ngot  %+v\nwant %+v\nlog %+v", at, reqs[i], got[i], want, store.log(reqs[i].Ops[0].Key))
				}
				for _, out := range want.Outcomes {
					if out.Retry > 0 && out.Retry != limit.Never {
						wait = out.Retry
					}
				}
			}
			for k, s := range model {
				if log := store.log(k); s.N != store.rows[k].N || s.At != store.rows[k].At || !slices.Equal(log, merged(s.Log)) {
					t.Fatalf("%q is %+v\nwith the log %v, want %+v", k, store.rows[k], log, s)
				}
			}
		}
		fetched, decided, cut = fetched+store.fetched, decided+store.decided, cut+store.cut
	}
	if cut < 200 || fetched < 200 {
		t.Errorf("%d parts were cut off, %d read, in %d decisions: too few to test anything", cut, fetched, decided)
	}
}

// partLimits are those that requests for one key may name.
func partLimits(r *rand.Rand) (limits []*limit.Limit) {
	for range 1 + r.IntN(2) {
		s := limit.Spec{Algorithm: limit.SlidingLog, Max: pick[int64](r, 10, 60, 200, 200, 1000),
			Window: pick(r, time.Second, time.Second, 100*time.Millisecond)}
		s.Overflow = pick(r, limit.Refuse, limit.Refuse, limit.Refuse, limit.Saturate, limit.Debt)
		limits = append(limits, limit.MustNew(s))
	}
	return limits
}

func partRequest(r *rand.Rand, limits []*limit.Limit, now limit.Instant) (req limit.Request) {
	if r.IntN(8) == 0 {
		req.At = now + limit.Instant(r.Int64N(2000)) - 1000
	}
	for range 1 + r.IntN(2) {
		l := limits[r.IntN(len(limits))]
		req.Ops = append(req.Ops, limit.Op{
			Key: limit.Key{Group: fmt.Sprint(r.IntN(2)), Limit: "l"}, Limit: l, Shadow: r.IntN(6) == 0, Each: r.IntN(6) == 0,
			Cost: partCost(r, l)})
	}
	return req
}

// partCost is mostly one that makes a log longer.
func partCost(r *rand.Rand, l *limit.Limit) int64 {
	if r.IntN(60) > 0 {
		return pick[int64](r, 1, 1, 1, 1, 1, 1, 2, 3, 0, -1)
	}
	return pick(r, -r.Int64N(20), -r.Int64N(100), -r.Int64N(l.Capacity()+2), r.Int64N(20), r.Int64N(l.Capacity()+2),
		l.Capacity()/2, 1<<60, -1<<60)
}

// TestLogsReadOnlyThePartsTheyNeed: in a full log of many parts an admission, a refusal
// and a question need the oldest part, and what waits for, or gives back, a unit deep
// inside needs one more.
func TestLogsReadOnlyThePartsTheyNeed(t *testing.T) {
	store := &partStore{rows: map[limit.Key]limit.State{}, parts: map[limit.Key]map[limit.Instant]limit.State{},
		whole: 1000, size: 1000, oldest: 2}
	const units = 100_000
	l := limit.MustNew(limit.Spec{Algorithm: limit.SlidingLog, Max: units, Window: 24 * time.Hour})
	k := limit.Key{Limit: "l"}
	at := func(i int64) limit.Instant { return start + limit.Instant(i)*864_000 }
	one := func(i, cost int64) (limit.Outcome, int) {
		before := store.fetched
		v := store.take(t, []limit.Request{{Ops: []limit.Op{{Key: k, Limit: l, Cost: cost}}}}, at(i))
		return v[0].Outcomes[0], store.fetched - before
	}
	bytes := 0
	for first := int64(0); first < units+5000; first += 100 {
		reqs := make([]limit.Request, 100)
		for i := range reqs {
			reqs[i] = limit.Request{At: at(first + int64(i)), Ops: []limit.Op{{Key: k, Limit: l, Cost: 1}}}
		}
		for i, v := range store.take(t, reqs, 1) {
			if !v.Admitted {
				t.Fatalf("unit %d is refused: %+v", first+int64(i), v)
			}
		}
		data, _ := store.rows[k].AppendBinary(nil)
		bytes = max(bytes, len(data))
	}
	if bytes > 6000 || store.fetched > 0 {
		t.Errorf("the row has up to %d bytes, and %d parts were read beside the oldest", bytes, store.fetched)
	}
	last := int64(units + 5000 - 1)
	for _, c := range []struct {
		cost  int64
		retry time.Duration
		parts int
	}{
		{0, 864 * time.Millisecond, 0}, {1, 864 * time.Millisecond, 0}, {250, 250 * 864 * time.Millisecond, 0},
		{50_000, 50_000 * 864 * time.Millisecond, 1}, {units, 24 * time.Hour, 0},
	} {
		if out, n := one(last, c.cost); out.Admitted || out.Retry != c.retry || n > c.parts {
			t.Errorf("cost %d: %+v and %d parts more, want %v and %d", c.cost, out, n, c.retry, c.parts)
		}
	}
	if out, n := one(last, -1); out.Remaining != 1 || n != 0 {
		t.Errorf("one unit is given back: %+v, %d parts more", out, n)
	}
	if out, n := one(last, -50_000); out.Remaining != 50_001 || n == 0 {
		t.Errorf("50,000 units are given back: %+v, %d parts more", out, n)
	}
}

// TestDamagedPartsAreFound: a part that does not hold what its log says is not believed.
func TestDamagedPartsAreFound(t *testing.T) {
	s := limit.State{At: 30, N: 9, M: 1, Log: []limit.Record{{At: 20, N: 5}, {At: 30, N: 4}}}
	l := limit.MustNew(limit.Spec{Algorithm: limit.SlidingLog, Max: 10, Window: time.Second})
	for _, c := range []struct {
		part limit.State
		ok   bool
	}{
		{limit.State{At: 20, N: 5, Log: []limit.Record{{At: 10, N: 3}, {At: 20, N: 2}}}, true},
		// Three units have ended.
		{limit.State{At: 20, N: 8, Log: []limit.Record{{At: 5, N: 3}, {At: 10, N: 3}, {At: 20, N: 2}}}, true},
		{limit.State{At: 20, N: 7, Log: []limit.Record{{At: 5, N: 3}, {At: 10, N: 2}, {At: 20, N: 2}}}, false},
		{limit.State{At: 20, N: 4, Log: []limit.Record{{At: 10, N: 2}, {At: 20, N: 2}}}, false},
		{limit.State{At: 20, N: 5, Log: []limit.Record{{At: 10, N: 5}}}, false},
		{limit.State{At: 20, N: 5}, false},
		{limit.State{At: 25, N: 1, Log: []limit.Record{{At: 25, N: 1}}}, true}, // not one of its parts
	} {
		var b Batch
		var v limit.Verdict
		b.Add(&limit.Request{Ops: []limit.Op{{Limit: l, Cost: 1}}}, &v)
		b.Keys()
		b.Put(0, s)
		if ok := b.PutPart(0, c.part); ok != c.ok {
			t.Errorf("%+v: %v, want %v", c.part, ok, c.ok)
		}
	}
}
