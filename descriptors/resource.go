package descriptors

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate-rls/headgate/limit"
)

// A Criterion is what a part of a request must be like.
type Criterion struct {
	Operator string // one of [Operators]; empty is the first
	Value    string

	Place, ValuePlace Place // possibly unknown; no part of the criterion
}

// A Condition is an expression over the request and what it must be like.
type Condition struct {
	Expression string
	Criterion
}

// A Matcher is what a request must be like, beyond method and name, for a
// resource. The order of its lists does not matter.
type Matcher struct {
	RequestHeaders map[string]Criterion // names in any case
	QueryParams    map[string]Criterion
	PathParams     map[string]Criterion
	AllOf, AnyOf   []Condition
	SOAPAction     string
	Binding        string
}

const (
	defaultHashLength = 8
	MaxHashLength     = 2 * sha256.Size
	maxResourceName   = 1024
)

// resourceKey returns "METHOD:NAME", or "METHOD:NAME:HASH" if m asks for
// anything. An empty method or name is "*". HASH is the first hashLength hex
// digits (0 means 8, at most 64) of a SHA-256 over everything m says, in an
// order of its own.
func resourceKey(method, name string, m *Matcher, hashLength int) (string, error) {
	hashLength = cmp.Or(hashLength, defaultHashLength)
	if hashLength < 1 || hashLength > MaxHashLength {
		return "", fmt.Errorf("hash length %d is outside 1 to %d", hashLength, MaxHashLength)
	}
	if len(method)+len(name) > maxResourceName {
		return "", fmt.Errorf("method and name have %d bytes; at most %d are allowed", len(method)+len(name), maxResourceName)
	}
	key := cmp.Or(method, "*") + ":" + cmp.Or(name, "*")
	encoding := m.encode()
	if encoding == nil {
		return key, nil
	}
	sum := sha256.Sum256(encoding)
	return key + ":" + hex.EncodeToString(sum[:])[:hashLength], nil
}

func sameResource(a, b *resource) bool {
	return a.method == b.method && a.text == b.text && string(a.asks.encode()) == string(b.asks.encode())
}

// encode returns everything m says as parts with their lengths, so that no two
// matchers run into the same bytes; nil if it says nothing.
func (m *Matcher) encode() (b []byte) {
	b = appendSection(b, "header", named(m.RequestHeaders))
	b = appendSection(b, "query", named(m.QueryParams))
	b = appendSection(b, "path", named(m.PathParams))
	b = appendSection(b, "allOf", conditions(m.AllOf))
	b = appendSection(b, "anyOf", conditions(m.AnyOf))
	if m.SOAPAction != "" {
		b = appendSection(b, "soapAction", []string{parts(m.SOAPAction)})
	}
	if m.Binding != "" {
		b = appendSection(b, "binding", []string{parts(m.Binding)})
	}
	return b
}

// appendSection appends a section's name, the number of its items, and the
// items in alphabetical order. A section without items is left out.
func appendSection(b []byte, name string, items []string) []byte {
	if len(items) == 0 {
		return b
	}
	slices.Sort(items)
	b = limit.AppendPart(b, name)
	b = limit.AppendPart(b, strconv.Itoa(len(items)))
	return append(b, strings.Join(items, "")...)
}

func named(m map[string]Criterion) (items []string) {
	for name, c := range m {
		items = append(items, parts(name, c.Operator, c.Value))
	}
	return items
}

func conditions(cs []Condition) (items []string) {
	for _, c := range cs {
		items = append(items, parts(c.Expression, c.Operator, c.Value))
	}
	return items
}

func parts(ss ...string) string {
	var b []byte
	for _, s := range ss {
		b = limit.AppendPart(b, s)
	}
	return string(b)
}
