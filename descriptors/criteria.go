package descriptors

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/headgate-rls/headgate/internal/spell"
)

// Entries of a descriptor that asks for resources. The first two come first,
// in this order; the others in any.
const (
	methodEntry      = "method"
	pathEntry        = "path" // with the query
	headerEntry      = "header."
	soapActionEntry  = "soap_action"
	soapBindingEntry = "soap_binding"
)

const (
	MaxCriteria = 32
	// maxMatchedHeaders keeps a domain's requests within the 64 entries that
	// one descriptor may carry.
	maxMatchedHeaders = 56
)

// An operator is one test of a criterion, or its negation.
type operator struct {
	name   string
	negate bool
	test   testKind
}

// operators are the tests of a criterion. Their negations hold exactly where
// they do not.
var operators = []operator{
	{"EqualTo", false, testEqual},
	{"NotEqualTo", true, testEqual},
	{"Contains", false, testContains},
	{"NotContains", true, testContains},
	{"Matches", false, testMatches},
	{"NotMatches", true, testMatches},
	{"Exists", false, testExists},
	{"NotExists", true, testExists},
}

type testKind uint8

const (
	testEqual testKind = iota
	testContains
	testMatches
	testExists
)

// A Part is a part of requests that criteria look at.
type Part uint8

const (
	InHeader Part = iota
	InQuery
	InPath
	inAction
	inBinding
	InBody // of an expression; no request can be asked for it
)

// A criterion is what one part of a request must be like.
type criterion struct {
	place   Part
	key     string // of the entry, or the query parameter's name
	segment int    // of the path, from 0

	test   testKind
	negate bool
	value  string
	re     *regexp.Regexp
}

// holds says whether q is as the criterion wants it. A part that is not there
// equals, contains and matches nothing, also no empty value.
func (c *criterion) holds(q *resourceQuery) bool {
	v, ok := q.value(c)
	if ok {
		switch c.test {
		case testEqual:
			ok = v == c.value
		case testContains:
			ok = strings.Contains(v, c.value)
		case testMatches:
			ok = c.re.MatchString(v)
		}
	}
	return ok != c.negate
}

// criteria are a resource's Matcher, ready to be asked.
type criteria struct {
	all, any []criterion
}

// count is how specific the criteria are.
func (cs *criteria) count() int {
	if len(cs.any) > 0 {
		return len(cs.all) + 1
	}
	return len(cs.all)
}

func (cs *criteria) hold(q *resourceQuery) bool {
	for i := range cs.all {
		if !cs.all[i].holds(q) {
			return false
		}
	}
	for i := range cs.any {
		if cs.any[i].holds(q) {
			return true
		}
	}
	return len(cs.any) == 0
}

// each calls f for every criterion.
func (cs *criteria) each(f func(*criterion)) {
	for i := range cs.all {
		f(&cs.all[i])
	}
	for i := range cs.any {
		f(&cs.any[i])
	}
}

// criteria returns what m asks of the requests to p. The error says what no
// request can be asked.
func (m *Matcher) criteria(p *Path) (criteria, error) {
	cs := criteria{}
	params := p.Params()
	for _, kind := range []struct {
		place Part
		named map[string]Criterion
	}{{InHeader, m.RequestHeaders}, {InQuery, m.QueryParams}, {InPath, m.PathParams}} {
		for _, name := range slices.Sorted(maps.Keys(kind.named)) {
			c, err := newCriterion(kind.place, name, kind.named[name], params)
			if err != nil {
				return cs, err
			}
			cs.all = append(cs.all, c)
		}
	}
	for _, list := range []struct {
		conditions []Condition
		to         *[]criterion
	}{{m.AllOf, &cs.all}, {m.AnyOf, &cs.any}} {
		for _, condition := range list.conditions {
			place, name, ok := ParseExpression(condition.Expression)
			if !ok {
				return cs, fmt.Errorf("expression %q is not understood", spell.Short(condition.Expression))
			}
			c, err := newCriterion(place, name, condition.Criterion, params)
			if err != nil {
				return cs, err
			}
			*list.to = append(*list.to, c)
		}
	}
	if m.SOAPAction != "" {
		cs.all = append(cs.all, criterion{place: inAction, key: soapActionEntry, value: m.SOAPAction})
	}
	if m.Binding != "" {
		cs.all = append(cs.all, criterion{place: inBinding, key: soapBindingEntry, value: m.Binding})
	}
	return cs, nil
}

// newCriterion compiles what a part of requests must be like.
func newCriterion(where Part, name string, asked Criterion, params []string) (criterion, error) {
	c := criterion{place: where, value: asked.Value}
	name, err := PartName(where, name, params)
	if err != nil {
		return c, err
	}
	switch where {
	case InHeader:
		c.key = headerEntry + name
	case InQuery:
		c.key = name
	case InPath:
		c.segment = slices.Index(params, name)
	}
	operator := max(0, slices.Index(Operators(), asked.Operator))
	if operator == 0 && asked.Operator != "" {
		return c, fmt.Errorf("unknown operator %q", spell.Short(asked.Operator))
	}
	c.test, c.negate = operators[operator].test, operators[operator].negate
	if c.test == testMatches {
		c.re, err = regexp.Compile(asked.Value)
	}
	return c, err
}

// PartName returns the name of a part of requests as it is compared. The error
// says why there is no such part.
func PartName(where Part, name string, params []string) (string, error) {
	switch where {
	case InBody:
		return "", errors.New("no request can be asked for its body")
	case InHeader:
		name = strings.ToLower(name)
		if err := checkMatchedHeader(name); err != nil {
			return "", fmt.Errorf("header %q %w", spell.Short(name), err)
		}
	case InPath:
		if !slices.Contains(params, name) {
			return "", fmt.Errorf("the path has no parameter {%s}%s", spell.Short(name), spell.DidYouMean(name, params))
		}
	}
	return name, nil
}

// checkMatchedHeader says why requests cannot be told apart by a header.
func checkMatchedHeader(name string) error {
	switch name {
	case ":authority", ":scheme":
		return nil
	case ":method", ":path":
		return fmt.Errorf("is matched by the resource's %s", name[1:])
	case "host":
		return fmt.Errorf("is called :authority")
	}
	if name[0] == ':' {
		return fmt.Errorf("is not a pseudo header of requests")
	}
	if slices.Contains(connectionHeaders, name) {
		return nil // they may be looked at
	}
	return CheckHeaderName(name)
}

// expression matches what expressions may say: a part of the request.
var expression = regexp.MustCompile(`^\$\{context\.request\.(?:(headers|queryParams|pathParams|formParams)\.([^{}:]+)|(body))\}$`)

// expressionParts are what expressions call the parts of requests.
var expressionParts = []string{InHeader: "headers", InQuery: "queryParams", InPath: "pathParams"}

// ParseExpression returns the part of requests that an expression names, and
// InBody if it names the body or a form parameter.
func ParseExpression(text string) (where Part, name string, ok bool) {
	m := expression.FindStringSubmatch(text)
	if m == nil {
		return 0, "", false
	}
	if i := slices.Index(expressionParts, m[1]); i >= 0 {
		return Part(i), m[2], true
	}
	return InBody, "", true
}

// Expression returns the expression for a part of requests.
func Expression(where Part, name string) string {
	return "${context.request." + expressionParts[where] + "." + name + "}"
}

// Operators returns the names of all operators. The first is that of a bare value.
func Operators() []string {
	var names []string
	for _, o := range operators {
		names = append(names, o.name)
	}
	return names
}

// A resourceQuery is one request as resources see it.
type resourceQuery struct {
	method  string
	path    string // in normal form
	entries []Entry
	params  queryString
	steps   int
}

// value returns the part of the request that c looks at.
func (q *resourceQuery) value(c *criterion) (string, bool) {
	switch c.place {
	case InHeader, inBinding:
		return q.entry(c.key)
	case inAction:
		action, ok := q.entry(c.key)
		return trimAction(action), ok
	case InQuery:
		return q.params.get(c.key)
	case InPath:
		return q.segment(c.segment)
	}
	return "", false
}

// entry returns the value of the first entry called key.
func (q *resourceQuery) entry(key string) (string, bool) {
	for i := range q.entries {
		if q.entries[i].Key == key {
			return q.entries[i].Value, true
		}
	}
	return "", false
}

// segment returns segment number i of the path, as it was meant.
func (q *resourceQuery) segment(i int) (string, bool) {
	for rest := q.path; rest != ""; i-- {
		var segment string
		segment, rest = cutSegment(rest)
		if i == 0 {
			return plainSegment(segment), true
		}
	}
	return "", false
}

// trimAction returns a SOAPAction without the quotes that it is sent in.
func trimAction(action string) string {
	return strings.Trim(action, " \t\"")
}
