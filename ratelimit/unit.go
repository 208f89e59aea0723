package ratelimit

import (
	"strings"
	"time"

	"github.com/headgate-rls/headgate/internal/kit/units"
	"github.com/headgate-rls/headgate/limit"
)

// A Unit is the unit of a limit as Envoy's API numbers it. Requests
// (envoy.type.v3.RateLimitUnit) and responses (RateLimitResponse.RateLimit.Unit)
// agree on the numbers.
type Unit int32

// Length returns the unit's length, zero for UNKNOWN and undefined units.
func (u Unit) Length() time.Duration {
	known, _ := units.Numbered(int32(u))
	return known.Length
}

// String returns the unit's name in capitals, as the API spells it.
func (u Unit) String() string {
	if known, ok := units.Numbered(int32(u)); ok {
		return strings.ToUpper(known.Name)
	}
	return "UNKNOWN"
}

// unitOf returns the unit and multiplier of a window, or zeros.
// Without multipliers only windows of one unit have one.
func unitOf(window time.Duration, multipliers bool) (Unit, uint32) {
	u, n := units.Of(window)
	if n > 1 && !multipliers {
		return 0, 0
	}
	return Unit(u.Number), uint32(n)
}

// An Override is a limit that a request has for one of its descriptors.
type Override struct {
	RequestsPerUnit uint32
	Unit            Unit
	Multiplier      uint32 // zero counts as one
}

// Field numbers of RateLimitResponse.RateLimit.
const (
	fieldLimitRequests   = 1
	fieldLimitUnit       = 2
	fieldLimitName       = 3
	fieldLimitMultiplier = 4
)

// encodeCurrentLimit encodes a RateLimit message. A window that no unit fits is
// sent as unit UNKNOWN: Envoy then makes a header with the number alone, where it
// would trust a wrong unit.
func encodeCurrentLimit(name string, l *limit.Limit, multipliers bool) []byte {
	unit, multiplier := unitOf(l.Window(), multipliers)
	if l.Is(limit.Leased) { // the window is the life of a lease
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
