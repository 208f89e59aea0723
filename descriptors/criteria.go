package descriptors

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/headgate-rls/headgate/internal/kit/spell"
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
	maxCriteria = 32
	// maxMatchedHeaders keeps a domain's requests small: they carry an entry for each
	// of these headers, and one for each other criterion.
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

// A part is a part of requests that criteria look at.
type part uint8

const (
	inHeader part = iota
	inQuery
	inPath
	inAction
	inBinding
	inEntry // that has no other meaning
	inBody  // of an expression; no request can be asked for it
)

// A criterion is what one part of a request must be like.
type criterion struct {
	place   part
	key     string // of the entry, or the query parameter's name
	segment int    // of the path, from 0

	test   testKind
	negate bool
	value  string
	re     *regexp.Regexp
}

// holds reports whether q is as the criterion wants it. A part that is not there
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

// names are what problems call parts of requests.
var names = []string{inHeader: "header", inQuery: "query parameter", inPath: "path parameter"}

// criteria checks what m asks of the requests to p and compiles it. It returns m
// in the one form in which keys have it.
func (s *spot) criteria(m *Matcher, p *pathRule) (cs criteria, plain Matcher) {
	params := p.params()
	for _, kind := range []struct {
		part  part
		named map[string]Criterion
		to    *map[string]Criterion
	}{
		{inHeader, m.RequestHeaders, &plain.RequestHeaders},
		{inQuery, m.QueryParams, &plain.QueryParams},
		{inPath, m.PathParams, &plain.PathParams},
	} {
		if len(kind.named) > maxCriteria {
			s.errorf("match", "there are more than %d criteria for one kind of parts, %ss", maxCriteria, names[kind.part])
			continue
		}
		to := make(map[string]Criterion, len(kind.named))
		for _, written := range slices.Sorted(maps.Keys(kind.named)) {
			asked := kind.named[written]
			c, name, ok := s.criterion(kind.part, written, &asked, params)
			if _, twice := to[name]; ok && twice {
				s.part(asked.Place, nil).errorf("", "%s %q is given twice", names[kind.part], name)
			} else if ok {
				to[name] = Criterion{Operator: asked.plainOperator(), Value: asked.Value}
				cs.all = append(cs.all, c)
			}
		}
		*kind.to = to
	}
	s.conditions("allOf", m.AllOf, params, &cs.all, &plain.AllOf)
	s.conditions("anyOf", m.AnyOf, params, &cs.any, &plain.AnyOf)
	for _, soap := range []struct {
		field, value, entry string
		part                part
	}{{"soapAction", m.SOAPAction, soapActionEntry, inAction}, {"binding", m.Binding, soapBindingEntry, inBinding}} {
		if s.text(soap.field, soap.field, soap.value, maxValue) && soap.value != "" {
			cs.all = append(cs.all, criterion{place: soap.part, key: soap.entry, value: soap.value})
		}
	}
	plain.SOAPAction, plain.Binding = m.SOAPAction, m.Binding
	return cs, plain
}

// conditions is criteria for a list of conditions on expressions.
func (s *spot) conditions(field string, list []Condition, params []string, to *[]criterion, plain *[]Condition) {
	if len(list) > maxCriteria {
		s.errorf(field, "%s has more than %d entries", field, maxCriteria)
		return
	}
	for i := range list {
		asked := &list[i]
		at := s.part(asked.Place, nil)
		where, name, ok := parseExpression(asked.Expression)
		switch {
		case !at.text("", "expression", asked.Expression, maxValue):
			continue
		case !ok:
			at.errorf("", "expression %q is not understood; it must be ${context.request.headers.NAME}, "+
				"${context.request.queryParams.NAME} or ${context.request.pathParams.NAME}", spell.Short(asked.Expression))
			continue
		case where == inBody:
			at.errorf("",
				"an expression over the request's body can never be matched: Envoy asks before it has read the request's body; "+
					"match on headers, query or pathParams instead")
			continue
		}
		if c, name, ok := s.criterion(where, name, &asked.Criterion, params); ok {
			*to = append(*to, c)
			expression := "${context.request." + expressionParts[where] + "." + name + "}"
			*plain = append(*plain, Condition{expression, Criterion{Operator: asked.plainOperator(), Value: asked.Value}})
		}
	}
}

// plainOperator is the operator in keys, where the first is the empty text.
func (c *Criterion) plainOperator() string {
	if c.Operator == operators[0].name {
		return ""
	}
	return c.Operator
}

// criterion compiles what a part of requests must be like, and returns the name
// of the part as it is compared.
func (s *spot) criterion(where part, written string, asked *Criterion,
	params []string) (c criterion, name string, ok bool) {
	at := s.part(asked.Place, nil)
	if len(written) < 1 || len(written) > maxName || !utf8.ValidString(written) {
		at.errorf("", "the name of a %s must have 1 to %d characters", names[where], maxName)
		return c, "", false
	}
	c = criterion{place: where, value: asked.Value}
	name, err := partName(where, written, params)
	if err != nil {
		at.errorf("", "%v", err)
		return c, "", false
	}
	switch where {
	case inHeader:
		c.key = headerEntry + name
	case inQuery:
		c.key = name
	case inPath:
		c.segment = slices.Index(params, name)
	}
	return c, name, s.part(cmp.Or(asked.ValuePlace, asked.Place), nil).test(names[where]+" "+name, asked, &c)
}

// test compiles what is asked of a part.
func (s *spot) test(what string, asked *Criterion, c *criterion) bool {
	number := max(0, slices.Index(Operators(), asked.Operator))
	if number == 0 && asked.plainOperator() != "" {
		s.errorf("", "%s: operator %q is unknown; it must be %s", what, spell.Short(asked.Operator), spell.OneOf(Operators()))
		return false
	}
	c.test, c.negate = operators[number].test, operators[number].negate
	most := maxValue
	if c.test == testMatches {
		most = maxPattern
	}
	switch {
	case !s.text("", what, asked.Value, most):
		return false
	case c.test == testExists && asked.Value != "":
		s.errorf("", "%s takes no value", asked.Operator)
		return false
	case c.test == testContains && asked.Value == "":
		s.errorf("", "%s contains the empty text always; write {operator: Exists}", what)
		return false
	case c.test == testMatches:
		var err error
		if c.re, err = compile(asked.Value); err != nil {
			s.errorf("", "%s: %v", what, err)
			return false
		}
	}
	return true
}

// partName returns the name of a part of requests as it is compared. The error
// says why there is no such part.
func partName(where part, name string, params []string) (string, error) {
	switch where {
	case inHeader:
		name = strings.ToLower(name)
		if err := checkMatchedHeader(name); err != nil {
			return "", fmt.Errorf("header %q %w", spell.Short(name), err)
		}
	case inPath:
		if !slices.Contains(params, name) {
			return "", fmt.Errorf("the path has no parameter {%s}%s", spell.Short(name), spell.DidYouMean(name, params))
		}
	}
	return name, nil
}

// checkMatchedHeader says why requests cannot be matched by a header.
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
	return checkHeaderName(name)
}

// expression matches what expressions may say: a part of the request.
var expression = regexp.MustCompile(
	`^\$\{context\.request\.(?:(headers|queryParams|pathParams|formParams)\.([^{}:]+)|(body))\}$`)

// expressionParts are what expressions call the parts of requests.
var expressionParts = []string{inHeader: "headers", inQuery: "queryParams", inPath: "pathParams"}

// parseExpression returns the part of requests that an expression names, and
// inBody if it names the body or a form parameter.
func parseExpression(text string) (where part, name string, ok bool) {
	m := expression.FindStringSubmatch(text)
	if m == nil {
		return 0, "", false
	}
	if i := slices.Index(expressionParts, m[1]); i >= 0 {
		return part(i), m[2], true
	}
	return inBody, "", true
}

// AsksBody reports whether an expression is over the request's body, which Envoy's requests do not carry.
func AsksBody(expression string) bool {
	where, _, ok := parseExpression(expression)
	return ok && where == inBody
}

// TakesValue reports whether criteria with an operator compare with a value.
func TakesValue(operator string) bool {
	i := slices.Index(Operators(), operator)
	return i < 0 || operators[i].test != testExists
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
	sent    string // the path as it was sent
	path    string // a reading of it, in normal form
	folded  string // path as it is compared: see fold
	entries []Entry
	params  queryString
	steps   int
}

// value returns the part of the request that c looks at.
func (q *resourceQuery) value(c *criterion) (string, bool) {
	switch c.place {
	case inHeader, inBinding, inEntry:
		return q.entry(c.key)
	case inAction:
		action, ok := q.entry(c.key)
		return trimAction(action), ok
	case inQuery:
		return q.params.get(c.key)
	case inPath:
		return segmentOf(q.path, c.segment)
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

// segmentOf returns segment number i of a path in normal form, as it was meant.
func segmentOf(path string, i int) (string, bool) {
	for rest := path; rest != ""; i-- {
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
