package policies

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// An Amount is a number with six decimal places, exactly: 1 is 1,000,000. It is how tables and
// JSON have seconds and rates.
type Amount int64

// One is the Amount 1.
const One Amount = 1_000_000

// maxAmount bounds the whole part of what ParseAmount reads: more than the seconds of the longest
// window and the fastest rate.
const maxAmount = 1_000_000_000

// ParseAmount reads a decimal number such as "10" or "0.25", without sign and exponent. Zeros
// after the sixth decimal place change nothing; other digits there are an error.
func ParseAmount(text string) (Amount, error) {
	whole, fraction, dot := strings.Cut(text, ".")
	fraction = strings.TrimRight(fraction, "0")
	switch {
	case whole == "" || !digits(whole) || !digits(fraction) || dot && strings.HasSuffix(text, "."):
		return 0, fmt.Errorf("%.40q is not a number such as 10 or 0.25", text)
	case len(fraction) > 6:
		return 0, fmt.Errorf("%.40q has more than six decimal places", text)
	}
	units, err := strconv.ParseInt(whole, 10, 64)
	if errors.Is(err, strconv.ErrRange) || units > maxAmount {
		return 0, fmt.Errorf("%.40q is more than %d", text, maxAmount)
	}
	parts, _ := strconv.ParseInt((fraction + "000000")[:6], 10, 64) // digits, as checked
	return Amount(units)*One + Amount(parts), nil
}

func digits(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r < '0' || r > '9' }) < 0
}

// String writes a as ParseAmount reads it, as short as possible.
func (a Amount) String() string {
	text := fmt.Sprintf("%d.%06d", a/One, a%One)
	return strings.TrimSuffix(strings.TrimRight(text, "0"), ".")
}

// MarshalJSON writes a JSON number.
func (a Amount) MarshalJSON() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalJSON reads a JSON number without an exponent.
func (a *Amount) UnmarshalJSON(text []byte) (err error) {
	*a, err = ParseAmount(string(text))
	return err
}
