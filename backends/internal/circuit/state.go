package circuit

// A State is what a Circuit says about calls.
type State uint8

// The states.
const (
	Closed   State = iota // they go through
	Open                  // they fail at once
	HalfOpen              // one goes through and the others fail
)

// String returns the state as a label.
func (s State) String() string { return [...]string{"closed", "open", "half-open"}[s] }

// A Result is what a call says about what is behind the circuit.
type Result uint8

// The results.
const (
	Nothing Result = iota
	Succeeded
	Failed
)

// A phase is a State, but for a half-open circuit it also reports whether its
// one probe is under way.
type phase uint8

const (
	closed phase = iota
	open
	free // half-open, and the next call is the probe
	probing
)

func (ph phase) state() State { return [...]State{Closed, Open, HalfOpen, HalfOpen}[ph] }

// A Period is a phase and the number of changes before it. A call remembers
// the one it began in: what it finds out later says nothing about another.
type Period uint64

func (p Period) phase() phase { return phase(p & 3) }

// State returns the state in the period.
func (p Period) State() State { return p.phase().state() }

// Refuses says that calls are not let through, not even as a probe.
func (p Period) Refuses() bool { return p.phase() == open || p.phase() == probing }

// A change waits to be reported.
type change struct {
	from, to State
	why      error
}
