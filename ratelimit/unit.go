package ratelimit

import (
	"strings"
	"time"

	"github.com/headgate-rls/headgate/limit"
)

// A Unit is the unit of a limit as Envoy's API numbers it. Requests
// (envoy.type.v3.RateLimitUnit) and responses (RateLimitResponse.RateLimit.Unit)
// agree on the numbers.
type Unit int32

// units in falling order of length; a month has 30 days and a year 365, as in
// the reference service.
var units = []struct {
	unit   Unit
	name   string
	length time.Duration
}{
	{6, "year", 365 * 24 * time.Hour},
	{5, "month", 30 * 24 * time.Hour},
	{7, "week", 7 * 24 * time.Hour},
	{4, "day", 24 * time.Hour},
	{3, "hour", time.Hour},
	{2, "minute", time.Minute},
	{1, "second", time.Second},
}

// Length returns the unit's length, zero for UNKNOWN and undefined units.
func (u Unit) Length() time.Duration {
	for _, known := range units {
		if known.unit == u {
			return known.length
		}
	}
	return 0
}

// String returns the unit's name in capitals, as the API spells it.
func (u Unit) String() string {
	for _, known := range units {
		if known.unit == u {
			return strings.ToUpper(known.name)
		}
	}
	return "UNKNOWN"
}

// unitOf returns the unit and multiplier that say window, or zeros if none
// does. Without multipliers only whole units can be said.
func unitOf(window time.Duration, multipliers bool) (Unit, uint32) {
	for _, u := range units {
		if n := window / u.length; window%u.length == 0 && n > 0 && (n == 1 || multipliers) {
			return u.unit, uint32(n)
		}
	}
	return 0, 0
}

// encodeCurrentLimit encodes a RateLimit message. A window that no unit fits
// is sent as unit UNKNOWN, from which Envoy makes a header with the bare
// number; a wrong unit would be believed.
func encodeCurrentLimit(name string, l *limit.Limit, multipliers bool) []byte {
	unit, multiplier := unitOf(l.Window(), multipliers)
	if l.Algorithm() == limit.Concurrency { // the window is the life of a lease
		unit, multiplier = 0, 0
	}
	b := appendVarintField(nil, fieldLimitRequests, uint64(clampUint32(l.Max())))
	b = appendVarintField(b, fieldLimitUnit, uint64(unit))
	b = appendStringField(b, fieldLimitName, name)
	if multiplier > 1 {
		b = appendBytesField(b, fieldLimitMultiplier, appendVarintField(nil, 1, uint64(multiplier)))
	}
	return b
}

func clampUint32(n int64) uint32 { return uint32(min(max(n, 0), 1<<32-1)) }
