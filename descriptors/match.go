package descriptors

import (
	"strings"
	"sync"
	"unicode/utf8"
	"unsafe"

	"github.com/headgate-rls/headgate/limit"
)

// Match finds the rule for one descriptor and writes it to m.
//
// Entry by entry it looks on the tree's next level for the key and value as
// they are, also those of a wildcard, then for the first wildcard in file order that matches, then for the longest
// network that has the value, then for the key alone. It never goes back to try another branch, and a rule applies
// only to descriptors with exactly as many entries as the rule is deep.
//
// In a domain with resources, a descriptor whose first two entries are method
// and path is matched against those, and against nothing else.
func (s *Set) Match(domain string, entries []Entry, m *Match) {
	*m = Match{}
	d := s.domain(domain)
	if d == nil {
		s.absent.match(domain, m)
		return
	}
	m.Domain = true
	if d.resources != nil && asksForResource(entries) {
		var steps int
		if r, group := d.resources.find(entries, &steps); r != nil {
			m.Rule, m.Group = r.rule, group
		}
		return
	}
	if m.Rule = d.root.rule(entries); m.Rule.counts() {
		m.Group = m.Rule.group(entries)
	}
}

// MatchIn is [Set.Match] for descriptors that are matched against no resources: of others, and of unknown domains, it
// returns false. It makes the group in buf and returns that, to be used again: m.Group is valid until then.
func (s *Set) MatchIn(buf []byte, domain string, entries []Entry, m *Match) (used []byte, ok bool) {
	*m = Match{}
	d := s.domain(domain)
	if d == nil || d.resources != nil && asksForResource(entries) {
		return buf, false
	}
	m.Domain = true
	r := d.root.rule(entries)
	m.Rule = r
	switch {
	case !r.counts():
		return buf, true
	case r.raw, r.Choose != "":
		m.Group = r.group(entries)
		return buf, true
	}
	if buf = r.appendGroup(buf[:0], entries); len(buf) > limit.MaxGroupLen {
		m.Group = limit.MakeGroup(buf)
	} else {
		m.Group = unsafe.String(unsafe.SliceData(buf), len(buf))
	}
	return buf, true
}

// domain returns the domain of a name, or nil.
func (s *Set) domain(name string) *domain {
	if d := s.first; d != nil && d.name == name {
		return d
	}
	return s.domains[name]
}

// rule returns the rule that entries lead to, or nil.
func (lv *level) rule(entries []Entry) *Rule {
	var steps int
	if n := lv.descend(entries, &steps); n != nil {
		return n.rule
	}
	return nil
}

// counts reports whether there is a rule that has counters.
func (r *Rule) counts() bool { return r != nil && (len(r.Limits) > 0 || r.Concurrency != nil) }

// descend returns the node that entries lead to, or nil.
func (lv *level) descend(entries []Entry, steps *int) *node {
	var n *node
	for i := range entries {
		if lv == nil {
			return nil
		}
		if n = lv.find(&entries[i], steps); n == nil {
			return nil
		}
		lv = n.next
	}
	return n
}

// find returns the node of the level that e leads to, or nil.
// It adds to steps what it looked at.
func (lv *level) find(e *Entry, steps *int) *node {
	*steps++
	// An empty value is never exact: no rule can ask for it.
	if len(lv.exact) > 0 {
		if n := lv.exact[*e]; n != nil {
			return n
		}
	}
	if lv.wild != nil {
		if i := lv.wild.lowest(e, steps); i != noNode {
			return lv.wildNodes[i]
		}
	}
	bare := lv.firstNode
	if e.Key != lv.first {
		bare = lv.bare[e.Key]
	}
	if lv.addresses != nil {
		return lv.addresses.find(e, bare)
	}
	return bare
}

// Groups are built in a buffer on the stack, which has to be cleared each time;
// descriptors that need more borrow one from a pool.
const stackGroup = 160

// group returns the name of the counters for entries. It encodes the domain,
// then each entry's key and value, where depths with share_threshold have
// their pattern instead of the value. Two descriptors have the same group only
// if the same rule counts them together: a pattern's own text as a value leads
// to the pattern's rule, or to a wildcard that stands earlier and matches
// everything the pattern does ([level.literals]).
func (r *Rule) group(entries []Entry) string {
	switch {
	case r.raw:
		return limit.RawGroup(entries[len(entries)-1].Value)
	case r.Choose != "":
		return r.groupOfChoice(entries)
	}
	size := len(r.Domain) + 8
	for i := range entries {
		size += len(entries[i].Key) + len(r.counted(entries, i)) + 16
	}
	if size <= stackGroup {
		var buf [stackGroup]byte
		return limit.MakeGroup(r.appendGroup(buf[:0], entries))
	}
	p := groupBuffers.Get().(*[]byte)
	buf := r.appendGroup((*p)[:0], entries)
	g := limit.MakeGroup(buf)
	if cap(buf) <= maxPooledGroup {
		*p = buf
		groupBuffers.Put(p)
	}
	return g
}

func (r *Rule) appendGroup(buf []byte, entries []Entry) []byte {
	last := len(entries) - 1
	return limit.AppendPart(r.appendAlike(buf, entries), r.counted(entries, last))
}

// appendAlike appends all of the group but the last value.
func (r *Rule) appendAlike(buf []byte, entries []Entry) []byte {
	buf = append(buf, r.begins...)
	for i := range entries {
		if i > 0 {
			buf = limit.AppendPart(buf, r.counted(entries, i-1))
		}
		if i > 0 || r.anyKey {
			buf = limit.AppendPart(buf, entries[i].Key)
		}
	}
	return buf
}

// groupOfChoice returns the group of a rule that others are chosen from as well. Descriptors that differ in their last
// value alone, as the candidates of a request do, are kept together, so that a store can choose in one step.
func (r *Rule) groupOfChoice(entries []Entry) string {
	var alike, last [stackGroup]byte
	return limit.GroupIn(r.appendAlike(alike[:0], entries), limit.AppendPart(last[:0], r.counted(entries, len(entries)-1)))
}

// TextGroup returns the group of counters that envoyproxy/ratelimit has as well (see
// limit.TextGroup): of r, or of a request's own limit in a domain, where r is nil. Unlike
// other groups it may be that of different descriptors: key a with the value b_c, and key a_b
// with the value c.
func TextGroup(domain string, r *Rule, entries []Entry) string {
	var array [512]byte
	buf := append(append(array[:0], domain...), '_')
	for i := range entries {
		value := entries[i].Value
		if r != nil {
			value = r.counted(entries, i)
		}
		buf = append(append(buf, entries[i].Key...), '_')
		buf = append(append(buf, value...), '_')
	}
	return limit.TextGroup(buf)
}

// OthersGroup returns the group of the counter that values beyond MaxKeys share: that of a descriptor that has
// [Others], or the rule's pattern, for its values. A resource has [Others] for each value that it counts by. text: a
// text group (see limit.TextGroup).
func (r *Rule) OthersGroup(text bool) string {
	if text {
		return TextGroup(r.Domain, r, r.others)
	}
	return r.group(r.others)
}

// AppendPolicyKey appends the key of the policy for entries to dst, which must be empty. Values
// that count together have their pattern in it. r.Policy must not be nil.
func (r *Rule) AppendPolicyKey(dst []byte, entries []Entry) []byte {
	return r.Policy.Append(dst, func(i int) string { return r.counted(entries, i) })
}

// counted returns what counters have for the value of entry i.
func (r *Rule) counted(entries []Entry, i int) string {
	if i < len(r.shared) && r.shared[i] != "" {
		return r.shared[i]
	}
	return entries[i].Value
}

// maxMetricLabel bounds labels with values that come from requests.
const maxMetricLabel = 512

// MetricLabel returns the label that r's metrics have for a descriptor: r.Path,
// unless detailed_metric or value_to_metric ask for values of the descriptor.
// Such labels are cut at 512 bytes.
func (s *Set) MetricLabel(r *Rule, entries []Entry) string {
	if !r.Metric.Detailed && r.Metric.ValueAt == nil || len(r.ids) != len(entries) {
		return r.Path
	}
	return r.label(entries)
}

// EntriesLabel returns the label of a descriptor that no rule is about, as [Set.MetricLabel]
// writes it.
func EntriesLabel(entries []Entry) string { return detailed.label(entries) }

// detailed stands for a rule whose label has all values.
var detailed = &Rule{Metric: MetricDetail{Detailed: true}}

func (r *Rule) label(entries []Entry) string {
	var b strings.Builder
	for i := range entries {
		if i > 0 {
			b.WriteByte('.')
		}
		switch {
		case r.Metric.Detailed:
			writeID(&b, entries[i].Key, r.counted(entries, i))
		case r.Metric.ValueAt[i]:
			writeID(&b, entries[i].Key, r.counted(entries, i))
		default:
			b.WriteString(r.ids[i])
		}
		if b.Len() > maxMetricLabel {
			break
		}
	}
	return cut(b.String(), maxMetricLabel)
}

func writeID(b *strings.Builder, key, value string) {
	b.WriteString(key[:min(len(key), maxMetricLabel)])
	if value != "" {
		b.WriteByte('_')
		b.WriteString(value[:min(len(value), maxMetricLabel)])
	}
}

// cut returns at most n bytes of s, as valid UTF-8.
func cut(s string, n int) string {
	if len(s) > n {
		for n > 0 && !utf8.RuneStart(s[n]) {
			n--
		}
		s = s[:n]
	}
	return strings.ToValidUTF8(s, "_")
}

// An Entry is one key and value of a descriptor.
type Entry struct{ Key, Value string }

var groupBuffers = sync.Pool{New: func() any { return new([]byte) }}

// maxPooledGroup keeps one huge descriptor from pinning its buffer.
const maxPooledGroup = 256 << 10
