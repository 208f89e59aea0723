package slotstest

import (
	"fmt"

	"github.com/headgate-rls/headgate/slots"
)

// naive is the rule in plain words: the first window if it has room for this
// event, else the earliest later one with room, up to the limit.
type naive struct {
	counts map[int64]int64
	slots  map[string]slots.Slot
}

func newNaive() *naive {
	return &naive{counts: map[int64]int64{}, slots: map[string]slots.Slot{}}
}

// assign returns what each ask of the search must get; limit is the end of the
// windows in reach.
func (n *naive) assign(s *slots.Search, limit int64) []slots.Answer {
	out := make([]slots.Answer, len(s.Asks))
	rest := []int{}
	for i := range s.Asks {
		if slot, ok := n.slots[s.Asks[i].EventID]; ok {
			out[i] = slots.Answer{Status: slots.Existing, Slot: slot}
		} else if a := &s.Asks[i]; n.counts[s.FirstMs] < a.FirstMax {
			out[i] = n.put(s, a, s.FirstMs)
		} else {
			rest = append(rest, i)
		}
	}
	for _, i := range rest {
		for at := s.FromMs; at < limit; at += s.SizeMs {
			if n.counts[at] < s.Max {
				out[i] = n.put(s, &s.Asks[i], at)
				break
			}
		}
	}
	return out
}

func (n *naive) put(s *slots.Search, a *slots.Ask, at int64) slots.Answer {
	slot := slots.Slot{
		ID: a.SlotID, EventID: a.EventID, Series: s.Series, RequestedUs: a.RequestedUs, WindowMs: at,
		ScheduledMs: s.ScheduledMs(a, at, n.counts[at]), ConfigID: s.ConfigID,
	}
	n.counts[at]++
	n.slots[a.EventID] = slot
	return slots.Answer{Status: slots.New, Slot: slot}
}

// compareAnswers returns what is not as it must be.
func compareAnswers(want []slots.Answer, found slots.Found) (wrong []string) {
	if len(found.Answers) != len(want) {
		return []string{fmt.Sprintf("%d answers, want %d", len(found.Answers), len(want))}
	}
	unplaced := false
	for i, a := range found.Answers {
		a.Slot.CreatedUs = 0
		if a != want[i] {
			wrong = append(wrong, fmt.Sprintf("answer %d: %+v, want %+v", i, a, want[i]))
		}
		unplaced = unplaced || want[i].Status == slots.Unplaced
	}
	if found.Exhausted != unplaced {
		wrong = append(wrong, fmt.Sprintf("exhausted: %v, want %v", found.Exhausted, unplaced))
	}
	return wrong
}
