package units

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

var errTooLong = errors.New("is too long")

// ParseDuration reads a duration as rules say it: as Go does, with d (24h) and w (7d) added: "1d12h".
func ParseDuration(s string) (time.Duration, error) {
	if s == "" {
		return 0, errors.New("is empty; write it like 30s, 5m, 12h or 1d12h")
	}
	var sum time.Duration
	for rest := s; rest != ""; {
		digits := len(rest) - len(strings.TrimLeft(rest, "0123456789."))
		letters := strings.IndexAny(rest[digits:], "0123456789.")
		if letters < 0 {
			letters = len(rest) - digits
		}
		d, err := parsePart(rest[:digits], rest[digits:digits+letters])
		if err != nil {
			return 0, err
		}
		if sum += d; sum < 0 {
			return 0, errTooLong
		}
		rest = rest[digits+letters:]
	}
	return sum, nil
}

// parsePart reads one number with its unit.
func parsePart(number, unit string) (time.Duration, error) {
	factor := time.Duration(1)
	switch unit {
	case "d":
		unit, factor = "h", 24
	case "w":
		unit, factor = "h", 7*24
	case "":
		return 0, errors.New("needs a unit: ns, us, ms, s, m, h, d or w")
	}
	d, err := time.ParseDuration(number + unit)
	if err != nil {
		return 0, errors.New("is not a duration; write it like 30s, 5m, 12h or 1d12h")
	}
	if d > (1<<63-1)/factor {
		return 0, errTooLong
	}
	return d * factor, nil
}

// rateUnits are the words that may follow a rate's slash.
var rateUnits = map[string]time.Duration{
	"s": time.Second, "sec": time.Second, "second": time.Second,
	"min": time.Minute, "minute": time.Minute,
	"h": time.Hour, "hour": time.Hour,
	"d": 24 * time.Hour, "day": 24 * time.Hour,
	"w": 7 * 24 * time.Hour, "week": 7 * 24 * time.Hour,
	"month": 30 * 24 * time.Hour,
	"year":  365 * 24 * time.Hour,
}

// ParseRate reads how many units pass in which time, as rules say it: "100/s", "5/min" or "10/30s".
func ParseRate(s string) (int64, time.Duration, error) {
	number, per, ok := strings.Cut(s, "/")
	number, per = strings.TrimSpace(number), strings.TrimSpace(per)
	if !ok || per == "" {
		return 0, 0, errors.New("must be a number per time, such as 100/s, 5/min or 10/30s")
	}
	n, err := strconv.ParseUint(number, 10, 63)
	if err != nil {
		return 0, 0, fmt.Errorf("%.40q is not a whole number", number)
	}
	if per == "m" {
		return 0, 0, errors.New("m could be a minute or a month; write min or month")
	}
	if d, ok := rateUnits[per]; ok {
		return int64(n), d, nil
	}
	d, err := ParseDuration(per)
	if err != nil {
		return 0, 0, fmt.Errorf("after the slash %.40q %w", per, err)
	}
	return int64(n), d, nil
}
