package slotstest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/slots"
	"github.com/headgate-rls/headgate/slots/plan"
	"github.com/headgate-rls/headgate/test/random"
)

// subject is what a property is checked of.
type subject struct {
	engine func(t slots.Tables) slots.Engine
	tables func(m *Model) slots.Tables // nil: the model itself
}

func theEngine() subject { return subject{engine: slots.TxEngine} }

// A scenario is one set of circumstances, drawn by a seed.
type scenario struct {
	rng     *rand.Rand
	m       *Model
	subject subject
	series  slots.Series
	max     int64
	highest int64
	shape   slots.Search // of all searches
	starts  []int64      // first windows
	events  int          // different ones
	grants  map[string]grant
	problem []string
	numbers int // of slot ids
}

// grant is what an event was given.
type grant struct {
	slot slots.Slot
	by   string // the slot id of the ask whose answer says it is new
}

const scenarioTurns = 50_000

func newScenario(seed uint64, sub subject) *scenario {
	rng := rand.New(rand.NewPCG(seed, 0x5c3))
	sizes := []int64{100, 500, 1500, 4000, 7000}
	sc := &scenario{rng: rng, m: NewModel(), subject: sub, grants: map[string]grant{}}
	sc.series = slots.Series{Scope: "s", SizeMs: sizes[rng.IntN(len(sizes))]}
	sc.max = 1 + rng.Int64N(5)
	sc.highest = sc.max
	sc.shape = slots.Search{
		Series: sc.series, ConfigID: "c1", Stratified: rng.IntN(3) == 0,
	}
	sc.m.Serial = rng.IntN(6) == 0
	year := []int{2026, 2026, 2026, 1969}[rng.IntN(4)]
	base := plan.WindowStart(time.Date(year, 12, 31, 23, 59, 55, 0, time.UTC).UnixMicro(), sc.series.SizeMs)
	for range 1 + rng.IntN(3) {
		sc.starts = append(sc.starts, base+rng.Int64N(6)*sc.series.SizeMs)
	}
	sc.events = 3 + rng.IntN(20)
	if rng.IntN(2) == 0 {
		level := 0.02 + 0.1*rng.Float64()
		sc.m.Inject(Faults{Abort: level, LostCommit: 2 * level, Held: level}, seed)
	}
	return sc
}

// property plays a scenario and returns what was wrong in it.
func property(seed uint64, sub subject) []string {
	sc := newScenario(seed, sub)
	for phase := range 1 + sc.rng.IntN(2) {
		if phase > 0 { // another config version
			sc.max = 1 + sc.rng.Int64N(5)
			sc.highest = max(sc.highest, sc.max)
			sc.shape.ConfigID = "c2"
		}
		schedule := NewSchedule(seed + uint64(phase)<<32)
		for range 2 + sc.rng.IntN(5) {
			p := sc.newPlayer()
			schedule.Go(context.Background(), p.play)
		}
		if err := schedule.Run(scenarioTurns); err != nil {
			return append(sc.problem, err.Error())
		}
	}
	sc.finish()
	return sc.problem
}

func (sc *scenario) wrong(format string, args ...any) {
	sc.problem = append(sc.problem, fmt.Sprintf(format, args...))
}

// finish looks at what the database holds in the end.
func (sc *scenario) finish() {
	sc.m.Inject(Faults{}, 0)
	ctx := context.Background()
	wrong, err := Audit(ctx, sc.m, sc.series, sc.highest)
	if err != nil {
		sc.wrong("audit: %v", err)
	}
	sc.problem = append(append(sc.problem, wrong...), sc.m.Misuse()...)
	for event, g := range sc.grants {
		found, err := sc.m.Find(ctx, []string{event})
		if err != nil || len(found) != 1 {
			sc.wrong("event %q was given a slot, and has %d: %v", event, len(found), err)
			continue
		}
		if found[0].CreatedUs = 0; found[0] != g.slot {
			sc.wrong("event %q was given %+v, and has %+v", event, g.slot, found[0])
		}
	}
}

// A player is a caller: it searches as a Scheduler does, remembering what it
// has learnt.
type player struct {
	laterMs   int64 // the first later window of the search under way
	sc        *scenario
	rng       *rand.Rand
	engine    slots.Engine
	max       int64
	searches  int
	full      []slots.Span
	forgetful bool
}

func (sc *scenario) newPlayer() *player {
	var tables slots.Tables = sc.m
	if sc.subject.tables != nil {
		tables = sc.subject.tables(sc.m)
	}
	return &player{
		sc: sc, rng: rand.New(rand.NewPCG(sc.rng.Uint64(), 1)), engine: sc.subject.engine(tables), max: sc.max,
		searches: 1 + sc.rng.IntN(5), forgetful: sc.rng.IntN(3) == 0,
	}
}

func (p *player) play(ctx context.Context) {
	for range p.searches {
		p.search(ctx, p.newSearch())
	}
}

func (p *player) newSearch() *slots.Search {
	sc := p.sc
	s := sc.shape
	s.Max = p.max
	s.FirstMs = sc.starts[p.rng.IntN(len(sc.starts))]
	p.laterMs = s.FirstMs + s.SizeMs
	closed := p.rng.IntN(10) == 0
	if closed { // as by a calendar
		p.laterMs += p.rng.Int64N(3) * s.SizeMs
	}
	s.EndMs = p.laterMs + 1000*s.SizeMs
	if p.rng.IntN(8) == 0 {
		s.EndMs = p.laterMs + p.rng.Int64N(6)*s.SizeMs
	}
	for _, e := range p.rng.Perm(sc.events)[:1+p.rng.IntN(3)] {
		s.Asks = append(s.Asks, p.newAsk(&s, fmt.Sprintf("e%d", e), closed))
	}
	return &s
}

func (p *player) newAsk(s *slots.Search, event string, closed bool) slots.Ask {
	p.sc.numbers++
	us := s.FirstMs*1000 + p.rng.Int64N(s.SizeMs*1000)
	if p.rng.IntN(3) == 0 {
		us = s.FirstMs * 1000
	}
	a := slots.Ask{
		EventID: event, SlotID: fmt.Sprintf("slot%d", p.sc.numbers), RequestedUs: us,
		ElapsedMs: plan.Elapsed(us, s.SizeMs), Bits: p.rng.Uint32() >> 1,
	}
	if !closed {
		a.FirstMax = plan.FirstCapacity(s.Max, a.ElapsedMs, s.SizeMs)
	}
	return a
}

// hint puts into the search what is known of its windows.
func (p *player) hint(s *slots.Search) {
	s.FromMs = p.laterMs
	if p.forgetful {
		return
	}
	for _, full := range p.full {
		if full.FromMs <= s.FromMs && s.FromMs < full.ToMs {
			s.FromMs = full.ToMs
			s.Direct = p.rng.IntN(2) == 0
		}
	}
}

const playerTries = 60

func (p *player) search(ctx context.Context, s *slots.Search) {
	for range playerTries {
		p.hint(s)
		w := p.witness(ctx, s)
		found, err := p.engine.Assign(ctx, s)
		p.answers(s, found)
		switch kind := slots.KindOf(err); {
		case err != nil && (kind == slots.Passing || kind == slots.Duplicate || kind == slots.Held):
			continue
		case err != nil:
			p.sc.wrong("assign: %v", err)
			return
		}
		w.check(found)
		p.learn(found)
		return
	}
}

func (p *player) learn(found slots.Found) { p.full = append(p.full, found.Full...) }

// answers compares answers with those that were given before.
func (p *player) answers(s *slots.Search, found slots.Found) {
	if len(found.Answers) != len(s.Asks) {
		p.sc.wrong("%d answers to %d asks", len(found.Answers), len(s.Asks))
		return
	}
	for i, a := range found.Answers {
		if a.Status == slots.Unplaced {
			continue
		}
		p.answer(&s.Asks[i], a)
	}
}

func (p *player) answer(ask *slots.Ask, a slots.Answer) {
	sc, slot := p.sc, a.Slot
	slot.CreatedUs = 0
	g, given := sc.grants[ask.EventID]
	if given && g.slot != slot {
		sc.wrong("event %q was given %+v, then %+v", ask.EventID, g.slot, slot)
	}
	g.slot = slot
	if a.Status == slots.New {
		if g.by != "" && g.by != ask.SlotID {
			sc.wrong("event %q was new twice", ask.EventID)
		}
		g.by = ask.SlotID
		if slot.ID != ask.SlotID || slot.EventID != ask.EventID || slot.RequestedUs != ask.RequestedUs {
			sc.wrong("ask %+v was given the slot %+v", *ask, slot)
		}
	}
	sc.grants[ask.EventID] = g
}

// A witness knows what was so when a search began, and judges its outcome.
type witness struct {
	p       *player
	s       slots.Search
	caller  *caller
	began   int64 // step
	clockUs int64
	laterMs int64
	limit   int64
}

func (p *player) witness(ctx context.Context, s *slots.Search) *witness {
	m := p.sc.m
	return &witness{p: p, s: *s, caller: callerOf(ctx), began: m.step, clockUs: m.clockUs, laterMs: p.laterMs,
		limit: s.EndMs}
}

func (w *witness) check(found slots.Found) {
	for i, a := range found.Answers {
		ask := &w.s.Asks[i]
		switch {
		case a.Status == slots.Existing:
		case a.Status == slots.New && a.Slot.WindowMs == w.s.FirstMs:
		case a.Status == slots.New:
			w.checkPlace(ask, a.Slot)
		case found.Exhausted:
			w.checkPassed(ask, w.limit)
		default:
			w.p.sc.wrong("no slot for %q, and no reason: %+v", ask.EventID, found)
		}
	}
	w.checkFacts(found)
}

// checkPlace: windows before a slot's had no room, or were held by another.
func (w *witness) checkPlace(ask *slots.Ask, slot slots.Slot) {
	if slot.WindowMs < w.laterMs || slot.WindowMs >= w.s.EndMs {
		w.p.sc.wrong("event %q is in window %d, outside %d to %d", ask.EventID, slot.WindowMs, w.laterMs, w.s.EndMs)
	}
	// an earlier try of the same search
	if created := w.p.sc.m.events[ask.EventID]; created == nil || created.CreatedUs <= w.clockUs {
		return
	}
	w.checkPassed(ask, slot.WindowMs)
}

func (w *witness) checkPassed(ask *slots.Ask, end int64) {
	if ask.FirstMax > 0 && w.hadRoom(w.s.FirstMs, ask.FirstMax) {
		w.p.sc.wrong("event %q was not put into its first window, which had room", ask.EventID)
	}
	for at := w.laterMs; at < end; at += w.s.SizeMs {
		if w.hadRoom(at, w.s.Max) {
			w.p.sc.wrong("event %q was not put into window %d (%+v), which had room (up to %d; search %+v)", ask.EventID, at,
				w.p.sc.m.windows[slots.WindowKey{Series: w.s.Series, StartMs: at}], end, w.s)
		}
	}
}

// hadRoom reports whether the window had room all the time and could be locked:
// counts only grow. Windows that are held may be stepped over if that takes too long.
func (w *witness) hadRoom(at, limit int64) bool {
	v := w.p.sc.m.windows[slots.WindowKey{Series: w.s.Series, StartMs: at}]
	switch {
	case v == nil:
		v = &modelWindow{held: w.p.sc.m.gone[slots.WindowKey{Series: w.s.Series, StartMs: at}]}
	case v.count >= limit:
		return false
	}
	if w.p.sc.m.faults.Held == 0 {
		return true
	}
	if v.holder != nil && v.holder.caller != w.caller {
		return false
	}
	for other, last := range v.held {
		if other != w.caller && last >= w.began {
			return false
		}
	}
	return true
}

// checkFacts holds what the search says it has seen against the truth.
func (w *witness) checkFacts(found slots.Found) {
	sc, m := w.p.sc, w.p.sc.m
	window := func(at int64) *modelWindow { return m.windows[slots.WindowKey{Series: w.s.Series, StartMs: at}] }
	if v := window(w.s.FirstMs); found.FirstCount >= 0 && (v == nil || found.FirstCount > v.count) {
		sc.wrong("the first window was seen with %d, and is %+v", found.FirstCount, v)
	}
	for _, full := range found.Full {
		for at := full.FromMs; at < full.ToMs; at += w.s.SizeMs {
			if v := window(at); v == nil || v.count < w.s.Max {
				sc.wrong("window %d is said to be full (%+v), and is %+v", at, full, v)
			}
		}
	}
}

// seeds is how many scenarios are played.
func seeds() uint64 {
	if testing.Short() {
		return 500
	}
	return uint64(random.Times(1000, 3000))
}

func TestPropertiesHoldForEverySeed(t *testing.T) {
	for seed := range random.Seeds(t, seeds()) {
		if wrong := property(seed, theEngine()); len(wrong) > 0 {
			t.Fatalf("seed %d: %d problems, such as: %s", seed, len(wrong), wrong[0])
		}
	}
}

// TestScheduleRepeats: a seed gives the same run again.
func TestScheduleRepeats(t *testing.T) {
	run := func() string {
		sc := newScenario(7, theEngine())
		schedule := NewSchedule(7)
		for range 4 {
			schedule.Go(context.Background(), sc.newPlayer().play)
		}
		if err := schedule.Run(scenarioTurns); err != nil {
			t.Fatal(err)
		}
		all, err := AllSlots(context.Background(), sc.m)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(all, sc.m.Counts())
	}
	first := run()
	for range 5 {
		if again := run(); again != first {
			t.Fatalf("two runs of one seed differ:\n%s\n%s", first, again)
		}
	}
}
