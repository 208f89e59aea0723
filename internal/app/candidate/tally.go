package candidate

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/ratelimit/insight"
)

// Bounds of a tally.
const (
	minutes  = 24 * 60
	maxRules = 100  // of a minute
	maxNames = 2000 // in metrics
	others   = "(others)"
)

// counts are requests by what they were answered.
type counts struct {
	Requests      int64 `json:"requests"`
	RefusedOld    int64 `json:"refused_old"`
	RefusedNew    int64 `json:"refused_new"`
	NewlyRefused  int64 `json:"newly_refused"`
	NewlyAdmitted int64 `json:"newly_admitted"`
}

func (c *counts) add(o counts) {
	c.Requests += o.Requests
	c.RefusedOld += o.RefusedOld
	c.RefusedNew += o.RefusedNew
	c.NewlyRefused += o.NewlyRefused
	c.NewlyAdmitted += o.NewlyAdmitted
}

// A minute has the counts of one minute; rules are those that refused something.
type minute struct {
	number int64
	counts
	rules map[string]*counts
}

// A tally is what has come of rules on trial in the last day.
type tally struct {
	since time.Time
	keys  *insight.Watch // those that are newly refused

	mu      sync.Mutex
	minutes [minutes]minute
	names   map[string]bool // of rules, in metrics
}

func newTally() *tally {
	return &tally{since: time.Now(), keys: insight.NewWatch(), names: map[string]bool{}}
}

// label returns what metrics call a rule.
func (t *tally) label(rule string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.names[rule] {
		if len(t.names) >= maxNames {
			return others
		}
		t.names[rule] = true
	}
	return rule
}

// add adds the answers to a request.
func (t *tally) add(j *job, rule string, now time.Time) {
	c := counts{Requests: 1}
	switch refused := j.resp.OverLimit; {
	case refused && j.refused:
		c.RefusedOld, c.RefusedNew = 1, 1
	case refused:
		c.RefusedNew, c.NewlyRefused = 1, 1
		t.newlyRefused(j, now)
	case j.refused:
		c.RefusedOld, c.NewlyAdmitted = 1, 1
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	number := now.Unix() / 60
	m := &t.minutes[number%minutes]
	if m.number != number {
		*m = minute{number: number}
	}
	m.counts.add(c)
	if c.RefusedOld+c.RefusedNew == 0 {
		return
	}
	of := m.rules[rule]
	if of == nil && len(m.rules) >= maxRules {
		rule = others
		of = m.rules[rule]
	}
	if of == nil {
		if m.rules == nil {
			m.rules = map[string]*counts{}
		}
		of = new(counts)
		m.rules[rule] = of
	}
	of.add(c)
}

func (t *tally) newlyRefused(j *job, now time.Time) {
	in := &j.resp.Inside
	if in.Limit == nil {
		return
	}
	at := int64(limit.InstantOf(now))
	if kept, _ := t.keys.Refuse(in.Rule, in.Key.Group, at); !kept {
		t.keys.AddRefused(&insight.Seen{Domain: j.req.Domain, Entries: j.req.Descriptors[in.Descriptor].Entries,
			Rule: in.Rule, Limit: in.Limit, Group: in.Key.Group, At: at})
	}
}

// A RuleRow is what a rule refused by the live rules, and by those on trial.
type RuleRow struct {
	Rule string `json:"rule"`
	counts
	Change int64 `json:"change"`
}

// A KeyRow is a key that is newly refused.
type KeyRow struct {
	Key          string `json:"key"`
	Rule         string `json:"rule"`
	Limit        string `json:"limit"`
	NewlyRefused int64  `json:"newly_refused"`
}

// keyMinutes is for how long keys are kept.
const keyMinutes = 15

// sum adds up the minutes since a time, and returns the keys newly refused most often in the last quarter of an hour.
func (t *tally) sum(since, now time.Time, top int) (total counts, rules []RuleRow, keys []KeyRow) {
	t.mu.Lock()
	by := map[string]*counts{}
	for i := range t.minutes {
		m := &t.minutes[i]
		if m.number < since.Unix()/60 || m.Requests == 0 {
			continue
		}
		total.add(m.counts)
		for rule, c := range m.rules {
			if by[rule] == nil {
				by[rule] = new(counts)
			}
			by[rule].add(*c)
		}
	}
	t.mu.Unlock()
	for rule, c := range by {
		rules = append(rules, RuleRow{rule, *c, c.RefusedNew - c.RefusedOld})
	}
	slices.SortFunc(rules, func(a, b RuleRow) int {
		return cmp.Or(cmp.Compare(b.Change, a.Change), cmp.Compare(a.Rule, b.Rule))
	})
	window := min(max(int(now.Sub(since)/time.Minute), 1), keyMinutes)
	stats, _ := t.keys.Refused(int64(limit.InstantOf(now)), window, top)
	for _, s := range stats {
		keys = append(keys, KeyRow{s.Name, s.Rule, s.Limit.String(), s.Figure})
	}
	return total, rules, keys
}
