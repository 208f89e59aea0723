package limit

import (
	"cmp"
	"math/big"
	"slices"
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
	whole  bool            // a cost without room takes nothing, whatever Overflow says
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

// bounds returns when the window of t begins and ends.
func (k *naive) bounds(t int64) (start, end int64) {
	if !k.l.Calendar() {
		start = t - t%k.window()
		return start, start + k.window()
	}
	zone := k.l.Spec().Zone
	y, m, d := time.UnixMicro(t).In(zone).Date()
	at := func(y int, m time.Month, d int) int64 {
		return max(time.Date(y, m, d, 0, 0, 0, 0, zone).UnixMicro(), 0)
	}
	switch k.l.Window() {
	case day:
		return at(y, m, d), at(y, m, d+1)
	case 7 * day:
		d -= (int(time.Date(y, m, d, 0, 0, 0, 0, time.UTC).Weekday()) + 6) % 7
		return at(y, m, d), at(y, m, d+7)
	case 30 * day:
		return at(y, m, 1), at(y, m+1, 1)
	}
	return at(y, 1, 1), at(y+1, 1, 1)
}

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
	cur, prev := k.windows(t)
	switch k.l.Algorithm() {
	case FixedWindow:
		return cur
	case SlidingWindow:
		step := (w + 1<<20 - 1) / (1 << 20)
		steps := (w + step - 1) / step
		covered := steps - (t-start)/step
		share := new(big.Int).Mul(big.NewInt(prev), big.NewInt(covered))
		rest := new(big.Int)
		share.DivMod(share, big.NewInt(steps), rest)
		return cur + share.Int64() + int64(rest.Sign())
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
	return max(w+k.mostAhead(), int64(micro(MinAhead)))
}

// windows returns what was taken in the window of t, with what is owed from those
// before, and in the one before.
func (k *naive) windows(t int64) (cur, prev int64) {
	start, _ := k.bounds(t)
	if k.l.MaxDebt() == 0 {
		return k.counts[start], k.counts[start-k.window()]
	}
	w := k.at - k.at%k.window()
	cur, prev = k.counts[w], k.counts[w-k.window()]
	for ; w < start && cur+prev > 0; w += k.window() {
		prev = min(cur, k.l.Max()) // as much as a window may have; the rest is the next one's
		cur -= prev
	}
	return cur, prev
}

// perUnit is the time in which a bucket or log regains or pays back a unit, in µs.
func (k *naive) perUnit() *big.Rat {
	num, den := k.l.Interval()
	return big.NewRat(num, den)
}

func ratOf(n int64) *big.Rat { return new(big.Rat).SetInt64(n) }

func floorRat(r *big.Rat) int64 { return new(big.Int).Div(r.Num(), r.Denom()).Int64() }

func ceilRat(r *big.Rat) int64 { return -floorRat(new(big.Rat).Neg(r)) }

func (k *naive) clocked() bool {
	return k.l.Algorithm() == TokenBucket || k.l.Algorithm() == SlidingLog
}

// mostAhead is how far ahead a key lies that owes all it may.
func (k *naive) mostAhead() int64 {
	if !k.clocked() || k.l.MaxDebt() == 0 {
		return 0
	}
	return ceilRat(new(big.Rat).Mul(ratOf(k.l.MaxDebt()), k.perUnit()))
}

// spill takes what a refused cost takes, as Overflow says.
func (k *naive) spill(cost, now int64) int64 {
	t := max(now, k.at)
	left := max(k.room(t), 0)
	owe := int64(0)
	switch {
	case !k.clocked():
		left = k.room(t) // below zero where something is owed
		owe = max(min(cost-left, k.l.MaxDebt()), 0)
		if left+owe <= 0 {
			return 0
		}
		k.record(left+owe, t)
		return left + owe
	case t-now < k.mostAhead():
		owed := new(big.Rat).Quo(ratOf(t-now), k.perUnit())
		owe = floorRat(new(big.Rat).Sub(ratOf(k.l.MaxDebt()), owed))
		owe = min(owe, cost-left)
	}
	if left+owe == 0 {
		return 0
	}
	if left > 0 {
		k.record(left, t)
	}
	if owe == 0 {
		return left
	}
	if k.l.Algorithm() == TokenBucket {
		level := new(big.Rat).Sub(k.units(t), ratOf(owe))
		k.at = t
		k.level = level
		if level.Sign() < 0 {
			wait := ceilRat(new(big.Rat).Mul(new(big.Rat).Neg(level), k.perUnit()))
			k.level = new(big.Rat).Add(level, new(big.Rat).Quo(ratOf(wait), k.perUnit()))
			num, _ := k.l.Interval()
			if most := big.NewRat(num-1, num); k.level.Cmp(most) > 0 {
				k.level = most
			}
			k.at = t + wait
		}
		return left + owe
	}
	k.shift(t, ceilRat(new(big.Rat).Mul(ratOf(owe), k.perUnit())))
	return left + owe
}

// shift moves the units of a log that still count at t by d, in 64 parts.
func (k *naive) shift(t, d int64) {
	for len(k.log) > 0 && int64(k.log[0].At) <= t-k.window() {
		k.log = k.log[1:]
	}
	old, n := append([]Record(nil), k.log...), int64(len(k.log))
	for u := range n {
		part := u*64/n + 1
		last := (part*n + 63) / 64
		k.log[u].At = old[last-1].At + Instant(d)
	}
	k.at = 0
	if n > 0 {
		k.at = int64(k.log[n-1].At)
	}
}

// payBack has a refund pay what is owed, and returns what is left of it.
func (k *naive) payBack(cost, now int64) int64 {
	ahead := k.at - now
	if ahead <= 0 || k.mostAhead() == 0 {
		return cost
	}
	owed := k.l.MaxDebt()
	if ahead < k.mostAhead() {
		owed = ceilRat(new(big.Rat).Quo(ratOf(ahead), k.perUnit()))
	}
	by := ahead
	paid := owed
	if -cost < owed {
		paid = -cost
		by = min(floorRat(new(big.Rat).Mul(ratOf(paid), k.perUnit())), ahead)
	}
	if k.l.Algorithm() == SlidingLog {
		k.shift(k.at, -by)
	} else {
		k.at -= by
	}
	return cost + paid
}

// moveTo moves k to now, with what was taken, if it lies further ahead.
func (k *naive) moveTo(now int64) {
	if k.l.Calendar() {
		_, end := k.bounds(now)
		if _, next := k.bounds(end); k.at < next {
			return
		}
	} else if k.at-now <= k.ahead() {
		return
	}
	start, _ := k.bounds(now)
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
	want := max(cost, 1)
	out := Outcome{Admitted: cost < 0}
	if cost < 0 {
		cost = k.payBack(cost, now)
	}
	t := max(now, k.at)
	out.Admitted = out.Admitted || k.room(t) >= want
	switch {
	case out.Admitted && cost != 0:
		k.record(cost, t)
	case !out.Admitted && cost > 0 && k.l.Overflow() != Refuse && !k.whole:
		out.Taken = k.spill(cost, now)
		t = max(now, k.at)
	}
	out.Remaining = max(k.room(t), 0)
	if want > k.l.Capacity() {
		out.Retry = Never
	} else if d := k.wait(t, want); d > 0 {
		out.Retry = time.Duration(d+t-now) * us
	}
	reset := k.wait(t, k.l.Capacity())
	if k.l.Algorithm() == FixedWindow && (reset == 0 || k.l.MaxDebt() == 0) {
		_, end := k.bounds(t)
		reset = end - t
	}
	if reset > 0 {
		out.Reset = time.Duration(reset+t-now) * us
	}
	return out
}

func (k *naive) record(cost, t int64) {
	start, _ := k.bounds(t)
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
		cur, prev := k.windows(t)
		k.counts = map[int64]int64{start: cur + cost, start - k.window(): prev}
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
	k.at = 0
	if len(k.log) > 0 {
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

// step decides an op alone. An alternative takes its cost or nothing.
func (s naiveStore) step(op *Op, now int64) Outcome {
	k := s.get(op)
	k.whole = op.Choice.Set > 0
	out := k.step(op.Cost, now)
	k.whole = false
	return out
}

// choices returns the alternatives of ops, in order.
func choices(ops []Op) (all []Choice) {
	for i := range ops {
		if c := ops[i].Choice; c.Set > 0 && !slices.Contains(all, c) {
			all = append(all, c)
		}
	}
	slices.SortFunc(all, func(a, b Choice) int {
		return cmp.Or(cmp.Compare(a.Set, b.Set), cmp.Compare(a.Group, b.Group))
	})
	return all
}

// bySet returns the order in which ops are decided.
func bySet(ops []Op) (order []int) {
	for i := range ops {
		order = append(order, i)
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(ops[a].Choice.Set, ops[b].Choice.Set) })
	return order
}

// choose returns which of ops are charged if the request is admitted, and whether every set has an alternative with
// room. It fills the outcomes of those that it has looked at.
func (s naiveStore) choose(ops []Op, now int64, outs []Outcome) (charged []bool, ok bool) {
	charged, ok = make([]bool, len(ops)), true
	for i := range ops {
		charged[i] = ops[i].Choice.Set == 0
	}
	found := map[uint8]bool{}
	for _, c := range choices(ops) {
		if found[c.Set] {
			continue
		}
		room := true
		all := s.clone()
		for _, i := range bySet(ops) {
			if !charged[i] && ops[i].Choice != c {
				continue
			}
			out := all.step(&ops[i], now)
			if !charged[i] {
				outs[i] = out
				room = room && (out.Admitted || ops[i].Shadow)
			}
		}
		found[c.Set] = room
		for i := range ops {
			charged[i] = charged[i] || room && ops[i].Choice == c
		}
	}
	for _, room := range found {
		ok = ok && room
	}
	return charged, ok
}

// take decides ops as Request documents it, and returns the store afterwards.
func (s naiveStore) take(ops []Op, now int64) (naiveStore, bool, []Outcome) {
	outs := make([]Outcome, len(ops))
	for i := range ops {
		s.get(&ops[i]).moveTo(now)
		outs[i].Admitted = ops[i].Choice.Set > 0
	}
	chosen, admitted := s.choose(ops, now, outs)
	all := s.clone()
	for _, i := range bySet(ops) {
		if chosen[i] {
			outs[i] = all.step(&ops[i], now)
			admitted = admitted && (outs[i].Admitted || ops[i].Shadow)
		}
	}
	if admitted {
		for i := range ops {
			outs[i].Chosen = chosen[i] && ops[i].Choice.Set > 0
			if !chosen[i] {
				all.unrecorded(&ops[i], now, &outs[i])
			}
		}
		return all, true, outs
	}
	only := s.clone()
	charged := make([]bool, len(ops))
	for i := range ops {
		charged[i] = ops[i].Each && ops[i].Choice.Set == 0
		for j := range ops {
			over := !outs[j].Admitted && ops[j].Cost > 0 && ops[j].Limit.Overflow() != Refuse && ops[j].Choice.Set == 0
			charged[i] = charged[i] || over && ops[i].Cost > 0 && ops[i].Key == ops[j].Key && ops[i].Choice.Set == 0
		}
	}
	for i := range ops {
		if charged[i] {
			outs[i] = only.step(&ops[i], now)
		}
	}
	for i := range ops {
		if !charged[i] {
			only.unrecorded(&ops[i], now, &outs[i])
		}
	}
	return only, false, outs
}

// unrecorded makes out that of an op which is not recorded.
func (s naiveStore) unrecorded(op *Op, now int64, out *Outcome) {
	left := s.get(op).step(0, now)
	out.Remaining, out.Reset = left.Remaining, left.Reset
	if out.Admitted {
		out.Retry = 0
		if op.Cost < 0 {
			out.Retry = left.Retry
		}
	}
}
