package plan

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// MinSizeMs and MaxSizeMs are the smallest and the largest size of a window,
// in milliseconds: 100 ms and 24 hours.
const (
	MinSizeMs = 100
	MaxSizeMs = 86_400_000
)

// MaxDelayMs is the longest delay that a config may allow, in milliseconds: 400 days.
const MaxDelayMs = 400 * MaxSizeMs

// maxSizeText is the width of the column that keeps a size.
const maxSizeText = 25

const (
	secondMs = 1000
	minuteMs = 60 * secondMs
	hourMs   = 60 * minuteMs
	dayMs    = 24 * hourMs
)

// sizePattern is what java.time.Duration.parse accepts, without signs.
var sizePattern = regexp.MustCompile(
	`^(?i:P(?:([0-9]+)D)?(?:T(?:([0-9]+)H)?(?:([0-9]+)M)?(?:([0-9]+)(?:[.,]([0-9]+))?S)?)?)$`)

var (
	errSizeForm = errors.New("want days, hours, minutes and seconds such as PT4S, PT0.5S, PT1M30S or P1D; " +
		"signs, weeks, months and years are not allowed")
	errSizeFraction = errors.New("want whole milliseconds, at most three digits after the point")
)

// ParseSize reads the size of a window, an ISO-8601 duration of days, hours,
// minutes and seconds such as PT4S, PT0.5S, PT1M30S, P1DT0H or P1D, and
// returns it in milliseconds.
//
// A day is 24 hours. Only seconds may have a fraction, after a point or a
// comma, and it must be whole milliseconds: nothing is rounded. Letters may be
// lower case. It is an error if the text is longer than 25 characters, has a
// sign, weeks, months or years (weeks exceed the largest size, months and
// years have no fixed length), or if the size is not within [MinSizeMs] and
// [MaxSizeMs]. Errors quote the text.
func ParseSize(text string) (ms int64, err error) {
	if len(text) > maxSizeText {
		return 0, fmt.Errorf("window size has %d characters, want at most %d", len(text), maxSizeText)
	}
	ms, err = parseDuration(text, MaxSizeMs)
	if err == nil && (ms < MinSizeMs || ms > MaxSizeMs) {
		err = fmt.Errorf("want at least %s and at most %s", FormatSize(MinSizeMs), FormatSize(MaxSizeMs))
	}
	if err != nil {
		return 0, fmt.Errorf("window size %q: %w", text, err)
	}
	return ms, nil
}

// ParseDelay reads a delay in the form of [ParseSize]: a millisecond to [MaxDelayMs].
func ParseDelay(text string) (ms int64, err error) {
	if len(text) > maxSizeText {
		return 0, fmt.Errorf("has %d characters, want at most %d", len(text), maxSizeText)
	}
	ms, err = parseDuration(text, MaxDelayMs)
	if err == nil && (ms < 1 || ms > MaxDelayMs) {
		err = fmt.Errorf("want at most %s", FormatSize(MaxDelayMs))
	}
	return ms, err
}

// parseDuration returns the sum of the parts of an unsigned duration. Parts
// beyond what is allowed at most are cut to something that is still too long.
func parseDuration(text string, most int64) (int64, error) {
	part := sizePattern.FindStringSubmatch(text)
	if part == nil || strings.HasSuffix(strings.ToUpper(text), "T") || len(text) == 1 {
		return 0, errSizeForm
	}
	fraction := strings.TrimRight(part[5], "0")
	if len(fraction) > 3 {
		return 0, errSizeFraction
	}
	sum := bounded((fraction + "000")[:3], most)
	for i, unit := range []int64{dayMs, hourMs, minuteMs, secondMs} {
		sum += bounded(part[i+1], most) * unit
	}
	return sum, nil
}

// bounded reads digits; none are zero. It stops at most, which is too
// much in any unit above milliseconds and keeps products below 2^63.
func bounded(digits string, most int64) int64 {
	if digits == "" {
		return 0
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n > most { // digits only: an error is an overflow
		return most
	}
	return n
}

// FormatSize returns ms milliseconds as an ISO-8601 duration in the canonical
// form of java.time.Duration.toString: hours, minutes and seconds without
// parts that are zero and without trailing zeros of the fraction. So 4000 is
// PT4S, 500 is PT0.5S, 90,000 is PT1M30S, a day is PT24H and 0 is PT0S. Of a
// negative duration every part is negative.
//
// ParseSize(FormatSize(ms)) is ms for every allowed size.
func FormatSize(ms int64) string {
	if ms == 0 {
		return "PT0S"
	}
	text := []byte("PT")
	if h := ms / hourMs; h != 0 {
		text = append(strconv.AppendInt(text, h, 10), 'H')
	}
	if m := ms % hourMs / minuteMs; m != 0 {
		text = append(strconv.AppendInt(text, m, 10), 'M')
	}
	if rest := ms % minuteMs; rest != 0 {
		text = append(strconv.AppendFloat(text, float64(rest)/secondMs, 'f', -1, 64), 'S')
	}
	return string(text)
}
