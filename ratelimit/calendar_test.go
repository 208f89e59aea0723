package ratelimit

import (
	"testing"
	"time"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/limit"
)

// TestRulesDecideWhatAMonthIs: the service's default decides what a month is where rules do
// not say, and for a request's own limit.
func TestRulesDecideWhatAMonthIs(t *testing.T) {
	const rules = `
domain: d
descriptors:
- {key: any, rate_limit: {unit: month, requests_per_unit: 10}}
- {key: other, rate_limit: {unit: month, requests_per_unit: 7}}
- {key: never, rate_limit: {unit: month, requests_per_unit: 10, calendar: false}}
- {key: berlin, rate_limit: {unit: month, requests_per_unit: 10, calendar: true, time_zone: Europe/Berlin}}
- {key: year, rate_limit: {unit: year, requests_per_unit: 10}}
- {key: long, limits: [{algorithm: fixed_window, limit: 10, window: 30d}]}
- {key: debt, overflow: debt, rate_limit: {unit: month, requests_per_unit: 10}}
`
	for _, months := range []bool{false, true} {
		h := setup(t, rules, func(conf *Config) { conf.CalendarMonths, conf.Overflow = months, descriptors.OverflowDebt })
		for i, c := range []struct {
			calendar bool
			overflow limit.Overflow
		}{
			{months, map[bool]limit.Overflow{false: limit.Debt, true: limit.Saturate}[months]},
			{months, map[bool]limit.Overflow{false: limit.Debt, true: limit.Saturate}[months]},
			{false, limit.Debt}, {true, limit.Saturate}, {false, limit.Debt}, {false, limit.Debt}, {false, limit.Debt},
		} {
			if l := h.engine.rules.Load().views[i].limits[0].Limit; l.Calendar() != c.calendar || l.Overflow() != c.overflow {
				t.Errorf("calendar months %v, rule %d: %v", months, i, l)
			}
		}
		for unit, want := range map[int32]bool{5: months, 6: false} {
			v, err := newOverrideView(Override{RequestsPerUnit: 5, Unit: Unit(unit)}, &h.engine.conf)
			if err != nil || v.limits[0].Limit.Calendar() != want {
				t.Errorf("calendar months %v, a request's own limit per unit %d: %v, %v", months, unit, v, err)
			}
		}
		// In the place of a rule it counts in the rule's months.
		for i, want := range []bool{months, months, false, true, false} {
			v, err := newOverrideView(Override{RequestsPerUnit: 5, Unit: 5}, &h.engine.conf)
			if err != nil {
				t.Fatal(err)
			}
			v.inPlaceOf(h.engine.rules.Load().views[i])
			if i < 4 && v.limits[0].Limit.Calendar() != want {
				t.Errorf("calendar months %v, in the place of rule %d: %v", months, i, v.limits[0].Limit)
			}
		}
	}
}

// TestCalendarAnswerResetsAtMonthEnd: the reset of an answer is the end of the month, and
// its unit is the month.
func TestCalendarAnswerResetsAtMonthEnd(t *testing.T) {
	h := setup(t, `
domain: d
descriptors:
- {key: m, rate_limit: {unit: month, requests_per_unit: 2, calendar: true, time_zone: Europe/Berlin}}
`)
	h.now = limit.InstantOf(time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC))
	for want := range 3 {
		st := h.ask(desc("m=x").withHits(1)).Statuses[0]
		if over := want == 2; st.OverLimit != over || st.Reset != (30*24+22)*3600 {
			t.Errorf("%+v", st)
		}
	}
}
