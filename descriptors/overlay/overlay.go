package overlay

import (
	"crypto/sha256"
	"fmt"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/descriptors/rulefile"
)

// An Entry says what becomes of the rules that it matches.
type Entry = rulefile.OverlayEntry

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

// Load reads the entries of all sources, in order. It returns every problem; if
// one of them is more than a warning, the overlay is nil.
func Load(sources []rulefile.Source) (*Overlay, []descriptors.Problem) {
	entries, problems, ok := rulefile.ReadOverlay(sources)
	if !ok {
		return nil, problems
	}
	return New(entries), problems
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
			list = append(list, warning(e, "", "the entry has no effect: no limit of a domain %q has a path %q",
				e.Domain, e.Rule))
		}
	}
	return list
}

func warning(e *Entry, path, format string, args ...any) descriptors.Problem {
	return descriptors.Problem{File: e.Place.File, Line: e.Place.Line, Col: e.Place.Col, Path: path,
		Message: fmt.Sprintf(format, args...), Warning: true}
}
