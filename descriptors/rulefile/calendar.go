package rulefile

import (
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/headgate-rls/headgate/internal/kit/units"
	"github.com/headgate-rls/headgate/limit"
)

// calendar reads calendar and time_zone of a limit, whose window stands for the period.
// It returns nil if the rules do not say whether there is a calendar.
func (l *loader) calendar(f fields, t *twig) (calendar *bool, zone *time.Location) {
	if n := f.get("calendar"); n != nil {
		yes := l.boolean(n, t, "calendar")
		calendar = &yes
	}
	n := f.get("time_zone")
	if n == nil {
		return calendar, nil
	}
	if calendar == nil || !*calendar {
		l.errorf(n, t, "time_zone goes with calendar: true")
		return calendar, nil
	}
	name, ok := l.text(n, t, "time_zone")
	if !ok {
		return calendar, nil
	}
	return calendar, l.zone(n, t, name)
}

// zone returns the time zone with a name, the same one for all rules.
func (l *loader) zone(n *yaml.Node, t *twig, name string) *time.Location {
	zone := l.zones[name]
	if zone == nil {
		var err error
		if zone, err = units.Zone(name); err != nil {
			l.errorf(n, t, "time_zone %v", err)
			return nil
		}
		if l.zones == nil {
			l.zones = map[string]*time.Location{}
		}
		l.zones[name] = zone
	}
	return zone
}

// calendarOf sets the windows of s by the limit's calendar, if it has one.
func (l *loader) calendarOf(f fields, t *twig, s *limit.Spec) (said bool) {
	calendar, zone := l.calendar(f, t)
	if calendar == nil || !*calendar {
		return calendar != nil
	}
	switch {
	case s.Algorithm != limit.FixedWindow:
		l.errorf(f.get("calendar"), t, "%v has no calendar; only %v does", s.Algorithm, limit.FixedWindow)
	case s.Window != 0 && !limit.HasCalendar(s.Window):
		l.errorf(f.get("calendar"), t, "a calendar has days, weeks, months (30d) and years (365d), but no windows of %s",
			units.Format(s.Window))
	default:
		s.Calendar, s.Zone = true, zone
	}
	return true
}
