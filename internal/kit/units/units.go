package units

import (
	"fmt"
	"strings"
	"time"
	_ "time/tzdata" // for images without a database of time zones
)

// A Unit is a unit of time.
type Unit struct {
	// Number is the unit's number in Envoy's API: in envoy.type.v3.RateLimitUnit
	// and in RateLimitResponse.RateLimit.Unit.
	Number int32
	Name   string
	// Length is fixed, because windows are: a month has 30 days, and a year 365.
	Length time.Duration
}

// Month is the length of the unit month.
const Month = 30 * 24 * time.Hour

// all are the units, the shortest first.
var all = [...]Unit{
	{1, "second", time.Second},
	{2, "minute", time.Minute},
	{3, "hour", time.Hour},
	{4, "day", 24 * time.Hour},
	{7, "week", 7 * 24 * time.Hour},
	{5, "month", Month},
	{6, "year", 365 * 24 * time.Hour},
}

// Names returns the names of all units, the shortest unit first.
func Names() []string {
	names := make([]string, len(all))
	for i := range all {
		names[i] = all[i].Name
	}
	return names
}

// Named returns the unit with a name, in any case.
func Named(name string) (u Unit, ok bool) {
	for i := range all {
		if strings.EqualFold(name, all[i].Name) {
			return all[i], true
		}
	}
	return u, false
}

// Numbered returns the unit with a number.
func Numbered(n int32) (u Unit, ok bool) {
	for i := range all {
		if all[i].Number == n {
			return all[i], true
		}
	}
	return u, false
}

// Of returns the longest unit of which window is a multiple, and how many it is:
// zero means none.
func Of(window time.Duration) (u Unit, n int64) {
	for i := len(all) - 1; i >= 0; i-- {
		if n := window / all[i].Length; n > 0 && window%all[i].Length == 0 {
			return all[i], int64(n)
		}
	}
	return u, 0
}

// CeilSeconds returns d in whole seconds, rounded up. To add to d first would overflow with the longest duration.
func CeilSeconds(d time.Duration) int64 { return int64(d/time.Second + min(d%time.Second, 1)) }

// Format writes a duration as rules do, without Go's trailing zero units: 1h
// for 1h0m0s.
func Format(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// maxZone bounds the name of a time zone, in bytes.
const maxZone = 64

// Zone returns the time zone with a name of the IANA database, such as Europe/Berlin.
// The database is the system's if there is one, else the program's own. "Local" is no
// name: replicas would disagree.
func Zone(name string) (*time.Location, error) {
	if name != "" && name != "Local" && len(name) <= maxZone {
		if loc, err := time.LoadLocation(name); err == nil {
			return loc, nil
		}
	}
	if len(name) > maxZone {
		name = strings.ToValidUTF8(name[:maxZone], "") + "..."
	}
	return nil, fmt.Errorf("%q is not a time zone; write a name of the IANA database, such as UTC or Europe/Berlin", name)
}
