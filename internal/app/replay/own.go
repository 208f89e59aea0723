package replay

import (
	"fmt"
	"hash/maphash"
	"math/bits"
	"net/netip"
	"regexp"
	"strings"

	"github.com/headgate-rls/headgate/ratelimit"
)

// maxOwn bounds the values that an ownValues keeps. So few as fewOwn say nothing yet.
const maxOwn, fewOwn = 4096, 100

var ownSeed = maphash.MakeSeed()

// An ownValues finds out whether most lines have a value that no other line has. It keeps a part of the values, chosen
// by their hashes, so that it sees all lines of each; the more values there are, the smaller is the part.
type ownValues struct {
	lines map[uint64]int // by the hash of their value
	skips int            // bits of a hash that are zero if the value is kept
	first string         // value
}

func (o *ownValues) add(hash uint64, value string) {
	if o.lines == nil {
		o.lines, o.first = map[uint64]int{}, value
	}
	if bits.TrailingZeros64(hash) < o.skips {
		return
	}
	o.lines[hash]++
	for len(o.lines) > maxOwn {
		o.skips++
		for h := range o.lines {
			if bits.TrailingZeros64(h) < o.skips {
				delete(o.lines, h)
			}
		}
	}
}

// most reports whether most lines have a value of their own.
func (o *ownValues) most() bool {
	own, all := 0, 0
	for _, n := range o.lines {
		all += n
		if n == 1 {
			own++
		}
	}
	return all >= fewOwn && own > all/2
}

// ownKeys finds out whether most lines have a key of their own, and why.
type ownKeys struct {
	whole   ownValues
	entries []ownValues
}

func (o *ownKeys) add(d *ratelimit.Descriptor) {
	if o.entries == nil {
		o.entries = make([]ownValues, len(d.Entries))
	}
	whole := uint64(0)
	for i := range d.Entries {
		value := d.Entries[i].Value
		hash := maphash.String(ownSeed, value)
		o.entries[i].add(hash, value)
		whole = whole*31 + hash
	}
	o.whole.add(whole, "")
}

// note says what to write in place of a descriptor of which most lines have a key of their own; "": of which they have
// none.
func (o *ownKeys) note(descriptor string, t pattern) string {
	const most = "most lines have a key of their own, so hardly any limit is reached: "
	own := o.whole.most()
	for i := range o.entries {
		value, field := o.entries[i].first, "FIELD"
		for _, p := range t[i][1:] {
			if p.field >= 0 {
				field = p.text
			}
		}
		switch {
		case own && o.entries[i].most():
			return fmt.Sprintf("%s%s is %.60q, %s", most, t[i][0].text, value, hint(value, field))
		case strings.Contains(field, "remote") && isAddressAndPort(value):
			return fmt.Sprintf("each connection has a key of its own: %s is %.60q, %s", t[i][0].text, value, hint(value, field))
		}
	}
	if own {
		return fmt.Sprintf("%s--descriptor %q", most, descriptor)
	}
	return ""
}

// hint says what to write in place of a field with such values.
func hint(value, field string) string {
	for _, h := range hints {
		if h.is(value) {
			return strings.ReplaceAll(h.says, "FIELD", field)
		}
	}
	return ""
}

// hints say what else to write by what a value looks like.
var hints = []struct {
	is   func(string) bool
	says string
}{
	{isAddressAndPort, "an address with a port, which differs by connection: write {FIELD|no-port}"},
	{func(s string) bool { return strings.Contains(s, "?") }, "a path with its query: write {FIELD|no-query}"},
	{func(s string) bool { return strings.Contains(s, ",") }, "a list: write {FIELD|first}, or {FIELD|last} for what " +
		"the last proxy has added"},
	{regexp.MustCompile(`^[0-9a-fA-F-]{16,}$`).MatchString, "which seems to be the ID of the request: take a field that " +
		"says who asks"},
	{func(string) bool { return true }, "by {FIELD}: take a field that many lines share, or a part of it"},
}

func isAddressAndPort(s string) bool {
	_, err := netip.ParseAddrPort(s)
	return err == nil
}
