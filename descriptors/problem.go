package descriptors

import (
	"cmp"
	"fmt"
	"sort"
	"strconv"
	"strings"
)

// A Problem is something wrong with the rules, and where.
type Problem struct {
	File string `json:"file"`
	Line int    `json:"line,omitempty"`
	Col  int    `json:"col,omitempty"`
	// Path is the place in the tree of rules: "shop/tenant_acme*/path".
	Path    string `json:"path,omitempty"`
	Message string `json:"message"`
	// Warning: the rules work, but perhaps not as intended.
	Warning bool `json:"warning,omitempty"`
}

// String renders p as "file:line:col: message (at path)".
func (p Problem) String() string {
	var b strings.Builder
	b.WriteString(p.File)
	for _, n := range []int{p.Line, p.Col} {
		if n > 0 {
			b.WriteString(":" + strconv.Itoa(n))
		}
	}
	b.WriteString(": ")
	if p.Warning {
		b.WriteString("warning: ")
	}
	b.WriteString(p.Message)
	if p.Path != "" {
		b.WriteString(" (at " + p.Path + ")")
	}
	return b.String()
}

const maxProblems = 10_000

// Problems are what is wrong with the rules of one [Build], at most 10,000. The
// zero value has none.
type Problems struct {
	list   []Problem
	failed bool
}

// Add adds problems. Beyond 10,000 of them the last one says that there are more.
func (ps *Problems) Add(more ...Problem) {
	for _, p := range more {
		ps.failed = ps.failed || !p.Warning
		if len(ps.list) < maxProblems {
			ps.list = append(ps.list, p)
			continue
		}
		ps.list[maxProblems-1] = Problem{File: p.File, Warning: !ps.failed,
			Message: fmt.Sprintf("more than %d problems; the rest is not shown", maxProblems)}
	}
}

// Full reports whether problems that are added now are not shown.
func (ps *Problems) Full() bool { return len(ps.list) == maxProblems }

// Failed reports whether a problem is more than a warning.
func (ps *Problems) Failed() bool { return ps.failed }

// Clean reports whether f adds no problem that is more than a warning.
func (ps *Problems) Clean(f func()) bool {
	before := ps.failed
	ps.failed = false
	f()
	ok := !ps.failed
	ps.failed = ps.failed || before
	return ok
}

// Sorted sorts the problems by place and returns them.
func (ps *Problems) Sorted() []Problem {
	sort.SliceStable(ps.list, func(i, j int) bool {
		a, b := &ps.list[i], &ps.list[j]
		return cmp.Or(
			cmp.Compare(a.File, b.File),
			cmp.Compare(a.Line, b.Line),
			cmp.Compare(a.Col, b.Col),
			cmp.Compare(a.Message, b.Message),
		) < 0
	})
	return ps.list
}

// A Place is where a source of rules has something written. Problems name it.
type Place struct {
	File      string // or what else the source is called
	Line, Col int    // from 1; 0 if unknown
}
