package slotstest

import "testing"

func TestEveryEventGetsTheEarliestWindowWithRoom(t *testing.T) {
	for name, harness := range kinds() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			RunEarliest(t, harness(t))
		})
	}
}

func TestPauseIsInForceWhenItIsAcknowledged(t *testing.T) {
	for name, harness := range kinds() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			RunPause(t, harness(t))
		})
	}
}
