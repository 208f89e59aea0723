package descriptors

import (
	"cmp"
	"math"
	"sort"
	"strings"
)

// A resource is a rule for the requests with a method and path, or SOAP
// operation, that meet its criteria.
type resource struct {
	rule   *Rule
	method string // "" for any
	pathRule
	criteria
	by     []*counting // what requests are counted by
	except *networks   // of remote_address
	order  int

	place Place
	asks  *Matcher // the criteria in the one form that keys have
}

// A resourceIndex finds the resource for a request. It is immutable.
type resourceIndex struct {
	all []*resource // as they were read

	operations map[string][]*resource // by SOAP operation, "" for any
	exact      map[string][]*resource // by path
	templates  *segments
	prefixes   *segments
	regexes    []*resource
	anyPath    []*resource

	params    map[string]bool // names of query parameters that criteria ask for
	cutParams bool            // of paths: see normalPath
	asSent    bool            // other spellings of a path do not count: see loosePaths
	anyCase   bool            // of paths: see fold
}

// segments is a tree of path segments.
type segments struct {
	literal map[string]*segments
	param   *segments
	here    []*resource // whose path ends here
}

func (ix *resourceIndex) add(r *resource) {
	r.looksAt(func(c *criterion) {
		if c.place == inQuery {
			ix.params[c.key] = true
		}
	})
	switch r.class {
	case classOperation:
		ix.operations[r.name] = append(ix.operations[r.name], r)
	case classExact:
		ix.exact[r.name] = append(ix.exact[r.name], r)
	case classTemplate:
		ix.templates.add(r)
	case classPrefix:
		ix.prefixes.add(r)
	case classRegex:
		ix.regexes = append(ix.regexes, r)
	case classAny:
		ix.anyPath = append(ix.anyPath, r)
	}
}

func (s *segments) add(r *resource) {
	for rest := r.name; rest != ""; {
		var segment string
		segment, rest = cutSegment(rest)
		s = s.child(segment)
	}
	s.here = append(s.here, r)
}

func (s *segments) child(segment string) *segments {
	if _, ok := paramName(segment); ok {
		if s.param == nil {
			s.param = &segments{}
		}
		return s.param
	}
	if s.literal == nil {
		s.literal = map[string]*segments{}
	}
	if s.literal[segment] == nil {
		s.literal[segment] = &segments{}
	}
	return s.literal[segment]
}

// lists calls f for every list of resources that are tried one by one.
func (ix *resourceIndex) lists(f func([]*resource)) {
	for _, list := range ix.operations {
		f(list)
	}
	for _, list := range ix.exact {
		f(list)
	}
	ix.templates.lists(f)
	ix.prefixes.lists(f)
	f(ix.anyPath)
}

func (s *segments) lists(f func([]*resource)) {
	f(s.here)
	for _, c := range s.literal {
		c.lists(f)
	}
	if s.param != nil {
		s.param.lists(f)
	}
}

// sort puts the more specific resources first.
func (ix *resourceIndex) sort() {
	ix.lists(func(list []*resource) {
		sort.SliceStable(list, func(i, j int) bool { return moreSpecific(list[i], list[j]) < 0 })
	})
	sort.SliceStable(ix.regexes, func(i, j int) bool {
		a, b := ix.regexes[i], ix.regexes[j]
		return cmp.Or(cmp.Compare(len(b.prefix), len(a.prefix)), moreSpecific(a, b)) < 0
	})
}

// moreSpecific orders resources whose paths are equally specific: more
// criteria first, then those with a method, then the earlier in the file.
func moreSpecific(a, b *resource) int {
	anyMethod := func(r *resource) int {
		if r.method == "" {
			return 1
		}
		return 0
	}
	return cmp.Or(
		cmp.Compare(b.criteria.count(), a.criteria.count()),
		cmp.Compare(anyMethod(a), anyMethod(b)),
		cmp.Compare(a.order, b.order),
	)
}

// asksForResource reports whether a descriptor describes a request by its method
// and path.
func asksForResource(entries []Entry) bool {
	return len(entries) >= 2 && entries[0].Key == methodEntry && entries[1].Key == pathEntry
}

// find returns the resource that a descriptor matches, or nil, and the counters' group of the request. It adds the
// number of comparisons to steps.
func (ix *resourceIndex) find(entries []Entry, steps *int) (r *resource, group string) {
	q := resourceQuery{method: entries[0].Value, entries: entries}
	q.sent, q.params.raw = splitTarget(entries[1].Value)
	q.params.wanted = ix.params
	won := normalPath(q.sent, ix.cutParams)
	r = ix.read(&q, won)
	if !ix.asSent && ambiguous(q.sent) {
		loosePaths(q.sent, func(loose string) {
			if other := ix.read(&q, loose); other.comesBefore(r) {
				r, won = other, loose
			}
		})
	}
	if r != nil {
		group = r.rule.fixed
	}
	if r != nil && len(r.by) > 0 && r.limits() {
		group = ix.groupOf(r, &q, won)
	}
	*steps += q.steps
	return r, group
}

// read returns the resource of a request whose path is read in one way.
func (ix *resourceIndex) read(q *resourceQuery, path string) *resource {
	ix.spell(q, path)
	return ix.first(q)
}

// spell has a request be one for a path in normal form.
func (ix *resourceIndex) spell(q *resourceQuery, path string) {
	q.path, q.folded = path, path
	if ix.anyCase {
		q.folded = fold(path)
	}
}

// comesBefore reports whether r, which a request matches in another spelling of its path, counts instead of the
// resource that it matches in another one or as it was sent. Neither an exemption nor a less specific rule does. Of two
// that are as specific, the one that lets less pass does: else clients could choose the other one by their spelling.
func (r *resource) comesBefore(other *resource) bool {
	return r != nil && r.limits() && (other == nil || !other.limits() || r.class < other.class ||
		r.class == other.class && r.rate() <= other.rate())
}

// rate is how many units the tightest limit of r lets pass in a second. Limits on trial let everything pass, and
// requests in flight have no rate.
func (r *resource) rate() float64 {
	rate := math.Inf(1)
	for i := range r.rule.Limits {
		if l := &r.rule.Limits[i]; !l.Shadow && !r.rule.Shadow {
			rate = min(rate, float64(l.Limit.Max())/l.Limit.Window().Seconds())
		}
	}
	return rate
}

func (r *resource) limits() bool { return len(r.rule.Limits) > 0 || r.rule.Concurrency != nil }

// first tries one class of paths after the other.
func (ix *resourceIndex) first(q *resourceQuery) *resource {
	if len(ix.operations) > 0 && strings.EqualFold(q.method, "POST") {
		if action, ok := q.entry(soapActionEntry); ok {
			name := soapOperation(action)
			if r := q.pick(ix.operations[name]); r != nil {
				return r
			}
			if name != "" {
				if r := q.pick(ix.operations[""]); r != nil {
					return r
				}
			}
		}
	}
	if strings.HasPrefix(q.folded, "/") {
		if r := q.pick(ix.exact[q.folded]); r != nil {
			return r
		}
		rest := strings.TrimSuffix(q.folded, "/") // only "/" has one
		if r := ix.templates.whole(rest, q); r != nil {
			return r
		}
		if r := ix.prefixes.start(rest, q); r != nil {
			return r
		}
	}
	for _, r := range ix.regexes {
		q.steps++
		if r.start && !ix.anyCase && !strings.HasPrefix(q.path, r.prefix) {
			continue
		}
		if r.matches(q) && r.re.MatchString(q.path) {
			return r
		}
	}
	return q.pick(ix.anyPath)
}

// whole returns the resource for a path that ends where its template does. A
// literal segment comes before a parameter, from the left.
func (s *segments) whole(rest string, q *resourceQuery) *resource {
	if rest == "" {
		return q.pick(s.here)
	}
	segment, rest := cutSegment(rest)
	q.steps++
	if c := s.literal[segment]; c != nil {
		if r := c.whole(rest, q); r != nil {
			return r
		}
	}
	if s.param != nil {
		return s.param.whole(rest, q)
	}
	return nil
}

// start returns the resource for the longest start of a path.
func (s *segments) start(rest string, q *resourceQuery) *resource {
	if rest != "" {
		segment, rest := cutSegment(rest)
		q.steps++
		if c := s.literal[segment]; c != nil {
			if r := c.start(rest, q); r != nil {
				return r
			}
		}
		if s.param != nil {
			if r := s.param.start(rest, q); r != nil {
				return r
			}
		}
	}
	return q.pick(s.here)
}

// pick returns the first of list that matches.
func (q *resourceQuery) pick(list []*resource) *resource {
	for _, r := range list {
		q.steps++
		if r.matches(q) {
			return r
		}
	}
	return nil
}

// matches reports whether all but the path of r matches.
func (r *resource) matches(q *resourceQuery) bool {
	return (r.method == "" || strings.EqualFold(r.method, q.method)) && r.hold(q) && !r.exempts(q)
}

// exempts reports whether the client of q is one that r is not for.
func (r *resource) exempts(q *resourceQuery) bool {
	if r.except == nil {
		return false
	}
	address, _ := q.entry(remoteAddress)
	return r.except.have(address)
}

// looksAt calls f for all parts of requests that r is interested in.
func (r *resource) looksAt(f func(*criterion)) {
	r.each(f)
	for i := range r.by {
		f(&r.by[i].criterion)
	}
}

// soapOperation returns the operation that a SOAPAction stands for: what
// follows its last separator.
func soapOperation(action string) string {
	action = trimAction(action)
	return action[strings.LastIndexAny(action, "/#:")+1:]
}
