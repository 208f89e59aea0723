package descriptors

import (
	"cmp"
	"slices"
	"time"

	"github.com/headgate-rls/headgate/internal/kit/units"
	"github.com/headgate-rls/headgate/limit"
)

// DefaultReserveTTL is after how long a reservation is lost that nobody settles, if its
// rule does not say.
const DefaultReserveTTL = 10 * time.Minute

const (
	minReserveTTL = time.Second
	maxReserveTTL = 24 * time.Hour

	// ReserveGrace is how long a reservation is kept that is lost, for those who end it:
	// then nobody has.
	ReserveGrace = time.Minute
)

// A Reserving says how many units a request reserves.
type Reserving uint8

// The ways to reserve.
const (
	// ReserveAuto: the smaller of what the request estimates and what the key's requests
	// have cost of late, but no less than Reserve.Min.
	ReserveAuto Reserving = iota + 1
	// ReserveEstimate: what the request estimates.
	ReserveEstimate
	// ReserveFixed: always Reserve.Default.
	ReserveFixed
)

// A ReserveEnd says what becomes of the units that a request has reserved of whose cost
// nobody says anything.
type ReserveEnd uint8

// The ends. The zero value is the rule's default.
const (
	EndDefault ReserveEnd = iota
	EndCharge             // they count as used
	EndFree               // they are given back
)

// A ReserveFull says what becomes of a rule's limits when a request that has reserved units ends with the status 429:
// the provider says that its own budget is used up.
type ReserveFull uint8

// The answers. The zero value is FullFree.
const (
	fullDefault ReserveFull = iota
	// FullFree: what was reserved is given back, as for other requests that have cost nothing.
	FullFree
	// FullExhaust: what is left of the limit with the shortest window is taken, so that no other request goes there
	// before it has room again.
	FullExhaust
)

// A ReserveMatch says how the end of a request finds its reservation.
type ReserveMatch uint8

// The matches. The zero value is MatchToken.
const (
	matchDefault ReserveMatch = iota
	// MatchToken: by a token that the answer has.
	MatchToken
	// MatchOldest: it ends the oldest reservation of the same descriptor.
	MatchOldest
)

// A ReserveAsk says which hits of a descriptor are a question that reserves, with MatchOldest. All others are a report.
type ReserveAsk uint8

// The questions. The zero value is AskZero.
const (
	askDefault ReserveAsk = iota
	// AskZero: 0 hits ask. A descriptor without hits, which counts as 1, is charged as under other rules.
	AskZero
	// AskOne: a descriptor without hits asks, and so does one with 1.
	AskOne
	// AskEstimate: hits are what the request may cost, and 0 that this is not known. Only negative hits and calls that
	// are reports by their method report.
	AskEstimate
)

// A ReserveReport says what the hits of a report are, with MatchOldest.
type ReserveReport uint8

// The reports. The zero value is ReportCost.
const (
	reportDefault ReserveReport = iota
	// ReportCost: what the request has cost.
	ReportCost
	// ReportDifference: what it has cost beyond its estimate; negative hits say how much less.
	ReportDifference
)

var (
	askNames       = []string{AskZero: "zero", AskOne: "one", AskEstimate: "estimate"}
	reportNames    = []string{ReportCost: "cost", ReportDifference: "difference"}
	reservingNames = []string{ReserveAuto: "auto", ReserveEstimate: "estimate"}
	fullNames      = []string{FullFree: "free", FullExhaust: "exhaust"}
	endNames       = []string{EndCharge: "charge", EndFree: "free"}
	matchNames     = []string{MatchToken: "token", MatchOldest: "oldest"}
)

// Reservings and the functions after it return the names of the choices in the order of their values, from 1 on.
// ReserveFixed has none: rules write a number.
func Reservings() []string     { return slices.Clone(reservingNames[1:]) }
func ReserveEnds() []string    { return slices.Clone(endNames[1:]) }
func ReserveMatches() []string { return slices.Clone(matchNames[1:]) }
func ReserveAsks() []string    { return slices.Clone(askNames[1:]) }
func ReserveReports() []string { return slices.Clone(reportNames[1:]) }
func ReserveFulls() []string   { return slices.Clone(fullNames[1:]) }

// A Reserve has requests whose cost is known afterwards charge units when they ask. They
// are corrected when the cost is known.
type Reserve struct {
	By Reserving
	// Default is what is reserved if nothing else is known; Max is reserved at most, and Min
	// at least by ReserveAuto: other ways have none.
	Default, Min, Max int64
	// TTL is after how long a reservation is lost that nobody settles or renews.
	TTL time.Duration
	// OnLost is for a reservation whose request has an end of which nobody knows, or that
	// does not say the cost. On5xx is for one whose request failed without saying it.
	OnLost, On5xx ReserveEnd
	On429         ReserveFull
	Match         ReserveMatch
	Ask           ReserveAsk
	Report        ReserveReport
}

// KeptFor is how long stores keep a reservation.
func (r *Reserve) KeptFor() time.Duration { return r.TTL + ReserveGrace }

// A ReserveSpec is what a source says of reservations. Zero fields mean the default; By is
// never zero.
type ReserveSpec struct {
	Reserve
	Broken bool

	Place  Place
	Fields Fields
}

// String renders r as rules do.
func (r *Reserve) String() string {
	var l line
	switch {
	case r.By == ReserveFixed:
		l.add("amount %d", r.Default)
	default:
		l.add("amount %s default %d", reservingNames[r.By], r.Default)
		l.addIf(r.By == ReserveAuto, " min %d", r.Min)
		l.add(" max %d", r.Max)
	}
	l.add(" ttl %s on_lost %s", units.Format(r.TTL), endNames[r.OnLost])
	l.addIf(r.Match == MatchToken, " on_5xx %s", endNames[r.On5xx])
	l.addIf(r.On429 > FullFree, " on_429 %s", fullNames[r.On429])
	l.add(" match %s", matchNames[r.Match])
	l.addIf(r.Ask > AskZero, " ask %s", askNames[r.Ask])
	l.addIf(r.Report > ReportCost, " report %s", reportNames[r.Report])
	return l.String()
}

// reserve compiles what a rule says of reservations, after its limits.
func (s *spot) reserve(body *Body, t *Terms) {
	spec, one := body.Reserve, body.Reserve != nil
	for i := range body.Limits {
		l := body.Limits[i].Reserve
		switch {
		case l == nil:
			continue
		case one:
			s.errorf("reserve", "reserve is for all limits of a rule, or for some of them, not both")
			return
		case spec != nil && spec.Reserve != l.Reserve:
			s.part(l.Place, l.Fields).errorf("", "all limits of a rule that reserve must reserve alike")
			return
		}
		spec = l
	}
	if spec == nil {
		return
	}
	at := s.part(spec.Place, spec.Fields)
	if at.isBroken(spec.Broken) {
		return
	}
	r := spec.Reserve
	for i := range t.Limits {
		if l := &t.Limits[i]; one || slices.ContainsFunc(body.Limits, func(o LimitSpec) bool {
			return o.Reserve != nil && o.Name == l.Name && (o.Name != "" || len(body.Limits) == 1)
		}) {
			l.Reserved = true
		}
	}
	if s.b.Clean(func() { at.reserving(&r, t) }) {
		t.Reserve = &r
	}
}

// reserving checks r and fills in defaults.
func (s *spot) reserving(r *Reserve, t *Terms) {
	s.word("match", int(r.Match), len(matchNames))
	s.word("on_lost", int(r.OnLost), len(endNames))
	s.word("on_5xx", int(r.On5xx), len(endNames))
	s.word("on_429", int(r.On429), len(fullNames))
	if r.Match == matchDefault {
		r.Match = MatchToken
	}
	oldest := r.Match == MatchOldest
	s.asking(r)
	switch {
	case r.OnLost == EndDefault && oldest:
		r.OnLost = EndFree // a request that failed reports nothing
	case r.OnLost == EndDefault:
		r.OnLost = EndCharge
	}
	if r.On5xx != EndDefault && oldest {
		s.errorf("on_5xx", "on_5xx needs match: token: with match: oldest nobody says how a request has ended")
	} else if r.On5xx == EndDefault {
		r.On5xx = EndFree
	}
	if r.On429 != fullDefault && oldest {
		s.errorf("on_429", "on_429 needs match: token: with match: oldest nobody says how a request has ended")
	}
	r.On429 = max(r.On429, FullFree)
	r.TTL = cmp.Or(r.TTL, DefaultReserveTTL)
	if r.TTL < minReserveTTL || r.TTL > maxReserveTTL || r.TTL%time.Millisecond != 0 {
		s.errorf("ttl", "ttl %s is not whole milliseconds from %s to %s", units.Format(r.TTL), units.Format(minReserveTTL),
			units.Format(maxReserveTTL))
	}
	s.reserved(r, t)
	if t.Overflow == OverflowRefuse {
		s.errorf("", "reserve and overflow: refuse contradict each other: a request that has cost more than it reserved "+
			"owes the rest (overflow: debt, the default with reserve)")
	}
}

// asking checks what tells questions and reports apart, and fills in defaults.
func (s *spot) asking(r *Reserve) {
	s.word("ask", int(r.Ask), len(askNames))
	s.word("report", int(r.Report), len(reportNames))
	oldest := r.Match == MatchOldest
	switch {
	case !oldest && r.Ask != askDefault:
		s.errorf("ask", "ask needs match: oldest: with match: token every question reserves, and its end brings the token "+
			"back")
	case !oldest && r.Report != reportDefault:
		s.errorf("report", "report needs match: oldest: with match: token an end says the cost")
	}
	r.Ask, r.Report = max(r.Ask, AskZero), max(r.Report, ReportCost)
	switch {
	case r.Report != ReportDifference:
	case r.Ask != AskEstimate || r.By != ReserveEstimate:
		s.errorf("report", "report: difference needs ask: estimate and amount: estimate: it is the difference to what the "+
			"question has estimated, all of which must be reserved")
	case r.Max != 0:
		s.errorf("max", "max and report: difference contradict each other: all of an estimate is reserved, or the request "+
			"is refused")
	}
}

// reserved checks how much is reserved, and of which limits.
func (s *spot) reserved(r *Reserve, t *Terms) {
	room, of := int64(limit.MaxUnits), ""
	for i := range t.Limits {
		l := &t.Limits[i]
		if !l.Reserved {
			continue
		}
		if l.Limit.TakesAhead() {
			s.errorf("", "reserve and local_share contradict each other: units that a replica has taken ahead are not settled")
		}
		if of == "" || l.Limit.Capacity() < room {
			room, of = l.Limit.Capacity(), l.Limit.String()
		}
	}
	if of == "" {
		if len(t.Limits) == 0 {
			s.errorf("", "reserve needs a limit of units per time in the same rule, of which units are reserved")
		}
		return
	}
	switch r.By {
	case ReserveFixed:
		r.Max = r.Default
	case ReserveAuto:
		s.auto(r)
	}
	r.Max = cmp.Or(r.Max, room)
	switch {
	case r.By != ReserveFixed && r.Default == 0:
		s.errorf("", "reserve needs a default: what a request reserves of which nothing is known")
	case !s.between("max", r.Max, 1, limit.MaxUnits), !s.between("default", r.Default, 1, limit.MaxUnits):
	case r.Default > r.Max:
		s.errorf("default", "default %d is more than max, %d", r.Default, r.Max)
	case r.By != ReserveAuto && r.Min != 0:
		s.errorf("min", "min needs amount: auto: it is what requests reserve at least, whatever they have cost of late")
	case r.By == ReserveAuto && !s.between("min", r.Min, 1, limit.MaxUnits):
	case r.Min > r.Default:
		s.errorf("min", "min %d is more than default, %d", r.Min, r.Default)
	case r.Max > room:
		s.errorf("max", "a request that reserves %d never passes: the limit has room for %d (%s)", r.Max, room, of)
	}
}

// auto fills in the floor of what is reserved by what requests have cost, and warns if nothing bounds it above.
func (s *spot) auto(r *Reserve) {
	r.Min = cmp.Or(r.Min, max(r.Default/4, 1))
	if r.Max == 0 && r.Default > 0 {
		s.warnf("amount", "amount: auto without max: one expensive request has its key reserve up to the whole limit; write "+
			"max, the most that a request may cost")
	}
}
