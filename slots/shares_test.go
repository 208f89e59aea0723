package slots

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestAConfigLeavesWaitersToOthers(t *testing.T) {
	s := newShares(8, 0)
	var busy []*share
	for i := range 7 {
		h, ok := s.join("busy")
		if ok != (i < 6) {
			t.Errorf("waiter %d of 8 of one config: %v, want 6", i+1, ok)
		}
		busy = append(busy, h)
	}
	busy[6].leave()
	for i := range 3 {
		if _, ok := s.join("other"); ok != (i < 2) {
			t.Errorf("waiter %d of another config beside 6 of 8: %v, want 2", i+1, ok)
		}
	}
	for _, h := range busy[:6] {
		h.leave()
	}
	if len(s.configs) != 1 || s.all != 3 {
		t.Errorf("%d configs, %d waiters are left, want 1 and 3", len(s.configs), s.all)
	}
}

// Two configs whose searches wait leave a connection to a third one, and what one of them has more than its part goes
// to the other.
func TestConfigsLeaveConnectionsToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShares(100, 8)
		running := map[string]int{}
		begin := func(name string) *share {
			h, _ := s.join(name)
			go func() {
				h.begin()
				s.mu.Lock()
				running[name]++
				s.mu.Unlock()
			}()
			synctest.Wait()
			return h
		}
		var a, b *share
		for range 20 {
			a = begin("a")
		}
		if running["a"] != 6 {
			t.Errorf("%d searches of one config with 8 connections, want 6", running["a"])
		}
		for range 20 {
			b = begin("b")
		}
		if running["b"] != 3 { // its part, though no connection is left then
			t.Errorf("%d searches of a second config, want 3", running["b"])
		}
		for range 3 { // of the first one, which end
			running["a"]--
			a.end()
		}
		synctest.Wait()
		if running["a"]+running["b"] != 7 {
			t.Errorf("searches that run: %v, want 7 together", running)
		}
		begin("c")
		if running["c"] != 1 {
			t.Error("a third config waits")
		}
		for range 50 {
			for h, name := range map[*share]string{a: "a", b: "b"} {
				if running[name] > 0 {
					running[name]--
					h.end()
					synctest.Wait()
				}
			}
		}
		if len(s.queued) != 0 || running["a"]+running["b"] != 0 || s.running != 1 {
			t.Errorf("%d configs wait, %v run", len(s.queued), running)
		}
	})
}

// A holding store fails where a transaction would hold a config.
type holding struct {
	Store
	begun func()
}

func (h holding) BeginActive(context.Context, string) (Tx, Config, error) {
	h.begun()
	return nil, Config{}, errors.New("it is held")
}

// An event that is placed in turn has a connection like a search of its config.
func TestAnEventInTurnIsASearchOfItsConfig(t *testing.T) {
	var s *Scheduler
	running := 0
	s = upkeepOf(holding{begun: func() { running = s.shares.running }}, new(bytes.Buffer))
	s.shares = newShares(8, 4)
	if _, err := s.placeInTurn(t.Context(), Request{EventID: "a", ConfigName: "held", At: time.Now()}); err == nil {
		t.Error("it has a slot")
	}
	if running != 1 || s.shares.running != 0 || len(s.shares.configs) != 0 {
		t.Errorf("%d searches meanwhile, %d of %d configs after it", running, s.shares.running, len(s.shares.configs))
	}
}
