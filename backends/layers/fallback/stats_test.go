package fallback

// Stats are figures for an operator. All but the first only grow.
type Stats struct {
	Pending int
	// Overflow counts admissions that were not remembered, because MaxKeys
	// were.
	Overflow uint64
	// Units counts what keys were charged, Short units for which there was no room.
	Units, Short uint64
	// Refused counts keys that the primary cannot keep at all.
	Refused uint64
}

// Stats returns the present figures.
func (l *Backend) Stats() Stats {
	return Stats{
		Pending: l.Pending(), Overflow: l.overflow.Load(),
		Units: l.units.Load(), Short: l.short.Load(), Refused: l.refused.Load(),
	}
}
