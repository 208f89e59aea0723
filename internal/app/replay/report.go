package replay

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/headgate-rls/headgate/internal/kit/spell"
	"github.com/headgate-rls/headgate/limit"
)

// A Report is what a replay has found.
type Report struct {
	Compared bool          `json:"compared"` // with other rules, and not with what the lines say
	First    limit.Instant `json:"-"`
	Last     limit.Instant `json:"-"`

	Decided       int64 `json:"decided"`  // requests, with those of --warm
	Requests      int64 `json:"requests"` // that are reported
	Answered      int64 `json:"answered"` // of these the line says what was answered
	Unlimited     int64 `json:"unlimited"`
	RefusedOld    int64 `json:"refused_old"`
	RefusedNew    int64 `json:"refused_new"`
	NewlyRefused  int64 `json:"newly_refused"`
	NewlyAdmitted int64 `json:"newly_admitted"`

	Forms []FormRow `json:"forms"`           // of the files
	About []string  `json:"about,omitempty"` // what is odd about their lines

	Rules            []*RuleRow `json:"rules"`
	Keys             []*KeyRow  `json:"keys"`
	NewlyRefusedKeys int        `json:"newly_refused_keys"`
	KeysLeftOut      bool       `json:"keys_left_out,omitempty"` // there were more than could be counted

	Bad          int       `json:"bad"` // lines that could not be read
	BadLines     []BadLine `json:"bad_lines,omitempty"`
	Back         int       `json:"back"` // lines that were older than one that had been decided
	BackAt       string    `json:"back_at,omitempty"`
	Unmapped     int64     `json:"unmapped"` // lines that lack the values of all descriptors
	Undecided    int64     `json:"undecided"`
	UndecidedWhy string    `json:"undecided_why,omitempty"`
	Assumed      int64     `json:"assumed"`   // reservations whose cost no line has
	Forgotten    int64     `json:"forgotten"` // counters, for want of room

	before, after series // refusals
}

// A FormRow is a file and what its lines are.
type FormRow struct {
	File string `json:"file"`
	Form string `json:"form"`
}

// A RuleRow is how many requests a limit refused.
type RuleRow struct {
	Rule       string `json:"rule"`
	RefusedOld int64  `json:"refused_old"`
	RefusedNew int64  `json:"refused_new"`
	Change     int64  `json:"change"`
}

// A KeyRow is a key that is refused by the new rules where it was not before.
type KeyRow struct {
	Key          string        `json:"key"`
	Rule         string        `json:"rule"`
	NewlyRefused int64         `json:"newly_refused"`
	First        limit.Instant `json:"-"`
	// Peak is the most units that the key asked for in a window of the limit, or had in flight.
	Peak int64 `json:"peak"`
	// Figure says which figure of the limit LimitOld, LimitNew and WouldFitWith are: limit, or burst.
	Figure       string `json:"figure"`
	LimitOld     int64  `json:"limit_old,omitempty"`
	LimitNew     int64  `json:"limit_new"`
	WouldFitWith *int64 `json:"would_fit_with"` // nil: not known

	counter limit.Key
	limit   *limit.Limit
	used    series
}

// MarshalJSON adds the times.
func (r *Report) MarshalJSON() ([]byte, error) {
	type plain Report
	return json.Marshal(struct {
		From time.Time `json:"from"`
		To   time.Time `json:"to"`
		*plain
	}{r.First.Time(), r.Last.Time(), (*plain)(r)})
}

// MarshalJSON adds the time.
func (k *KeyRow) MarshalJSON() ([]byte, error) {
	type plain KeyRow
	return json.Marshal(struct {
		First time.Time `json:"first"`
		*plain
	}{k.First.Time(), (*plain)(k)})
}

// WriteText writes a report for people.
func WriteText(out io.Writer, r *Report) error {
	fmt.Fprintf(out, "%s from %s to %s\n", spell.Count(int(r.Requests), "request"), r.First.Time().Format(time.RFC3339),
		r.Last.Time().Format(time.RFC3339))
	fmt.Fprintf(out, "refused before %d (%s), after %d (%s): %d newly refused, %d newly admitted\n", r.RefusedOld,
		r.percent(r.RefusedOld), r.RefusedNew, r.percent(r.RefusedNew), r.NewlyRefused, r.NewlyAdmitted)
	for _, form := range r.ReadAs() {
		fmt.Fprintln(out, "read as "+form)
	}
	for _, note := range r.Notes() {
		fmt.Fprintln(out, "note: "+note)
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	if len(r.Rules) > 0 {
		fmt.Fprintln(w, "\nRULE\tREFUSED OLD\tREFUSED NEW\tCHANGE")
	}
	for _, row := range r.Rules {
		fmt.Fprintf(w, "%s\t%d\t%d\t%+d\n", plainText(row.Rule), row.RefusedOld, row.RefusedNew, row.Change)
	}
	if len(r.Keys) > 0 {
		fmt.Fprintln(w, "\nKEY\tRULE\tNEWLY REFUSED\tFIRST\tPEAK\tLIMIT\tWOULD FIT WITH")
	}
	for _, k := range r.Keys {
		fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%d\t%s\t%s\n", spell.Short(k.Key), plainText(k.Rule), k.NewlyRefused,
			k.First.Time().Format(time.RFC3339), k.Peak, k.Limits(), k.Fits())
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if more := r.NewlyRefusedKeys - len(r.Keys); more > 0 && len(r.Keys) > 0 {
		fmt.Fprintf(out, "and %s more; --top shows more of them\n", spell.Count(more, "key"))
	}
	return nil
}

// plainText keeps the bytes of names in rules from changing what a terminal shows.
func plainText(s string) string {
	quoted := strconv.Quote(s)
	if plain := quoted[1 : len(quoted)-1]; plain != s {
		return quoted
	}
	return s
}

// Limits describes the limit before and after.
func (k *KeyRow) Limits() string {
	text := fmt.Sprint(k.LimitNew)
	if k.LimitOld != 0 && k.LimitOld != k.LimitNew {
		text = fmt.Sprintf("%d → %d", k.LimitOld, k.LimitNew)
	}
	if k.Figure != "limit" {
		text = k.Figure + " " + text
	}
	return text
}

// Fits describes with which limit the key would not have been refused.
func (k *KeyRow) Fits() string {
	switch {
	case k.WouldFitWith == nil:
		return "not known"
	case k.Figure != "limit":
		return fmt.Sprintf("%s %d", k.Figure, *k.WouldFitWith)
	}
	return fmt.Sprint(*k.WouldFitWith)
}

func (r *Report) percent(n int64) string {
	if r.Requests == 0 {
		return "0 %"
	}
	return strconv.FormatFloat(math.Round(float64(n)/float64(r.Requests)*1e6)/1e4, 'f', -1, 64) + " %"
}

// about notes what the files are, and what is odd about their lines.
func (r *Report) about(in *input) {
	for _, f := range in.files {
		r.Forms = append(r.Forms, FormRow{f.name, f.form.name})
		if log, ok := f.parser.(*accessLog); ok {
			for _, note := range log.notes() {
				if !slices.Contains(r.About, note) {
					r.About = append(r.About, note)
				}
			}
		}
	}
}

// ReadAs describes what the files are: each form once.
func (r *Report) ReadAs() (list []string) {
	for i, f := range r.Forms {
		more := 0
		for j, other := range r.Forms {
			if other.Form != f.Form {
				continue
			}
			if j < i {
				more = -1
				break
			}
			more++
		}
		switch {
		case more == 1:
			list = append(list, fmt.Sprintf("%s: %s", f.Form, f.File))
		case more > 1:
			list = append(list, fmt.Sprintf("%s: %s and %d more", f.Form, f.File, more-1))
		}
	}
	return list
}

// Notes are what a reader must know about the figures.
func (r *Report) Notes() (notes []string) {
	note := func(there bool, format string, args ...any) {
		if there {
			notes = append(notes, fmt.Sprintf(format, args...))
		}
	}
	unknown := r.Requests - r.Answered
	note(!r.Compared && unknown > 0, "%s not say what was answered, and count as admitted before: --against names the "+
		"rules "+
		"before", lines(unknown, "does", "do"))
	notes = append(notes, r.About...)
	note(r.Unlimited > 0, "%s: no limit of the new rules applies", spell.Count(int(r.Unlimited), "request"))
	note(r.Unmapped > 0, "%s no values for a descriptor, and ask for nothing", lines(r.Unmapped, "has", "have"))
	note(r.Undecided > 0, "%s could not be decided: %s", spell.Count(int(r.Undecided), "request"), r.UndecidedWhy)
	note(r.Assumed > 0, "of %s no line says what the request has cost: it counts as the average of those "+
		"before, or else as the rules' on_lost says", spell.Count(int(r.Assumed), "reservation"))
	note(r.Back > 0, "%s older than one before (the first is %s), and counted as if made then: --reorder 1m puts them "+
		"in order",
		lines(int64(r.Back), "is", "are"), r.BackAt)
	note(r.Forgotten > 0, "%d counters were dropped for want of room, so the figures are not exact: raise --max-keys",
		r.Forgotten)
	note(r.KeysLeftOut, "there are more newly refused keys than --max-keys")
	for _, b := range r.BadLines {
		notes = append(notes, fmt.Sprint(b))
	}
	note(r.Bad > 0, "%s could not be read", spell.Count(r.Bad, "line"))
	return notes
}

func lines(n int64, one, more string) string {
	if n != 1 {
		one = more
	}
	return spell.Count(int(n), "line") + " " + one
}

// An Allowance is how much may be refused that was not before.
type Allowance struct {
	count int64
	part  float64 // of the requests
}

// ParseAllowance reads newly-refused=12 or newly-refused=0.1%.
func ParseAllowance(text string) (a Allowance, err error) {
	what, figure, _ := strings.Cut(text, "=")
	number, percent := strings.CutSuffix(figure, "%")
	f, err := strconv.ParseFloat(number, 64)
	switch {
	case what != "newly-refused" || err != nil || !(f >= 0) || percent && f > 100 || !percent && f != math.Trunc(f) ||
		f > 1e15:
		return a, fmt.Errorf("%q is not newly-refused=N or newly-refused=N%%, as in newly-refused=0.1%%", text)
	case percent:
		a.part = f / 100
	default:
		a.count = int64(f)
	}
	return a, nil
}

// Exceeded reports whether more of the requests is newly refused than allowed.
func (a Allowance) Exceeded(newlyRefused, requests int64) bool {
	return newlyRefused > a.count && float64(newlyRefused) > a.part*float64(requests)
}
