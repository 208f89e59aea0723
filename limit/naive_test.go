package limit

import (
	"math/big"
	"sort"
	"time"
)

// A naive is one key as the documentation describes it, kept in slices, maps
// and fractions, without regard to cost. Waits are searched for, not computed.
type naive struct {
	l      *Limit
	at     int64           // what State.At is documented to be
	counts map[int64]int64 // windows: units by the window's start
	log    []Record        // SlidingLog
	level  *big.Rat        // TokenBucket: units; nil is full
}

func newNaive(l *Limit) *naive { return &naive{l: l, counts: map[int64]int64{}} }

func (k *naive) clone() *naive {
	c := *k
	c.counts = map[int64]int64{}
	for start, n := range k.counts {
		c.counts[start] = n
	}
	c.log = append([]Record(nil), k.log...)
	return &c
}

func (k *naive) window() int64 { return int64(micro(k.l.Window())) }

// units returns a bucket's level at t.
func (k *naive) units(t int64) *big.Rat {
	full := new(big.Rat).SetInt64(k.l.Capacity())
	if k.level == nil {
		return full
	}
	num, den := k.l.Interval()
	level := new(big.Rat).Mul(big.NewRat(t-k.at, 1), big.NewRat(den, num))
	if level.Add(level, k.level).Cmp(full) > 0 {
		return full
	}
	return level
}

// used returns how many units count against a window limit at t, rounded up.
func (k *naive) used(t int64) int64 {
	w := k.window()
	start := t - t%w
	switch k.l.Algorithm() {
	case FixedWindow:
		return k.counts[start]
	case SlidingWindow:
		step := (w + 1<<20 - 1) / (1 << 20)
		steps := (w + step - 1) / step
		covered := steps - (t-start)/step
		share := new(big.Int).Mul(big.NewInt(k.counts[start-w]), big.NewInt(covered))
		rest := new(big.Int)
		share.DivMod(share, big.NewInt(steps), rest)
		return k.counts[start] + share.Int64() + int64(rest.Sign())
	}
	var sum int64
	for _, r := range k.log {
		if int64(r.At) > t-w {
			sum += r.N
		}
	}
	return sum
}

// room returns how many units fit at t.
func (k *naive) room(t int64) int64 {
	if k.l.Algorithm() == TokenBucket {
		u := k.units(t)
		return new(big.Int).Quo(u.Num(), u.Denom()).Int64()
	}
	return k.l.Max() - k.used(t)
}

// wait returns the least wait from t after which n units fit.
func (k *naive) wait(t, n int64) int64 {
	most := int64(1)
	for k.room(t+most) < n {
		most *= 2
	}
	return int64(sort.Search(int(most), func(d int) bool { return k.room(t+int64(d)) >= n }))
}

// ahead is how far k may lie ahead of an op.
func (k *naive) ahead() int64 {
	w := k.window()
	if k.l.Algorithm() == TokenBucket { // no longer than until an empty one is full
		empty := newNaive(k.l)
		empty.level = new(big.Rat)
		w = min(w, empty.wait(0, k.l.Capacity()))
	}
	return max(w, int64(micro(MinAhead)))
}

// moveTo moves k to now, with what was taken, if it lies further ahead.
func (k *naive) moveTo(now int64) {
	if k.at-now <= k.ahead() {
		return
	}
	start := now - now%k.window()
	switch k.l.Algorithm() {
	case TokenBucket:
		k.at = now
	case SlidingLog:
		for i := range k.log {
			if int64(k.log[i].At) > now-k.window() {
				k.log[i].At = Instant(now)
			}
		}
		k.at = now
	default:
		k.counts = map[int64]int64{start: k.counts[k.at], start - k.window(): k.counts[k.at-k.window()]}
		k.at = start
	}
}

func (k *naive) step(cost, now int64) Outcome {
	k.moveTo(now)
	t := max(now, k.at)
	want := max(cost, 1)
	out := Outcome{Admitted: cost < 0 || k.room(t) >= want}
	if out.Admitted && cost != 0 {
		k.record(cost, t)
	}
	out.Remaining = max(k.room(t), 0)
	if want > k.l.Capacity() {
		out.Retry = Never
	} else if d := k.wait(t, want); d > 0 {
		out.Retry = time.Duration(d+t-now) * us
	}
	reset := k.wait(t, k.l.Capacity())
	if k.l.Algorithm() == FixedWindow {
		reset = k.window() - t%k.window()
	}
	if reset > 0 {
		out.Reset = time.Duration(reset+t-now) * us
	}
	return out
}

func (k *naive) record(cost, t int64) {
	start := t - t%k.window()
	switch k.l.Algorithm() {
	case TokenBucket:
		u := k.units(t)
		if k.level = u.Sub(u, new(big.Rat).SetInt64(cost)); k.level.Cmp(new(big.Rat).SetInt64(k.l.Capacity())) > 0 {
			k.level.SetInt64(k.l.Capacity())
		}
		k.at = t
	case SlidingLog:
		k.recordLog(cost, t)
	default:
		k.counts[start] += cost
		if over := -k.counts[start]; over > 0 { // a refund of more than this window took
			k.counts[start] = 0
			if k.l.Algorithm() == SlidingWindow {
				k.counts[start-k.window()] = max(k.counts[start-k.window()]-over, 0)
			}
		}
		k.at = start
	}
}

func (k *naive) recordLog(cost, t int64) {
	for len(k.log) > 0 && int64(k.log[0].At) <= t-k.window() {
		k.log = k.log[1:]
	}
	for ; cost > 0; cost-- {
		k.log = append(k.log, Record{At: Instant(t), N: 1})
	}
	for ; cost < 0 && len(k.log) > 0; cost++ {
		k.log = k.log[:len(k.log)-1]
	}
	if k.at = 0; len(k.log) > 0 {
		k.at = int64(k.log[len(k.log)-1].At)
	}
}

// A naiveStore is many keys.
type naiveStore map[Key]*naive

func (s naiveStore) get(op *Op) *naive {
	k := s[op.Key]
	if k == nil {
		k = newNaive(op.Limit)
		s[op.Key] = k
	}
	return k
}

func (s naiveStore) clone() naiveStore {
	c := naiveStore{}
	for key, k := range s {
		c[key] = k.clone()
	}
	return c
}

// take decides ops as Request documents it, and returns the store afterwards.
func (s naiveStore) take(ops []Op, now int64) (naiveStore, bool, []Outcome) {
	admitted, outs := true, make([]Outcome, len(ops))
	for i := range ops {
		s.get(&ops[i]).moveTo(now)
	}
	all := s.clone()
	for i := range ops {
		outs[i] = all.get(&ops[i]).step(ops[i].Cost, now)
		admitted = admitted && (outs[i].Admitted || ops[i].Shadow)
	}
	if admitted {
		return all, true, outs
	}
	only := s.clone()
	for i := range ops {
		if ops[i].Each {
			outs[i] = only.get(&ops[i]).step(ops[i].Cost, now)
		}
	}
	for i := range ops {
		if ops[i].Each {
			continue
		}
		left := only.get(&ops[i]).step(0, now)
		outs[i].Remaining, outs[i].Reset = left.Remaining, left.Reset
		if outs[i].Admitted {
			outs[i].Retry = 0
			if ops[i].Cost < 0 {
				outs[i].Retry = left.Retry
			}
		}
	}
	return only, false, outs
}
