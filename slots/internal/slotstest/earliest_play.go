package slotstest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/slots"
	"github.com/headgate-rls/headgate/test/random"
)

// EnvEarliestRuns is how many random sequences RunEarliest plays on each engine.
const EnvEarliestRuns = "HEADGATE_SLOTS_EARLIEST_RUNS"

const (
	earliestSteps    = 150
	earliestFailures = 5                // after which there is no need for more
	earliestShrink   = 10 * time.Second // to make a sequence that fails shorter
)

var earliestSizes = []int64{500, 1000, 1500, 2000, 3500}

// alignMs is a multiple of all sizes.
const alignMs = 42_000

// earliestDay is far from now: slots of what is past may be treated otherwise.
var earliestDay = floor(time.Date(2101, 3, 9, 12, 0, 0, 0, time.UTC).UnixMilli(), alignMs)

// RunEarliest plays random sequences of events, changes of configs, purges and restarts
// on two nodes, one call at a time, and compares each answer with a plain map of
// what is scheduled: every event gets the earliest window with room.
func RunEarliest(t *testing.T, h Harness) {
	db := h.Fresh(t)
	store := db.Open(t)
	runs := uint64(random.Times(2, 15))
	if h.Serial { // nothing goes over a network
		runs *= 2
	}
	if text := os.Getenv(EnvEarliestRuns); text != "" {
		if _, err := fmt.Sscan(text, &runs); err != nil {
			t.Fatalf("%s=%q: want a number", EnvEarliestRuns, text)
		}
	}
	for _, engine := range h.engines(store) {
		t.Run(engine, func(t *testing.T) {
			p := &earliestPlayer{f: &fixture{Harness: h, db: db, store: store, engine: engine}, t: t}
			failed := 0
			for s := range random.Seeds(t, runs) {
				steps := earliestSequence(s)
				if wrong := p.play(steps); wrong != "" {
					steps, wrong = p.shrink(steps, wrong)
					t.Errorf("seed %d: %s\nafter\n  %s", s, wrong, strings.Join(p.story(steps), "\n  "))
					failed++
				}
				if failed == earliestFailures {
					break
				}
			}
		})
	}
}

// A step is one call. Which one depends on what is there when it is made, so that
// a sequence stays one when steps are taken out.
type step struct {
	kind    string
	a, b, c uint64 // a: the node
}

// earliestKinds are the calls with how often each is drawn. All but the first
// two are left out of some sequences, so that one fault does not hide the others.
var earliestKinds = []struct {
	kind   string
	weight int
}{
	{"assign", 60}, {"batch", 12},
	{"repeat", 5}, {"limit", 8}, {"size", 8}, {"pause", 3}, {"scope", 3}, {"backlog", 1},
	{"drop windows", 4}, {"purge", 3}, {"restart", 3}, {"flush", 2}, {"reconcile", 3}, {"background", 1},
}

func earliestSequence(s uint64) []step {
	rng := rand.New(rand.NewPCG(s, 0xea51))
	var kinds []string
	for i, k := range earliestKinds {
		if i >= 2 && rng.IntN(2) == 0 {
			continue
		}
		for range k.weight {
			kinds = append(kinds, k.kind)
		}
	}
	nodes := 1 + rng.Uint64N(2)
	steps := make([]step, earliestSteps)
	if rng.IntN(3) == 0 {
		steps[0].kind = "pooled" // both configs have one scope from the start
	}
	for i := range steps {
		if steps[i].kind != "" {
			continue
		}
		steps[i] = step{kinds[rng.IntN(len(kinds))], rng.Uint64() % nodes, rng.Uint64(), rng.Uint64()}
	}
	return steps
}

// An earliestPlayer plays sequences, each under names of its own.
type earliestPlayer struct {
	f      *fixture
	t      *testing.T
	plays  int
	prefix string
	nodes  [2]*slots.Scheduler
	stores [2]slots.Store
	model  *earliest
	done   []string // what was called

	numbers int               // of events
	changed map[string]int    // by config: the node that took its last change
	resized map[string]bool   // by scope: the last change of a mixed scope was a size
	last    map[string]string // by scope: the config that was changed last
}

// play returns what was wrong, or "".
func (p *earliestPlayer) play(steps []step) (wrong string) {
	p.plays++
	p.prefix = fmt.Sprintf("%s-%s-%d-", p.f.Name, p.f.engine, p.plays)
	p.model, p.done, p.numbers = newEarliest(), nil, 0
	p.changed, p.resized, p.last = map[string]int{}, map[string]bool{}, map[string]string{}
	if err := p.dropWindows(); err != nil { // of plays before
		return err.Error()
	}
	for i := range p.nodes {
		if p.stores[i] == nil {
			p.restart(i)
		}
		p.nodes[i] = p.f.scheduler(p.t, p.stores[i], slots.Settings{})
	}
	first := slots.NewConfig{Max: 2, SizeMs: 1000}
	if len(steps) > 0 && steps[0].kind == "pooled" {
		first.Options.Scope = p.prefix + "pool"
	}
	for _, name := range []string{"a", "b"} {
		first.Name = p.prefix + name
		if wrong := p.put(0, first); wrong != "" {
			return wrong
		}
	}
	for _, s := range steps {
		if wrong := p.step(s); wrong != "" {
			return wrong
		}
	}
	return ""
}

// story plays the steps once more and returns what was called.
func (p *earliestPlayer) story(steps []step) []string {
	p.play(steps)
	return p.done
}

// shrink takes steps out as long as something stays wrong.
func (p *earliestPlayer) shrink(steps []step, wrong string) ([]step, string) {
	enough := time.Now().Add(earliestShrink)
	for n := len(steps) / 2; n > 0; n /= 2 {
		for i := 0; i+n <= len(steps) && time.Now().Before(enough); {
			fewer := slices.Concat(steps[:i], steps[i+n:])
			if still := p.play(fewer); still != "" {
				steps, wrong = fewer, still
				continue
			}
			i += n
		}
	}
	return steps, wrong
}

func (p *earliestPlayer) note(format string, args ...any) {
	p.done = append(p.done, strings.ReplaceAll(fmt.Sprintf(format, args...), p.prefix, ""))
}

func (p *earliestPlayer) step(s step) string {
	node := int(s.a)
	switch s.kind {
	case "assign":
		return p.assign(node, s, 1)
	case "batch":
		return p.assign(node, s, 2+int(s.c>>32%30))
	case "backlog":
		return p.assign(node, s, 600)
	case "repeat":
		return p.repeat(node, s)
	case "limit", "size", "pause", "scope":
		return p.change(node, s)
	case "restart":
		p.note("restart node %d", node)
		p.restart(node)
		return ""
	}
	return p.upkeep(node, s)
}

// restart replaces a node by one with connections of its own that knows nothing.
func (p *earliestPlayer) restart(node int) {
	if before := p.stores[node]; before != nil {
		must(p.t, before.Close(), "close the store")
	}
	p.stores[node] = p.f.db.Open(p.t)
	p.nodes[node] = p.f.scheduler(p.t, p.stores[node], slots.Settings{})
}

// config picks one that may be used now.
func (p *earliestPlayer) config(s step) (string, bool) {
	name := p.prefix + string(rune('a'+s.b%2))
	scope := scopeOf(p.model.configs[name])
	return name, !p.model.mixed(scope) || p.resized[scope] && p.last[scope] == name
}

// instant is one that many ask for, mostly.
func (s step) instant() time.Time {
	ms := earliestDay + int64(s.c%4)*5000
	if s.c>>8%3 == 0 {
		ms += int64(s.c >> 16 % 20_000)
	}
	return time.UnixMilli(ms).Add(time.Duration(s.c>>40%3) * 400 * time.Microsecond)
}

func (p *earliestPlayer) assign(node int, s step, n int) string {
	name, usable := p.config(s)
	if !usable {
		return ""
	}
	rs := make([]slots.Request, n)
	for i := range rs {
		p.numbers++
		rs[i] = slots.Request{EventID: fmt.Sprint(p.prefix, p.numbers), ConfigName: name, At: s.instant()}
	}
	p.note("node %d assigns %d events of %s at %s", node, n, name, shown(s.instant().UnixMicro()))
	out, wrong := p.ask(node, rs)
	if wrong != "" || out == nil {
		return wrong
	}
	// Those of one batch may get their windows in any order.
	slices.SortFunc(out, func(a, b slots.BatchResult) int { return int(a.WindowMs - b.WindowMs) })
	us := s.instant().UnixMicro()
	p.note("  got %s", shownWindows(out))
	for _, b := range out {
		want := p.model.window(name, us)
		if b.WindowMs != want || b.Replayed {
			return fmt.Sprintf("got window %s (replayed: %t), the earliest with room is %s", shown(b.WindowMs*1000), b.Replayed,
				shown(want*1000))
		}
		if size := p.model.configs[name].SizeMs; b.SizeMs != size || b.ScheduledMs < want || b.ScheduledMs >= want+size ||
			b.ScheduledMs*1000 < us {
			return fmt.Sprintf("got a slot that is wrong: %+v", b.Slot)
		}
		p.model.place(b.EventID, name, b.WindowMs, b.ScheduledMs)
	}
	return ""
}

// followWithin is more than a node needs to follow a change that another took.
const followWithin = 10 * time.Second

// ask has a node assign the events; nil if the config is paused, as it should be.
// Only a node that has not heard of a config, or of the end of a pause, may say so
// for a moment: nothing is written meanwhile.
func (p *earliestPlayer) ask(node int, rs []slots.Request) ([]slots.BatchResult, string) {
	name := rs[0].ConfigName
	paused := p.model.configs[name].Max == 0
	for enough := time.Now().Add(followWithin); ; time.Sleep(20 * time.Millisecond) {
		out := p.nodes[node].AssignBatch(limited(p.t), rs)
		i := slices.IndexFunc(out, func(b slots.BatchResult) bool { return b.Err != nil })
		switch {
		case i < 0 && paused:
			return nil, "got a slot of a config that is paused"
		case i < 0:
			return out, ""
		case paused && errors.Is(out[i].Err, slots.ErrPaused):
			return nil, ""
		}
		behind := p.changed[name] != node && (errors.Is(out[i].Err, slots.ErrPaused) ||
			errors.Is(out[i].Err, slots.ErrConfigNotFound))
		if !behind || time.Now().After(enough) {
			return nil, fmt.Sprintf("event %d of %d was refused: %v", i+1, len(rs), out[i].Err)
		}
	}
}

// repeat asks again for an event that has a slot, with another time and config.
func (p *earliestPlayer) repeat(node int, s step) string {
	name, _ := p.config(s)
	event := fmt.Sprint(p.prefix, 1+s.c%uint64(max(p.numbers, 1)))
	before, ok := p.model.events[event]
	if !ok {
		return ""
	}
	p.note("node %d assigns event %s again, of %s", node, event, name)
	res, err := p.nodes[node].Assign(limited(p.t), slots.Request{EventID: event, ConfigName: name, At: s.instant()})
	if err != nil || !res.Replayed || res.WindowMs != before.windowMs || res.ScheduledMs != before.scheduleMs {
		return fmt.Sprintf("got %+v, %v; it has %+v", res, err, before)
	}
	return ""
}

// change changes one thing about a config.
func (p *earliestPlayer) change(node int, s step) string {
	name := p.prefix + string(rune('a'+s.b%2))
	c := p.model.configs[name]
	switch s.kind {
	case "limit":
		c.Max = 1 + int64(s.c%5)
	case "pause":
		c.Max = 0
	case "size":
		c.SizeMs = earliestSizes[s.c%uint64(len(earliestSizes))]
	case "scope":
		c.Options.Scope = []string{"", p.prefix + "pool"}[s.c%2]
	}
	return p.put(node, c)
}

func (p *earliestPlayer) put(node int, c slots.NewConfig) string {
	p.note("node %d puts %s: %d in %v, scope %q", node, c.Name, c.Max, time.Duration(c.SizeMs)*time.Millisecond,
		c.Options.Scope)
	_, err := p.nodes[node].PutConfig(limited(p.t), c)
	before, had := p.model.configs[c.Name]
	if had && scopeOf(before) != scopeOf(c) && errors.Is(err, slots.ErrScopeInUse) {
		p.note("  refused")
		if p.model.empty(scopeOf(before)) {
			return "a change of the scope was refused though there are no slots"
		}
		return ""
	}
	if err != nil {
		return fmt.Sprintf("put a config: %v", err)
	}
	p.model.put(c)
	p.changed[c.Name] = node
	scope := scopeOf(c)
	p.last[scope], p.resized[scope] = c.Name, had && before.SizeMs != c.SizeMs
	return ""
}

// upkeep is what changes no answer, but for events that were purged.
func (p *earliestPlayer) upkeep(node int, s step) string {
	switch s.kind {
	case "drop windows":
		p.note("drop all windows")
		return text(p.dropWindows())
	case "purge":
		before := earliestDay + int64(1+s.c%4)*alignMs
		p.note("purge windows and slots before %s", shown(before*1000))
		p.model.purge(before)
		return text(p.purge(before))
	case "flush":
		p.note("flush")
		return text(p.nodes[node].Flush(limited(p.t)))
	case "reconcile":
		p.note("reconcile")
		return p.reconcile(s.c%2 == 0)
	case "background":
		p.note("node %d does background work", node)
		p.background()
	}
	return ""
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// farUs is after everything.
var farUs = time.Date(8000, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()

// dropWindows drops the rows of all windows, whether they are past or not.
func (p *earliestPlayer) dropWindows() error {
	return p.windowsBefore(farUs / 1000)
}

// windowsBefore purges as a Scheduler does: rows, and then what nodes know of them.
func (p *earliestPlayer) windowsBefore(ms int64) error {
	err := emptied(func() (int64, error) { return p.f.store.PurgeWindows(limited(p.t), ms, farUs, 1000) })
	if err == nil {
		_, err = p.f.store.Flush(limited(p.t))
	}
	// Nodes look at the generation every now and then: nobody waits for a purge to
	// reach them.
	for _, n := range p.nodes {
		if n != nil && err == nil {
			err = n.Flush(limited(p.t))
		}
	}
	return err
}

func (p *earliestPlayer) purge(beforeMs int64) error {
	if err := p.windowsBefore(beforeMs); err != nil {
		return err
	}
	err := emptied(func() (int64, error) { return p.f.store.PurgeSlots(limited(p.t), beforeMs*1000, 1000) })
	return err
}

func emptied(drop func() (int64, error)) error {
	for {
		if n, err := drop(); err != nil || n == 0 {
			return err
		}
	}
}

// reconcile finds no counter that differs, but where windows of several sizes count
// each other's slots only as of when they are made.
func (p *earliestPlayer) reconcile(repair bool) string {
	var after *slots.WindowKey
	for {
		drifts, next, err := p.f.store.Drift(limited(p.t), 0, farUs/1000, after, 500, repair)
		if err != nil {
			return fmt.Sprintf("reconcile: %v", err)
		}
		for _, d := range drifts {
			if strings.HasPrefix(d.Scope, p.prefix) && !p.model.mixed(d.Scope) {
				return fmt.Sprintf("reconcile says that window %s of %d ms in %s counts %d and has %d slots",
					shown(d.StartMs*1000), d.SizeMs, strings.TrimPrefix(d.Scope, p.prefix), d.Count, d.Slots)
			}
		}
		after = next
		if next == nil {
			return ""
		}
	}
}

// background has a node whose clock shows the day of the events do its work for a
// moment.
func (p *earliestPlayer) background() {
	offset := time.Until(time.UnixMilli(earliestDay))
	s := p.f.scheduler(p.t, p.f.store, slots.Settings{
		Now: func() time.Time { return time.Now().Add(offset) }, Ahead: 30 * time.Second,
	})
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	s.Run(ctx)
}

// shownWindows lists windows with how many events each got.
func shownWindows(sorted []slots.BatchResult) string {
	var list []string
	for i := 0; i < len(sorted); {
		n := 1
		for i+n < len(sorted) && sorted[i+n].WindowMs == sorted[i].WindowMs {
			n++
		}
		list = append(list, fmt.Sprintf("%s×%d", shown(sorted[i].WindowMs*1000), n))
		i += n
	}
	if more := len(list) - 12; more > 0 {
		list = slices.Concat(list[:6], []string{fmt.Sprintf("… %d more …", more)}, list[len(list)-6:])
	}
	return strings.Join(list, ", ")
}

// shown is an instant as seconds of the day of the events.
func shown(us int64) string { return fmt.Sprintf("%+.4fs", float64(us-earliestDay*1000)/1e6) }
