package replay

import (
	"bytes"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// A pattern is a descriptor to be: an entry has parts, of which the first is its key.
type pattern [][]part

// A part is text, or the value of a field.
type part struct {
	text    string
	field   int // -1: it is text
	filters []filter
}

// A filter returns what is left of a value; nil: there is none.
type filter func(value []byte) []byte

// filters makes a filter of what is behind its name and a colon.
var filters = map[string]func(arg string) (filter, error){
	"no-query": plainFilter(func(b []byte) []byte { b, _, _ = bytes.Cut(b, []byte("?")); return b }),
	"lower":    plainFilter(bytes.ToLower),
	"no-port":  plainFilter(withoutPort),
	"first":    plainFilter(func(b []byte) []byte { b, _, _ = bytes.Cut(b, []byte(",")); return ofList(b) }),
	"last":     plainFilter(func(b []byte) []byte { return ofList(b[bytes.LastIndexByte(b, ',')+1:]) }),
	"network":  networkFilter,
}

func plainFilter(f filter) func(string) (filter, error) {
	return func(arg string) (filter, error) {
		if arg != "" {
			return nil, fmt.Errorf("%q: the filter takes no figure", arg)
		}
		return f, nil
	}
}

// ofList returns a part of a list.
func ofList(b []byte) []byte {
	if b = bytes.TrimSpace(b); len(b) == 0 {
		return nil
	}
	return b
}

// withoutPort returns the host of 10.0.0.1:80 or [::1]:80, and all else as it is.
func withoutPort(b []byte) []byte {
	if inner, bracketed := bytes.CutPrefix(b, []byte("[")); bracketed {
		host, _, _ := bytes.Cut(inner, []byte("]"))
		return host
	}
	if host, port, found := bytes.Cut(b, []byte(":")); found && !bytes.Contains(port, []byte(":")) {
		return host
	}
	return b
}

// networkFilter returns the filter that makes 10.1.2.0/24 of 10.1.2.3, as masked_remote_address of Envoy does. The
// argument is the bits of IPv4, and those of IPv6 after a slash; without these an IPv6 address stays whole.
func networkFilter(arg string) (filter, error) {
	v4, v6, both := strings.Cut(arg, "/")
	bits4, err := strconv.Atoi(v4)
	bits6 := 128
	if err == nil && both {
		bits6, err = strconv.Atoi(v6)
	}
	if err != nil || bits4 < 0 || bits4 > 32 || bits6 < 0 || bits6 > 128 {
		return nil, fmt.Errorf("network:%s: want the bits of a network, as in network:24, or network:24/64 with those of "+
			"IPv6", arg)
	}
	return func(b []byte) []byte {
		address, err := netip.ParseAddr(string(withoutPort(b)))
		if err != nil {
			return nil
		}
		address = address.Unmap()
		bits := bits6
		if address.Is4() {
			bits = bits4
		}
		network, err := address.Prefix(bits)
		if err != nil {
			return nil
		}
		return []byte(network.String())
	}, nil
}

// readFilters reads what is between | in {field|first|no-port}.
func readFilters(text string) (list []filter, err error) {
	for word := range strings.SplitSeq(text, "|") {
		name, arg, _ := strings.Cut(word, ":")
		of := filters[name]
		if of == nil {
			return nil, fmt.Errorf("unknown filter %q; there are %s", name,
				strings.Join(slices.Sorted(maps.Keys(filters)), ", "))
		}
		f, err := of(arg)
		if err != nil {
			return nil, fmt.Errorf("filter %s: %w", name, err)
		}
		list = append(list, f)
	}
	return list, nil
}

// pattern reads a descriptor such as tenant={tenant},path={path|no-query}. A comma in a value is written "\,".
func (a *accessLog) pattern(text string) (t pattern, err error) {
	const comma = "\x00"
	for entry := range strings.SplitSeq(strings.ReplaceAll(text, `\,`, comma), ",") {
		key, value, ok := strings.Cut(strings.ReplaceAll(entry, comma, ","), "=")
		if !ok || key == "" {
			return nil, fmt.Errorf("%q is not KEY=VALUE", entry)
		}
		parts := []part{{text: key, field: -1}}
		for value != "" {
			before, rest, found := strings.Cut(value, "{")
			parts = append(parts, part{text: before, field: -1})
			if !found {
				break
			}
			name, after, closed := strings.Cut(rest, "}")
			if !closed {
				return nil, fmt.Errorf("%q has a { without a }", entry)
			}
			name, list, filtered := strings.Cut(name, "|")
			p := part{text: name, field: a.field(name)}
			if filtered {
				if p.filters, err = readFilters(list); err != nil {
					return nil, err
				}
			}
			parts, value = append(parts, p), after
		}
		t = append(t, parts)
	}
	return t, nil
}

// value makes the value of an entry; nil: a field has none.
func value(parts []part, of [][]byte) (value []byte) {
	value = []byte{}
	for _, p := range parts[1:] {
		if p.field < 0 {
			value = append(value, p.text...)
			continue
		}
		v := of[p.field]
		for _, f := range p.filters {
			if v != nil {
				v = f(v)
			}
		}
		if v == nil {
			return nil
		}
		value = append(value, v...)
	}
	return value
}
