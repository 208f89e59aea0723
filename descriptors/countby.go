package descriptors

import (
	"maps"
	"slices"
	"sort"
	"strings"
	"unicode"

	"github.com/headgate-rls/headgate/internal/kit/spell"
)

// Requests to a resource share its counter. With by, each combination of some of their values has one of its own:
// its group is the resource's own, and after it the name and the value of each. A value that is missing is empty.

// maxBy bounds how many values requests to a resource are counted by.
const maxBy = 8

const (
	remoteAddress       = "remote_address"
	maskedRemoteAddress = "masked_remote_address"
	claimEntry          = "jwt."
	queryValue          = "query."
	pathValue           = "pathParams."
)

// kindsOfValues are the values that requests can be counted by: those with a dot at the end have a name after it. Where
// a part of requests is the value of an entry, the entry has the same name.
var kindsOfValues = []struct {
	name string
	part part
}{
	{remoteAddress, inEntry},
	{maskedRemoteAddress, inEntry},
	{headerEntry, inHeader},
	{claimEntry, inEntry},
	{queryValue, inQuery},
	{pathValue, inPath},
}

// A counting is a part of requests that they are counted by.
type counting struct {
	name string // as rules have it
	criterion
}

// countBy compiles what the requests to p are counted by, in the order of names: how rules order them does not matter.
func (s *spot) countBy(list []Value, p *pathRule) (by []*counting) {
	if len(list) > maxBy {
		s.errorf("by", "by has %d values; at most %d are allowed", len(list), maxBy)
		return nil
	}
	params := p.params()
	for i := range list {
		at := s.part(list[i].Place, nil)
		c, ok := at.counting(list[i].Name, params)
		switch {
		case !ok:
		case slices.ContainsFunc(by, func(other *counting) bool { return other.name == c.name }):
			at.errorf("", "by has %s twice", c.name)
		default:
			by = append(by, &c)
		}
	}
	sort.Slice(by, func(i, j int) bool { return by[i].name < by[j].name })
	return by
}

// counting compiles one value that requests are counted by.
func (s *spot) counting(written string, params []string) (c counting, ok bool) {
	for _, kind := range kindsOfValues {
		name, found := strings.CutPrefix(written, kind.name)
		named := strings.HasSuffix(kind.name, ".")
		switch {
		case !found || !named && name != "":
			continue
		case named && name == "":
			s.errorf("", "by: %s must be followed by a name", kind.name)
			return c, false
		case !s.text("", "a name in by", name, maxName):
			return c, false
		}
		c.place = kind.part
		return c, s.countedPart(&c, kind.name, name, params)
	}
	s.errorf("", "by: %q is unknown; it must be %s%s", spell.Short(written), spell.OneOf(valuesOfBy()),
		spell.DidYouMean(written, valuesOfBy()))
	return c, false
}

// countedPart sets where requests carry the value called name. It returns false, and reports an error, if they cannot.
func (s *spot) countedPart(c *counting, kind, name string, params []string) bool {
	plain, err := partName(c.place, name, params)
	if err != nil {
		s.errorf("", "by: %v", err)
		return false
	}
	c.name = kind + plain
	c.key = c.name // of the entry
	switch c.place {
	case inQuery:
		c.key = plain
	case inPath:
		c.segment = slices.Index(params, plain)
	}
	return true
}

// valuesOfBy returns what by may have.
func valuesOfBy() (list []string) {
	for _, kind := range kindsOfValues {
		name := kind.name
		if strings.HasSuffix(name, ".") {
			name += "NAME"
		}
		list = append(list, name)
	}
	return list
}

// groupOf returns the group of a request to r, whose path is read as won.
func (ix *resourceIndex) groupOf(r *resource, q *resourceQuery, won string) string {
	var values [maxBy]Entry
	for i := range r.by {
		c := r.by[i]
		ix.spell(q, won)
		value, _ := q.value(&c.criterion)
		if c.place == inPath {
			value = ix.pathValue(r, q, c.segment)
		}
		values[i] = Entry{c.name, value}
	}
	return r.rule.group(values[:len(r.by)])
}

// pathValue returns a segment of a request's path. A client could choose its counter by a spelling that servers read in
// several ways, so pathValue returns Others for all such paths.
func (ix *resourceIndex) pathValue(r *resource, q *resourceQuery, segment int) string {
	value := ix.segment(q, segment)
	if ix.asSent || !ambiguous(q.sent) {
		return value
	}
	differ := false
	compare := func(path string) {
		other := ix.read(q, path)
		differ = differ || other == r && ix.segment(q, segment) != value
	}
	compare(normalPath(q.sent, ix.cutParams))
	loosePaths(q.sent, compare)
	if differ {
		return Others
	}
	return value
}

// segment returns a segment of the path as requests are counted by it.
func (ix *resourceIndex) segment(q *resourceQuery, number int) string {
	value, _ := segmentOf(q.path, number)
	if ix.anyCase {
		value = fold(value)
	}
	return value
}

// keysOf returns the names of the values that the resources are counted by, and that are entries of that name.
func keysOf(resources []*resource) []string {
	names := map[string]bool{}
	for _, r := range resources {
		for i := range r.by {
			if r.by[i].place == inEntry {
				names[r.by[i].name] = true
			}
		}
		if r.except != nil {
			names[remoteAddress] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// fold returns path in the one form that all its spellings in upper and lower case have.
func fold(path string) string { return strings.Map(foldRune, path) }

// foldRune returns what stands for r and all letters that are the same but for their case: with s also the long one,
// and with k the sign of kelvin, as some servers have it.
func foldRune(r rune) rune {
	least := r
	for other := unicode.SimpleFold(r); other != r; other = unicode.SimpleFold(other) {
		least = min(least, other)
	}
	return unicode.ToLower(least)
}
