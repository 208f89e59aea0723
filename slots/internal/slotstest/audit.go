package slotstest

import (
	"context"
	"fmt"

	"github.com/headgate-rls/headgate/slots"
	"github.com/headgate-rls/headgate/slots/plan"
)

// auditPage is how many rows are read at once.
const auditPage = 1000

// AllSlots returns all slots of the store, in the order of SlotsSince.
func AllSlots(ctx context.Context, store slots.Store) ([]slots.Slot, error) {
	return slotsAfter(ctx, store, slots.Position{CreatedUs: -1 << 50})
}

// slotsAfter returns the slots of the store after a position, in the same order.
func slotsAfter(ctx context.Context, store slots.Store, after slots.Position) ([]slots.Slot, error) {
	var all []slots.Slot
	for {
		page, err := store.SlotsSince(ctx, after, auditPage)
		if err != nil || len(page) == 0 {
			return all, err
		}
		all = append(all, page...)
		after = positionOf(page[len(page)-1])
	}
}

// AllWindows returns the counters of the series between two instants.
func AllWindows(ctx context.Context, store slots.Store, s slots.Series, fromMs, toMs int64) ([]slots.Window, error) {
	var all []slots.Window
	for fromMs < toMs {
		page, err := store.Windows(ctx, s, fromMs, toMs, auditPage)
		if err != nil || len(page) == 0 {
			return all, err
		}
		all = append(all, page...)
		fromMs = page[len(page)-1].StartMs + 1
	}
	return all, nil
}

// Audit compares the windows of a series, all of which have been under limits of
// at most max, with the slots of its scope, and returns what is wrong:
//
//   - the counter of a window is the number of slots in it, and at most max;
//   - each slot lies inside its window, which begins at a multiple of the size,
//     and not before its requested time;
//   - no event, and no slot id, is there twice.
func Audit(ctx context.Context, store slots.Store, s slots.Series, max int64) (wrong []string, err error) {
	all, err := AllSlots(ctx, store)
	if err != nil {
		return nil, err
	}
	return auditAmong(ctx, store, all, s, max)
}

// auditAmong is Audit where all slots of the series are known to be in the list.
func auditAmong(ctx context.Context, store slots.Store, all []slots.Slot, s slots.Series,
	max int64) (wrong []string, err error) {
	counts, mine := map[int64]int64{}, []slots.Slot{}
	from, to := int64(0), int64(0)
	for _, slot := range all {
		if slot.Series != s {
			continue
		}
		mine = append(mine, slot)
		if counts[slot.WindowMs]++; len(counts) == 1 {
			from, to = slot.WindowMs, slot.WindowMs+1
		}
		from, to = min(from, slot.WindowMs), maxOf(to, slot.WindowMs+1)
	}
	windows, err := AllWindows(ctx, store, s, from-100*s.SizeMs, to+100*s.SizeMs)
	if err != nil {
		return nil, err
	}
	wrong = append(auditSlots(mine), auditWindows(windows, counts, max)...)
	return wrong, nil
}

func maxOf(a, b int64) int64 { return max(a, b) } // where that name is a capacity

func auditWindows(windows []slots.Window, counts map[int64]int64, max int64) (wrong []string) {
	for _, w := range windows {
		if w.Count != counts[w.StartMs] {
			wrong = append(wrong, fmt.Sprintf("window %d counts %d and has %d slots", w.StartMs, w.Count, counts[w.StartMs]))
		}
		if w.Count > max {
			wrong = append(wrong, fmt.Sprintf("window %d counts %d of at most %d", w.StartMs, w.Count, max))
		}
		delete(counts, w.StartMs)
	}
	for at, n := range counts {
		wrong = append(wrong, fmt.Sprintf("window %d has %d slots and no counter", at, n))
	}
	return wrong
}

func auditSlots(all []slots.Slot) (wrong []string) {
	events, ids := map[string]bool{}, map[string]bool{}
	for _, s := range all {
		if events[s.EventID] || ids[s.ID] {
			wrong = append(wrong, fmt.Sprintf("event %q or its slot %q is there twice", s.EventID, s.ID))
		}
		events[s.EventID], ids[s.ID] = true, true
		wrong = append(wrong, auditSlot(s)...)
	}
	return wrong
}

func auditSlot(s slots.Slot) (wrong []string) {
	for text, bad := range map[string]bool{
		"is scheduled before it was requested": s.ScheduledMs*1000 < s.RequestedUs,
		"is scheduled outside its window":      s.ScheduledMs < s.WindowMs || s.ScheduledMs >= s.WindowMs+s.SizeMs,
		"is in a window off the grid":          s.WindowMs != plan.WindowStart(s.WindowMs*1000, s.SizeMs),
		"is in a window before its time":       s.WindowMs < plan.WindowStart(s.RequestedUs, s.SizeMs),
	} {
		if bad {
			wrong = append(wrong, fmt.Sprintf("event %q %s: %+v", s.EventID, text, s))
		}
	}
	return wrong
}
