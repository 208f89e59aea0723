package ratelimit

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

const askRules = `
domain: d
descriptors:
  - key: zero
    reserve: {amount: auto, default: 16384, max: 100000, match: oldest}
    limits: [{name: tpm, algorithm: fixed_window, limit: 1000000, window: 1h}]
  - key: one
    reserve: {amount: auto, default: 16384, max: 100000, match: oldest, ask: one}
    limits: [{name: tpm, algorithm: fixed_window, limit: 1000000, window: 1h}]
  - key: estimate
    reserve: {amount: estimate, default: 16384, max: 100000, match: oldest, ask: estimate}
    limits: [{name: tpm, algorithm: fixed_window, limit: 1000000, window: 1h}]
  - key: difference
    reserve: {amount: estimate, default: 100, match: oldest, ask: estimate, report: difference}
    limits: [{name: tpm, algorithm: fixed_window, limit: 1000, window: 1h}]
  - key: token
    reserve: {amount: 100}
    limits: [{name: tpm, algorithm: fixed_window, limit: 1000, window: 1h}]
  - key: backend
    quota_mode: true
    reserve: {amount: 100, match: oldest, ask: one}
    limits: [{name: tpm, algorithm: fixed_window, limit: 1000, window: 1h}]
  - key: model
    reserve: {amount: 10, match: oldest, ask: one}
    limits: [{name: tpm, algorithm: fixed_window, limit: 1000, window: 1h}]
`

// setupAsk begins a second after a window has: leases say to the millisecond when they were granted.
func setupAsk(t *testing.T) *harness {
	h := setup(t, askRules)
	h.now = h.now.Add(time.Second)
	return h
}

// TestWhichHitsAsk: of 80 questions at once a budget of 1,000,000 lets 61 pass that reserve 16,384 each, if the rule
// says how its gateway asks. Otherwise all pass, and none reserves.
func TestWhichHitsAsk(t *testing.T) {
	for _, c := range []struct {
		key    string
		ask    func(Descriptor) Descriptor
		passes int
	}{
		{"zero", func(d Descriptor) Descriptor { return d.withHits(0) }, 61},
		{"zero", func(d Descriptor) Descriptor { return d }, 80},
		{"one", func(d Descriptor) Descriptor { return d }, 61},
		{"one", func(d Descriptor) Descriptor { return d.withHits(1) }, 61},
		{"estimate", func(d Descriptor) Descriptor { return d }, 61},
		{"estimate", func(d Descriptor) Descriptor { return d.withHits(0) }, 61},
		{"estimate", func(d Descriptor) Descriptor { return d.withHits(50000) }, 20},
		{"estimate", func(d Descriptor) Descriptor { return d.withHits(5000000) }, 10}, // max
	} {
		h := setupAsk(t)
		passes := 0
		for range 80 {
			if r := h.ask(c.ask(desc(c.key + "=u"))); r.Err != nil {
				t.Fatal(r.Err)
			} else if !r.OverLimit {
				passes++
			}
		}
		if passes != c.passes {
			t.Errorf("%s: %d pass, want %d", c.key, passes, c.passes)
		}
	}
}

// TestReportsAfterEachQuestion: the hits that are no question settle.
func TestReportsAfterEachQuestion(t *testing.T) {
	h := setupAsk(t)
	h.ask(desc("one=u"))
	h.wantLeft("one=u", "983616")
	h.ask(desc("one=u").withHits(700))
	h.wantLeft("one=u", "999300")
	h.ask(desc("one=u").withHits(1)) // another question: it reserves by default, as calls are not that cheap for long
	h.ask(desc("one=u").withHits(0)) // it cost nothing
	h.wantLeft("one=u", "999300")
	h.wantEvents("one", "reserved 2, settled 2")
}

// TestReportsOfDifferences: a report says what was used beyond the estimate, and negative hits how much less.
func TestReportsOfDifferences(t *testing.T) {
	h := setupAsk(t)
	h.ask(desc("difference=u").withHits(300))
	h.wantLeft("difference=u", "700")
	h.ask(desc("difference=u").refund(120))
	h.wantLeft("difference=u", "820")
	h.ask(desc("difference=u").withHits(300))
	h.ask(desc("difference=u").refund(1000)) // no more than was reserved
	h.wantLeft("difference=u", "820")
	h.ask(desc("difference=u")) // no estimate: the default
	resp := new(Response)
	h.Decide(t.Context(), []*Request{{Domain: "d", Purpose: Reports,
		Descriptors: []Descriptor{desc("difference=u").withHits(50)}}}, []*Response{resp})
	h.wantLeft("difference=u", "670")
	h.wantEvents("difference", "reserved 3, settled 3")
	if r := h.ask(desc("difference=u").withHits(5000)); !r.OverLimit {
		t.Errorf("more than the limit is %s", summary(r))
	}
	h.ask(desc("difference=u").withHits(300))
	h.now = h.now.Add(time.Hour) // the window ends meanwhile
	h.ask(desc("difference=u").refund(200))
	h.wantLeft("difference=u", "1000") // and nothing of the next one is handed out
}

// TestCandidatesOfWhichOneReports: a gateway that asks for all backends and reports for one leaves no reservation.
func TestCandidatesOfWhichOneReports(t *testing.T) {
	h := setupAsk(t)
	list := []Descriptor{desc("backend=a"), desc("backend=b"), desc("backend=c")}
	for range 5 {
		h.want(h.ask(list...), "OK: ok/900 ok/900 ok/900")
		h.ask(desc("backend=b").withHits(30))
		h.wantLeft("backend=a", "1000")
		h.wantLeft("backend=c", "1000")
		h.be.states = newModel().states
	}
	h.wantEvents("backend", "reserved 15, settled 15")
}

// TestReportsOfBothSettleBoth: of two descriptors that are both reported, each gets its own cost.
func TestReportsOfBothSettleBoth(t *testing.T) {
	h := setupAsk(t)
	h.ask(desc("backend=a"), desc("model=m"))
	h.ask(desc("backend=a").withHits(7), desc("model=m").withHits(8))
	h.wantLeft("backend=a", "993")
	h.wantLeft("model=m", "992")
	h.wantEvents("backend", "reserved 1, settled 1")
	h.wantEvents("model", "reserved 1, settled 1")
	// A report does not end a reservation that another call has made alone.
	h.ask(desc("model=m"))
	h.ask(desc("backend=a"), desc("model=n"))
	h.ask(desc("backend=a").withHits(7))
	h.wantLeft("model=m", "982")
	h.wantLeft("model=n", "990") // it may be that of another call
	h.ask(desc("backend=a"))
	h.ask(desc("model=m").withHits(3)) // it was asked for with backend=a long ago
	h.wantLeft("model=m", "989")
	h.wantLeft("backend=a", "886")
}

// TestAReportEndsNobodyElsesReservation: a key whose calls ask for it together with different others, such as one for
// each user, ends its own reservation only.
func TestAReportEndsNobodyElsesReservation(t *testing.T) {
	for _, others := range [][2]string{{"model=x", "model=y"}, {"backend=b", "backend=c"}} {
		h := setupAsk(t)
		h.ask(desc("backend=a"), desc(others[0]))
		h.ask(desc("backend=a"), desc(others[1]))
		before := h.units(others[1])
		h.ask(desc("backend=a").withHits(7), desc(others[0]).withHits(8))
		h.ask(desc("backend=a").withHits(7))
		h.wantLeft("backend=a", "986")
		h.wantLeft(others[0], "992")
		h.wantLeft(others[1], before)
	}
}

// TestTogetherIsBounded: what was asked for together takes a bounded memory, whatever keys clients make up.
func TestTogetherIsBounded(t *testing.T) {
	h := setupAsk(t)
	for i := range 40_000 {
		h.ask(desc(fmt.Sprintf("backend=a%d", i)), desc("model=m"))
		h.ask(desc("model=m").withHits(1_000)) // and so that there is room
	}
	table := &h.rules.Load().together
	if n := len(table.of); table.bytes > maxTogether || n*togetherSize > maxTogether {
		t.Errorf("%d rows of %d bytes", n, table.bytes)
	}
}

// TestRulesThatReserveNothingSaySo: ten calls in a row that reserve nothing are a warning, once, and a line of those
// who ask; a call that reserves ends that.
func TestRulesThatReserveNothingSaySo(t *testing.T) {
	for _, c := range []struct {
		rule   string
		call   Descriptor
		why    string
		events string
		right  *Descriptor // reserves
	}{
		{"zero", desc("zero=u"), "ask: one", "unasked 20", ptr(desc("zero=u").withHits(0))},
		{"zero", desc("zero=u").withHits(500), "nothing asks before them with 0 hits", "unreserved 20", nil},
		{"one", desc("one=u").withHits(500), "nothing asks before them", "unreserved 20", ptr(desc("one=u"))},
		{"token", desc("token=u").withHits(0), "match: oldest", "unasked 20", ptr(desc("token=u"))},
	} {
		h := setupAsk(t)
		warned := func() int { return strings.Count(h.log.String(), "reserves nothing") }
		for i := range 20 {
			if n := len(h.NeverReserving()); n != min(i/10, 1) {
				t.Fatalf("%s: %d rules after %d calls", c.rule, n, i)
			}
			h.ask(c.call)
		}
		h.wantEvents(c.rule, c.events)
		list := h.NeverReserving()
		if len(list) != 1 || list[0].Rule != c.rule || !strings.Contains(list[0].Why, c.why) || list[0].Calls != 20 {
			t.Errorf("%s: %+v, want %q", c.rule, list, c.why)
		}
		if n := warned(); n != 1 || !strings.Contains(h.log.String(), c.why) {
			t.Errorf("%s: %d warnings:\n%s", c.rule, n, h.log)
		}
		if c.right == nil {
			continue
		}
		h.ask(*c.right)
		if len(h.NeverReserving()) != 0 {
			t.Errorf("%s: after a question: %+v", c.rule, h.NeverReserving())
		}
	}
}

func ptr[T any](v T) *T { return &v }
