package rulefile

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/limit"
)

const calendarRule = "domain: d\ndescriptors:\n  - {key: a, %s}\n"

// TestRuleNamesItsCalendar: a limit's windows are those of the calendar that the rule names.
func TestRuleNamesItsCalendar(t *testing.T) {
	for _, c := range []struct {
		rule, zone string // zone "" means no calendar
		window     time.Duration
		anyMonth   bool
	}{
		{"rate_limit: {unit: month, requests_per_unit: 5}", "", 720 * time.Hour, true},
		{"rate_limit: {unit: month, requests_per_unit: 5, calendar: false}", "", 720 * time.Hour, false},
		{"rate_limit: {unit: month, unit_multiplier: 2, requests_per_unit: 5}", "", 1440 * time.Hour, false},
		{"rate_limit: {unit: year, requests_per_unit: 5}", "", 8760 * time.Hour, false},
		{"rate_limit: {unit: Month, requests_per_unit: 5, calendar: true}", "UTC", 720 * time.Hour, false},
		{"rate_limit: {unit: year, requests_per_unit: 5, calendar: true, time_zone: America/New_York}", "America/New_York",
			8760 * time.Hour, false},
		{"rate_limit: {unit: day, requests_per_unit: 5, calendar: true, time_zone: Europe/Berlin}", "Europe/Berlin",
			24 * time.Hour, false},
		{"limits: [{algorithm: fixed_window, limit: 5, window: 1w, calendar: true, time_zone: Asia/Tokyo}]", "Asia/Tokyo",
			168 * time.Hour, false},
		{"limits: [{algorithm: fixed_window, limit: 5, window: 30d}]", "", 720 * time.Hour, false},
		{"limits: [{algorithm: fixed_window, rate: 5/day, calendar: true}]", "UTC", 24 * time.Hour, false},
	} {
		set, problems := Load([]Source{{Name: "r.yaml", Data: fmt.Appendf(nil, calendarRule, c.rule)}}, Options{})
		if set == nil {
			t.Errorf("%s: %v", c.rule, problems)
			continue
		}
		rl := set.Rules()[0].Limits[0]
		s, zone := rl.Limit.Spec(), ""
		if s.Calendar {
			zone = s.Zone.String()
		}
		if s.Algorithm != limit.FixedWindow || zone != c.zone || s.Window != c.window || rl.AnyMonth != c.anyMonth {
			t.Errorf("%s: %+v, zone %q, any month %v", c.rule, s, zone, rl.AnyMonth)
		}
	}
}

// TestCalendarDump: /rlconfig says whose months are meant.
func TestCalendarDump(t *testing.T) {
	set, problems := Load([]Source{{Name: "r.yaml", Data: fmt.Appendf(nil, calendarRule,
		"rate_limit: {unit: month, requests_per_unit: 5, calendar: true, time_zone: Europe/Berlin}")}}, Options{})
	if set == nil {
		t.Fatal(problems)
	}
	var b strings.Builder
	if err := set.Dump(&b); err != nil ||
		!strings.Contains(b.String(), "unit=MONTH requests_per_unit=5 calendar=true time_zone=Europe/Berlin") {
		t.Errorf("%v: %s", err, b.String())
	}
}

// TestCalendarThatCannotBe: what contradicts a calendar is refused at its place.
func TestCalendarThatCannotBe(t *testing.T) {
	for rule, want := range map[string]string{
		"rate_limit: {unit: month, requests_per_unit: 5, " +
			"time_zone: UTC}": "r.yaml:3:73: time_zone goes with calendar: true",
		"rate_limit: {unit: month, requests_per_unit: 5, calendar: false, " +
			"time_zone: UTC}": "r.yaml:3:90: time_zone goes with calendar: true",
		"rate_limit: {unit: month, requests_per_unit: 5, calendar: true, time_zone: " +
			"Europe/Berlim}": `r.yaml:3:89: time_zone "Europe/Berlim" is not a time zone; write a name of the IANA database`,
		"rate_limit: {unit: month, requests_per_unit: 5, calendar: true, time_zone: Local}": `time_zone "Local" is not ` +
			`a time zone`,
		"rate_limit: {unit: hour, requests_per_unit: 5, calendar: true}": "a calendar has days, " +
			"weeks, months (30d) and years (365d), but no windows of 1h",
		"rate_limit: {unit: month, unit_multiplier: 3, requests_per_unit: 5, calendar: true}": "but no windows of 2160h",
		"rate_limit: {unlimited: true, calendar: true}": "unlimited and calendar " +
			"contradict each other",
		"limits: [{algorithm: sliding_window, limit: 5, window: 1d, calendar: true}]": "sliding_window has no " +
			"calendar; only fixed_window does",
		"overflow: debt, rate_limit: {unit: month, requests_per_unit: 5, calendar: true}": "calendar windows have no " +
			"overflow debt",
		"rate_limit: {unit: month, requests_per_unit: 5, calendars: true}":      `unknown`,
		"rate_limit: {unit: month, requests_per_unit: 5, calendar: yes please}": "calendar",
		"limits: [{algorithm: fixed_window, limit: 5, window: 7d, time_zone: Europe/Berlin}]": "time_zone goes with " +
			"calendar: true",
		"limits: [{algorithm: token_bucket, rate: 5/day, calendar: true}]": "token_bucket has no calendar",
	} {
		set, problems := Load([]Source{{Name: "r.yaml", Data: fmt.Appendf(nil, calendarRule, rule)}}, Options{})
		if set != nil || !strings.Contains(fmt.Sprint(problems), want) {
			t.Errorf("%s:\n%v\nwant %s", rule, problems, want)
		}
	}
}
