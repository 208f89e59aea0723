package rediscache

import (
	"fmt"
	"slices"
	"testing"

	"github.com/headgate-rls/headgate/notify/pgstore"
)

// TestPendingKeepsTheNewestCount: one for each user, the largest of the newest window of the newest
// configuration, in whatever order counts come.
func TestPendingKeepsTheNewestCount(t *testing.T) {
	rising := []pgstore.Count{
		{UserID: "u", Count: 9, StartUs: 5, Version: 1},
		{UserID: "u", Count: 3, StartUs: 6, Version: 1},
		{UserID: "u", Count: 4, StartUs: 6, Version: 1},
		{UserID: "u", Count: 1, StartUs: 4, Version: 2},
	}
	for i, newest := range rising {
		for _, older := range rising[:i] {
			for _, order := range [][]pgstore.Count{{older, newest}, {newest, older}} {
				p := newPending()
				for _, c := range order {
					p.add(c)
				}
				if counts, _ := p.take(); len(counts) != 1 || counts[0] != newest {
					t.Errorf("of %v it keeps %v", order, counts)
				}
			}
		}
	}
}

// TestPendingHasABound: users that are there already may stay, others find no room.
func TestPendingHasABound(t *testing.T) {
	p := newPending()
	for i := range maxPending {
		p.add(pgstore.Count{UserID: fmt.Sprint(i), Count: 1})
		p.addRemoval(fmt.Sprint(i))
	}
	p.add(pgstore.Count{UserID: "one more", Count: 1})
	p.add(pgstore.Count{UserID: "7", Count: 2})
	p.addRemoval("one more")
	p.addRemoval("7")
	counts, removals := p.take()
	if len(counts) != maxPending || len(removals) != maxPending || slices.Contains(removals, "one more") {
		t.Errorf("%d counts and %d removals wait, want %d", len(counts), len(removals), maxPending)
	}
	for _, c := range counts {
		if c.UserID == "7" && c.Count != 2 {
			t.Errorf("the count of a user who was there is %d", c.Count)
		}
	}
	if n, m := p.size(); n != 0 || m != 0 {
		t.Errorf("%d and %d are left", n, m)
	}
}
