package slots

import "testing"

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
