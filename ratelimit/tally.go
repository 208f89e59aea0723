package ratelimit

// A tally adds up what the calls of a slice count. Calls often have counters in
// common, and all cores write those: so each is written once per slice, not once
// per call.
type tally struct {
	list [8]struct {
		counter *HitCounter
		n       int64
	}
	used int
}

// add adds one to a counter, at the next flush at the latest.
func (t *tally) add(c *HitCounter) {
	for i := range t.used {
		if t.list[i].counter == c {
			t.list[i].n++
			return
		}
	}
	if t.used == len(t.list) {
		t.flush()
	}
	t.list[t.used].counter, t.list[t.used].n = c, 1
	t.used++
}

// flush writes the counters.
func (t *tally) flush() {
	for i := range t.used {
		(*t.list[i].counter).Count(t.list[i].n)
		t.list[i].counter = nil
	}
	t.used = 0
}
