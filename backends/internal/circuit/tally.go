package circuit

// A tally is what the last calls were.
type tally struct {
	inRow    int    // failures since the last success
	failures int    // among last
	last     []bool // which were failures, a ring
	at       int    // the oldest
}

func (t *tally) reset(window int) {
	if len(t.last) != window {
		t.last = make([]bool, window)
	}
	clear(t.last)
	t.inRow, t.failures, t.at = 0, 0, 0
}

func (t *tally) add(failure bool) {
	if t.last[t.at] {
		t.failures--
	}
	t.last[t.at] = failure
	t.at = (t.at + 1) % len(t.last)
	if failure {
		t.inRow++
		t.failures++
	} else {
		t.inRow = 0
	}
}

func (t *tally) share() float64 { return float64(t.failures) / float64(len(t.last)) }
