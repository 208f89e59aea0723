package overlay

import (
	"crypto/sha256"
	"fmt"
	"time"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/limit"
)

// Bounds of an overlay.
const (
	MaxEntries = 1000
	MaxPattern = 4096 // bytes
)

// An Entry says what becomes of the rules that it matches. Fields with their zero value
// change nothing.
type Entry struct {
	Place descriptors.Place
	// Domain and Rule are patterns of the rule's domain and of its path, as /rlconfig
	// shows them: "key_value.key_value". A * stands for any text.
	Domain, Rule string

	// Algorithm counts against the limit. A token bucket admits as many units per
	// window as the limit says.
	Algorithm limit.Algorithm
	// Window is the limit's window; Multiplier makes it so many times as long.
	Window     time.Duration
	Multiplier int64
	// Calendar says whether windows are those of the calendar, in Zone; nil leaves that
	// as it is.
	Calendar *bool
	Zone     *time.Location
	// Burst is that of a token bucket.
	Burst int64
	// Overflow is what is taken of a cost that has no room, and MaxDebt how far debt
	// goes; OverflowDefault leaves both as they are.
	Overflow descriptors.Overflow
	MaxDebt  int64
	// LocalShare is how many units a replica may take ahead, or limit.AutoShare.
	LocalShare int64
	// MaxKeys is how many values of the rule have counters of their own.
	MaxKeys int64
	// Reserve has requests reserve units of all limits of the rule; nil leaves that as it is.
	Reserve *descriptors.ReserveSpec

	OnBackendError descriptors.FailurePolicy
	OnOverload     descriptors.FailurePolicy
}

// An Overlay is entries in order: of two that match a rule and say the same thing, the
// later one wins. It is immutable; nil is one without entries.
type Overlay struct {
	entries []Entry
	sum     []byte
}

// New returns an overlay of entries.
func New(entries []Entry) *Overlay {
	h := sha256.New()
	for i := range entries {
		e := entries[i]
		calendar := "as it is"
		if e.Calendar != nil {
			calendar = fmt.Sprint(*e.Calendar, e.Zone)
		}
		reserve := ""
		if e.Reserve != nil {
			reserve = fmt.Sprintf("%#v", e.Reserve.Reserve)
		}
		e.Place, e.Calendar, e.Zone, e.Reserve = descriptors.Place{}, nil, nil, nil // a pointer differs each time
		fmt.Fprintf(h, "%#v %s %s\n", e, calendar, reserve)
	}
	return &Overlay{entries: entries, sum: h.Sum(nil)}
}

// Sum identifies what the entries say, wherever they are written.
func (o *Overlay) Sum() []byte {
	if o == nil {
		return nil
	}
	return o.sum
}

// A Result is a domain under an overlay.
type Result struct {
	Domain *descriptors.DomainSpec
	// Warnings are about entries that could not be laid over a rule, which stays as it
	// was.
	Warnings []descriptors.Problem
	// Changed says that Domain differs from what was sent.
	Changed bool

	used []bool // by entry
}

// Unused warns of entries that matched no rule of any domain.
func (o *Overlay) Unused(results []Result) []descriptors.Problem {
	if o == nil {
		return nil
	}
	used := make([]bool, len(o.entries))
	for _, r := range results {
		for i, u := range r.used {
			used[i] = used[i] || u
		}
	}
	var list []descriptors.Problem
	for i := range o.entries {
		if !used[i] {
			e := &o.entries[i]
			list = append(list, e.warning("", "the entry has no effect: no limit of a domain %q has a path %q",
				e.Domain, e.Rule))
		}
	}
	return list
}

func (e *Entry) warning(path, format string, args ...any) descriptors.Problem {
	return descriptors.Problem{File: e.Place.File, Line: e.Place.Line, Col: e.Place.Col, Path: path,
		Message: fmt.Sprintf(format, args...), Warning: true}
}
