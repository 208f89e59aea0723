package backendtest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/headgate-rls/headgate/limit"
)

// A model is a store as package limit defines it: limit.Decide on a map.
type model struct {
	states map[limit.Key]*modelState
	latest limit.Instant // of all requests so far
}

type modelState struct {
	limit.State
	writer  *limit.Limit  // who wrote the state
	ends    limit.Instant // when a store may drop it
	history []string      // what happened to it, for messages
}

func newModel() *model { return &model{states: map[limit.Key]*modelState{}} }

func (m *model) get(k limit.Key) *modelState {
	if m.states[k] == nil {
		m.states[k] = &modelState{}
	}
	return m.states[k]
}

// take decides req at instant now and records it.
func (m *model) take(req *limit.Request, now limit.Instant) limit.Verdict {
	m.latest = max(m.latest, now)
	states := make([]limit.State, len(req.Ops))
	for i := range req.Ops {
		states[i] = m.get(req.Ops[i].Key).State
	}
	var v limit.Verdict
	limit.Decide(states, req, now, &v, nil)
	seen := map[limit.Key]bool{}
	for i := range req.Ops {
		if op := &req.Ops[i]; !seen[op.Key] {
			seen[op.Key] = true
			m.get(op.Key).set(states[i], op.Limit)
		}
		s := m.get(req.Ops[i].Key)
		s.history = append(s.history, fmt.Sprintf("at %d %s -> %+v", now, describeOp(&req.Ops[i]), v.Outcomes[i]))
	}
	return v
}

func (s *modelState) set(next limit.State, l *limit.Limit) {
	// Leases change in place.
	if next.Leases == nil && next.At == s.At && next.N == s.N && next.M == s.M && slices.Equal(next.Log, s.Log) {
		return
	}
	s.State, s.writer, s.ends = next, l, l.Ends(next)
}

// over reports whether a store may have dropped s.
func (s *modelState) over(now limit.Instant) bool { return s.writer != nil && s.ends <= now }

// earliest returns how far back a request may go: not to before the end of a
// state that some store may already have dropped.
func (m *model) earliest() limit.Instant {
	var t limit.Instant
	for _, s := range m.states {
		if s.over(m.latest) {
			t = max(t, s.ends)
		}
	}
	return t
}

// differ says what got has that want has not, or "".
func differ(got, want *limit.Verdict) string {
	switch {
	case got.Err != nil:
		return fmt.Sprintf("error %v", got.Err)
	case got.At != want.At:
		return fmt.Sprintf("At %d, want %d", got.At, want.At)
	case got.Admitted != want.Admitted:
		return fmt.Sprintf("Admitted %v, want %v: %+v, want %+v", got.Admitted, want.Admitted, got.Outcomes, want.Outcomes)
	case len(got.Outcomes) != len(want.Outcomes):
		return fmt.Sprintf("%d outcomes, want %d", len(got.Outcomes), len(want.Outcomes))
	}
	for i := range got.Outcomes {
		if got.Outcomes[i] != want.Outcomes[i] {
			return fmt.Sprintf("op %d:\n     %+v\nwant %+v", i, got.Outcomes[i], want.Outcomes[i])
		}
	}
	return ""
}

func describe(req *limit.Request) string {
	var s strings.Builder
	fmt.Fprintf(&s, "request at %d:", req.At)
	for i := range req.Ops {
		fmt.Fprintf(&s, "\n  %d: %q %s", i, req.Ops[i].Key, describeOp(&req.Ops[i]))
		if i == 8 {
			fmt.Fprintf(&s, "\n  and %d more", len(req.Ops)-9)
			break
		}
	}
	return s.String()
}

func describeOp(op *limit.Op) string {
	s := fmt.Sprintf("cost %d of %v", op.Cost, op.Limit)
	if op.Limit != nil && op.Limit.Is(limit.Leased) {
		s += fmt.Sprintf(" for %v, hold %v, holder %q, ending %d", op.Limit.Window(), op.Limit.Spec().Hold,
			op.Holder, op.Ending)
	}
	if op.Shadow {
		s += " shadow"
	}
	if op.Each {
		s += " each"
	}
	if op.Alternative() {
		s += fmt.Sprintf(" choice %v", op.Choice)
	}
	if op.AsOf != 0 {
		s += fmt.Sprintf(" as of %d", op.AsOf)
	}
	return s
}

// past renders the last few ops under req's keys.
func (m *model) past(req *limit.Request) string {
	var s strings.Builder
	for i := range req.Ops {
		k := req.Ops[i].Key
		st := m.get(k)
		fmt.Fprintf(&s, "\nafterwards the model's state under %q is %+v", k, st.State)
		if st.Leases != nil {
			fmt.Fprintf(&s, " with %+v", *st.Leases)
		}
		s.WriteString("\nlast ops there:")
		for _, line := range st.history[max(0, len(st.history)-6):] {
			s.WriteString("\n  " + line)
		}
	}
	return s.String()
}
