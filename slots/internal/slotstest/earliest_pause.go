package slotstest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/slots"
	"github.com/headgate-rls/headgate/test/random"
)

const (
	pauseCallers = 6
	pauseRoom    = 1000
	pauseSlow    = 15 * time.Millisecond // that a lock is held, at most
)

// RunPause pauses a config under load while somebody holds the window that all want:
// once the pause is acknowledged there is no further slot, whichever node is asked and
// whatever it was waiting for.
func RunPause(t *testing.T, h Harness) {
	db := h.Fresh(t)
	store := db.Open(t)
	tries := random.Times(20, 1000)
	for i, engine := range h.engines(store) {
		t.Run(engine, func(t *testing.T) {
			f := &fixture{Harness: h, db: db, store: store, engine: engine, prefix: fmt.Sprint("pause", i)}
			p := &pauser{f: f, slow: db.Open(t), nodes: f.nodes(t, 3, slots.Settings{})}
			for n := range tries {
				p.try(t, n)
			}
			t.Logf("%d tries: %d slots before the pause, %d callers refused by it, %d slots after it", tries, p.before,
				p.refused, p.after)
			if p.refused == 0 || p.before == 0 {
				t.Error("the pause never came while callers were waiting")
			}
		})
	}
}

type pauser struct {
	f                      *fixture
	slow                   slots.Store // of who holds windows
	nodes                  []*slots.Scheduler
	before, refused, after int
}

func (p *pauser) try(t *testing.T, n int) {
	f, s := p.f, p.f.series(1000)
	admin := n % len(p.nodes)
	f.config(t, p.nodes[admin], pauseRoom, s.SizeMs)
	at := time.UnixMilli(earliestDay + int64(n)*s.SizeMs)
	base := n * (pauseCallers + 1)
	for _, node := range p.nodes { // the window is there, and every node knows the config
		_, err := persist(limited(t), node, f.request(base, at))
		must(t, err, "assign")
	}
	var all sync.WaitGroup
	all.Go(func() { p.hold(t, s, at.UnixMilli()) })
	results := make([]error, pauseCallers)
	events := make([]string, pauseCallers)
	for i := range results {
		events[i] = f.event(base + 1 + i)
		all.Go(func() {
			time.Sleep(time.Duration(rand.Int64N(int64(pauseSlow))))
			_, results[i] = p.nodes[i%len(p.nodes)].Assign(limited(t), f.request(base+1+i, at))
		})
	}
	time.Sleep(time.Duration(rand.Int64N(int64(pauseSlow))))
	f.config(t, p.nodes[admin], 0, s.SizeMs)
	acknowledged := p.placed(t, events)
	all.Wait()
	late := slices.DeleteFunc(p.placed(t, events), func(e string) bool { return slices.Contains(acknowledged, e) })
	p.before, p.after = p.before+len(acknowledged), p.after+len(late)
	if len(late) > 0 {
		t.Errorf("try %d: %d of %d events got a slot after the pause was acknowledged", n, len(late), pauseCallers)
	}
	for i, err := range results {
		if err != nil && !errors.Is(err, slots.ErrPaused) {
			t.Errorf("try %d: caller %d: %v", n, i, err)
		}
		if err != nil {
			p.refused++
		}
	}
}

// hold locks the window for a moment, as somebody does whose connection is slow.
func (p *pauser) hold(t *testing.T, s slots.Series, at int64) {
	tx, err := p.slow.Begin(limited(t), "")
	if err != nil {
		t.Errorf("begin: %v", err)
		return
	}
	defer tx.Rollback()
	if _, _, err := tx.Lock(limited(t), s, at, pauseRoom); err != nil && slots.KindOf(err) != slots.Held {
		t.Errorf("lock: %v", err)
	}
	time.Sleep(time.Duration(rand.Int64N(int64(pauseSlow))))
}

// placed are the events that have a slot.
func (p *pauser) placed(t *testing.T, events []string) (have []string) {
	found, err := p.f.store.Find(limited(t), events)
	must(t, err, "find")
	for _, s := range found {
		have = append(have, s.EventID)
	}
	return have
}
