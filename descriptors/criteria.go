package descriptors

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
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
	maxPattern  = 1000 // bytes of a regular expression
	// maxMatchedHeaders keeps a domain's requests within the 64 entries that
	// one descriptor may carry.
	maxMatchedHeaders = 56
)

// operators are the tests of a criterion. Their negations hold exactly where
// they do not.
var operators = []struct {
	name   string
	negate bool
	test   testKind
}{
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

// A place is a part of a request that criteria look at.
type place uint8

const (
	inHeader place = iota
	inQuery
	inPath
	inAction
	inBinding
	inBody // never seen in descriptors
)

// A criterion is what one part of a request must be like.
type criterion struct {
	place   place
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
	if c.place == inBody {
		return false // not even a negation: nobody knows
	}
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

// A matchReader reads the criteria of one resource, both as a Matcher, for its
// key, and as criteria, for requests.
type matchReader struct {
	l      *loader
	t      *twig
	params []string // of the path: the name of each segment, "" for none
	m      Matcher
	cs     criteria
}

func (r *matchReader) errorf(n *yaml.Node, format string, args ...any) {
	r.l.errorf(n, r.t, format, args...)
}

// read reads the criteria among f, the fields of a resource or of its match,
// which call some of them differently.
func (r *matchReader) read(f fields) {
	for _, kind := range []struct {
		names [2]string
		place place
		to    *map[string]Criterion
	}{
		{[2]string{"requestHeaders", "headers"}, inHeader, &r.m.RequestHeaders},
		{[2]string{"queryParams", "query"}, inQuery, &r.m.QueryParams},
		{[2]string{"pathParams"}, inPath, &r.m.PathParams},
		{[2]string{"formParams"}, inBody, &r.m.FormParams},
	} {
		for _, name := range kind.names {
			if n := f.get(name); n != nil && !isNull(n) {
				r.named(n, name, kind.place, kind.to)
			}
		}
	}
	if n := f.get("requestBody"); n != nil && !isNull(n) {
		r.requestBody(n)
	}
	if n := f.get("allOf"); n != nil && !isNull(n) {
		r.expressions(n, "allOf", &r.m.AllOf, &r.cs.all)
	}
	if n := f.get("anyOf"); n != nil && !isNull(n) {
		r.expressions(n, "anyOf", &r.m.AnyOf, &r.cs.any)
	}
	r.soap(f.get("soapAction"), "soapAction", inAction, soapActionEntry, &r.m.SOAPAction)
	r.soap(f.get("binding"), "binding", inBinding, soapBindingEntry, &r.m.Binding)
}

// soap reads a field that requests must equal.
func (r *matchReader) soap(n *yaml.Node, what string, place place, entry string, to *string) {
	if n == nil || isNull(n) {
		return
	}
	s, ok := r.l.text(n, r.t, what, maxValue)
	switch {
	case !ok:
	case s == "":
		r.errorf(n, "%s is empty; leave it out to match any", what)
	case *to != "":
		r.errorf(n, "%s is given twice, in the resource and in its match", what)
	default:
		*to = s
		r.cs.all = append(r.cs.all, criterion{place: place, key: entry, value: s})
	}
}

// named reads criteria by the name of what they look at.
func (r *matchReader) named(n *yaml.Node, what string, place place, to *map[string]Criterion) {
	pairs, ok := r.l.mapping(n, r.t, what)
	if !ok {
		return
	}
	if len(pairs)+len(*to) > maxCriteria {
		r.errorf(n, "%s has more than %d entries", what, maxCriteria)
		return
	}
	if *to == nil {
		*to = map[string]Criterion{}
	}
	if place == inBody {
		r.unseen(n, what)
	}
	for _, p := range pairs {
		c := criterion{place: place}
		name, ok := r.name(p.key, p.name, &c)
		if !ok {
			continue
		}
		if _, twice := (*to)[name]; twice {
			r.errorf(p.key, "%s %q is given twice", what, name)
			continue
		}
		if (*to)[name], ok = r.condition(p.value, what+" "+name, &c); ok {
			r.cs.all = append(r.cs.all, c)
		}
	}
}

// name checks the name of a part of requests, and makes c look there.
func (r *matchReader) name(n *yaml.Node, name string, c *criterion) (string, bool) {
	if name == "" || len(name) > maxName {
		r.errorf(n, "a name must have 1 to %d characters", maxName)
		return "", false
	}
	switch c.place {
	case inHeader:
		name = strings.ToLower(name)
		if err := checkMatchedHeader(name); err != nil {
			r.errorf(n, "header %q %v", short(name), err)
			return "", false
		}
		c.key = headerEntry + name
	case inQuery:
		c.key = name
	case inPath:
		if c.segment = slices.Index(r.params, name); c.segment < 0 {
			r.errorf(n, "the path has no parameter {%s}%s", short(name), didYouMean(name, r.params))
			return "", false
		}
	}
	return name, true
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
		return fmt.Errorf("is no pseudo header of requests")
	}
	if slices.Contains(connectionHeaders, name) {
		return nil // they may be looked at
	}
	return checkHeaderName(name)
}

// unseen reports criteria that Envoy's rate limit requests cannot carry.
func (r *matchReader) unseen(n *yaml.Node, what string) {
	if r.l.opt.Library {
		return
	}
	r.errorf(n, "%s can never be matched: Envoy asks before it has read the request's body; "+
		"match on headers, query or pathParams instead", what)
}

// condition reads a value, or {value, operator}. For the criterion's part in a
// key, EqualTo is the operator of a bare value.
func (r *matchReader) condition(n *yaml.Node, what string, c *criterion) (Criterion, bool) {
	if n.Kind != yaml.MappingNode {
		return r.test(n, n, "", what, c)
	}
	f, ok := r.l.fields(n, levelCriterion, r.t)
	if !ok {
		return Criterion{}, false
	}
	return r.conditionOf(n, f, what, c)
}

func (r *matchReader) conditionOf(n *yaml.Node, f fields, what string, c *criterion) (Criterion, bool) {
	operator := ""
	if o := f.get("operator"); o != nil {
		i, ok := r.l.word(o, r.t, "operator", operatorNames()...)
		if !ok {
			return Criterion{}, false
		}
		c.test, c.negate = operators[i].test, operators[i].negate
		if i > 0 {
			operator = operators[i].name
		}
	}
	value := f.get("value")
	if c.test == testExists {
		if value != nil {
			r.errorf(value, "%s takes no value", operator)
			return Criterion{}, false
		}
		return Criterion{Operator: operator}, true
	}
	return r.test(n, value, operator, what, c)
}

// test reads the value that a criterion compares with.
func (r *matchReader) test(n, value *yaml.Node, operator, what string, c *criterion) (Criterion, bool) {
	if value == nil || isNull(value) {
		r.errorf(n, "%s has no value; for whether it is there at all write {operator: Exists} or NotExists", what)
		return Criterion{}, false
	}
	most := maxValue
	if c.test == testMatches {
		most = maxPattern
	}
	s, ok := r.l.text(value, r.t, what, most)
	if !ok {
		return Criterion{}, false
	}
	if c.test == testMatches {
		var err error
		if c.re, err = regexp.Compile(s); err != nil {
			r.errorf(value, "%s: %v", what, err)
			return Criterion{}, false
		}
	}
	if c.test == testContains && s == "" {
		r.errorf(value, "%s contains the empty text always; write {operator: Exists}", what)
		return Criterion{}, false
	}
	c.value = s
	return Criterion{Operator: operator, Value: s}, true
}

// expression matches what expressions may say: a part of the request.
var expression = regexp.MustCompile(`^\$\{context\.request\.(?:(headers|queryParams|pathParams|formParams)\.([^{}:]+)|(body))\}$`)

// expressions reads a list of conditions on expressions.
func (r *matchReader) expressions(n *yaml.Node, what string, to *[]Condition, cs *[]criterion) {
	r.l.list(n, r.t, what, func(n *yaml.Node) {
		if len(*to) == maxCriteria {
			r.errorf(n, "%s has more than %d entries", what, maxCriteria)
			return
		}
		f, ok := r.l.fields(n, levelExpression, r.t)
		if !ok {
			return
		}
		e := f.get("expression")
		if e == nil {
			r.errorf(n, "an entry of %s has no expression", what)
			return
		}
		text, ok := r.l.text(e, r.t, "expression", maxValue)
		if !ok {
			return
		}
		var c criterion
		if text, ok = r.expression(e, text, &c); !ok {
			return
		}
		condition, ok := r.conditionOf(n, f, what, &c)
		if !ok {
			return
		}
		*to = append(*to, Condition{text, condition})
		*cs = append(*cs, c)
	})
}

// expression makes c look at what an expression says, and returns it as one
// and the same part is always written.
func (r *matchReader) expression(n *yaml.Node, text string, c *criterion) (string, bool) {
	m := expression.FindStringSubmatch(text)
	if m == nil {
		r.errorf(n, "expression %q is not understood; it must be ${context.request.headers.NAME}, "+
			"${context.request.queryParams.NAME} or ${context.request.pathParams.NAME}", short(text))
		return "", false
	}
	switch m[1] {
	case "headers":
		c.place = inHeader
	case "queryParams":
		c.place = inQuery
	case "pathParams":
		c.place = inPath
	default:
		c.place = inBody
		r.unseen(n, "an expression over the request's body")
		return text, true
	}
	name, ok := r.name(n, m[2], c)
	return "${context.request." + m[1] + "." + name + "}", ok
}

// requestBody reads conditions on the body: one, or a list under allOf or
// anyOf.
func (r *matchReader) requestBody(n *yaml.Node) {
	r.unseen(n, "requestBody")
	f, ok := r.l.fields(n, levelBody, r.t)
	if !ok {
		return
	}
	lists := 0
	for name, to := range map[string]*[]BodyCriterion{"allOf": &r.m.RequestBody, "anyOf": &r.m.BodyAnyOf} {
		list := f.get(name)
		if list == nil {
			continue
		}
		lists++
		r.l.list(list, r.t, "requestBody "+name, func(n *yaml.Node) {
			if len(*to) == maxCriteria {
				r.errorf(n, "requestBody %s has more than %d entries", name, maxCriteria)
				return
			}
			if f, ok := r.l.fields(n, levelBodyCriterion, r.t); ok {
				r.body(n, f, to)
			}
		})
	}
	if lists == 0 {
		r.body(n, f, &r.m.RequestBody)
	} else if lists != 1 || len(f) > lists {
		r.errorf(n, "requestBody is one condition, or a list of them under allOf or anyOf")
	}
	r.cs.all = append(r.cs.all, criterion{place: inBody})
}

func (r *matchReader) body(n *yaml.Node, f fields, to *[]BodyCriterion) {
	var b BodyCriterion
	for name, text := range map[string]*string{"jsonPath": &b.JSONPath, "xPath": &b.XPath} {
		if v := f.get(name); v != nil {
			*text, _ = r.l.text(v, r.t, name, maxValue)
		}
	}
	if b.JSONPath != "" && b.XPath != "" {
		r.errorf(n, "a condition on the body has a jsonPath or an xPath, not both")
	}
	var ok bool
	if b.Criterion, ok = r.conditionOf(n, f, "requestBody", &criterion{place: inBody}); ok {
		*to = append(*to, b)
	}
}

func operatorNames() []string {
	var names []string
	for _, o := range operators {
		names = append(names, o.name)
	}
	return names
}
