package breaker

// Stats are figures for an operator. All but the first two only grow.
type Stats struct {
	State    State
	InFlight int64 // Takes under way
	// Failed counts Takes that spoke against the store, Late those of them
	// whose verdicts came after the deadline.
	Failed, Late uint64
	// Refused counts Takes that were failed because the breaker was not
	// closed, Overloaded those because of MaxInFlight.
	Refused, Overloaded uint64
	// Opened counts changes to Open, Probes the calls that were let through
	// to find out whether the store is back.
	Opened, Probes uint64
}

// Stats returns the present figures.
func (b *Backend) Stats() Stats {
	counts := b.circuit.Counts()
	return Stats{
		State: b.State(), InFlight: b.inFlight.Load(),
		Failed: counts.Failed, Late: b.late.Load(),
		Refused: b.refused.Load(), Overloaded: b.overloaded.Load(),
		Opened: counts.Opened, Probes: counts.Probes,
	}
}
