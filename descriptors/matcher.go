package descriptors

import (
	"regexp/syntax"

	"go.yaml.in/yaml/v3"
)

// A matchReader reads the criteria of one resource.
type matchReader struct {
	l      *loader
	t      *twig
	params []string // of the path: the name of each segment, "" for none
	m      Matcher
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
	} {
		for _, name := range kind.names {
			if n := f.get(name); n != nil && !isNull(n) {
				r.named(n, name, kind.place, kind.to)
			}
		}
	}
	for _, name := range []string{"formParams", "requestBody"} {
		if n := f.get(name); n != nil && !isNull(n) {
			r.unseen(n, name)
		}
	}
	if n := f.get("allOf"); n != nil && !isNull(n) {
		r.expressions(n, "allOf", &r.m.AllOf)
	}
	if n := f.get("anyOf"); n != nil && !isNull(n) {
		r.expressions(n, "anyOf", &r.m.AnyOf)
	}
	r.soap(f.get("soapAction"), "soapAction", &r.m.SOAPAction)
	r.soap(f.get("binding"), "binding", &r.m.Binding)
}

// soap reads a field that requests must equal.
func (r *matchReader) soap(n *yaml.Node, what string, to *string) {
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
	for _, p := range pairs {
		name, ok := r.name(p.key, p.name, place)
		if !ok {
			continue
		}
		if _, twice := (*to)[name]; twice {
			r.errorf(p.key, "%s %q is given twice", what, name)
			continue
		}
		(*to)[name] = r.condition(p.value, what+" "+name)
	}
}

// name checks the name of a part of requests.
func (r *matchReader) name(n *yaml.Node, name string, where place) (string, bool) {
	if name == "" || len(name) > maxName {
		r.errorf(n, "a name must have 1 to %d characters", maxName)
		return "", false
	}
	name, err := partName(where, name, r.params)
	if err != nil {
		r.errorf(n, "%v", err)
	}
	return name, err == nil
}

// unseen reports criteria that Envoy's rate limit requests cannot carry.
func (r *matchReader) unseen(n *yaml.Node, what string) {
	r.errorf(n, "%s can never be matched: Envoy asks before it has read the request's body; "+
		"match on headers, query or pathParams instead", what)
}

// condition reads a value, or {value, operator}. For the criterion's part in a
// key, EqualTo is the operator of a bare value.
func (r *matchReader) condition(n *yaml.Node, what string) Criterion {
	if n.Kind != yaml.MappingNode {
		return r.test(n, n, &operators[0], what)
	}
	f, ok := r.l.fields(n, levelCriterion, r.t)
	if !ok {
		return Criterion{}
	}
	return r.conditionOf(n, f, what)
}

func (r *matchReader) conditionOf(n *yaml.Node, f fields, what string) Criterion {
	op := &operators[0]
	if o := f.get("operator"); o != nil {
		i, ok := r.l.word(o, r.t, "operator", operatorNames()...)
		if !ok {
			return Criterion{}
		}
		op = &operators[i]
	}
	value := f.get("value")
	if op.test != testExists {
		return r.test(n, value, op, what)
	}
	if value != nil {
		r.errorf(value, "%s takes no value", op.name)
	}
	return Criterion{Operator: op.name}
}

// test reads the value that a criterion compares with.
func (r *matchReader) test(n, value *yaml.Node, op *operator, what string) Criterion {
	if value == nil || isNull(value) {
		r.errorf(n, "%s has no value; for whether it is there at all write {operator: Exists} or NotExists", what)
		return Criterion{}
	}
	most := maxValue
	if op.test == testMatches {
		most = maxPattern
	}
	s, ok := r.l.text(value, r.t, what, most)
	if !ok {
		return Criterion{}
	}
	if op.test == testMatches {
		if _, err := syntax.Parse(s, syntax.Perl); err != nil {
			r.errorf(value, "%s: %v", what, err)
		}
	}
	if op.test == testContains && s == "" {
		r.errorf(value, "%s contains the empty text always; write {operator: Exists}", what)
	}
	if op == &operators[0] {
		return Criterion{Value: s}
	}
	return Criterion{Operator: op.name, Value: s}
}

// expressions reads a list of conditions on expressions.
func (r *matchReader) expressions(n *yaml.Node, what string, to *[]Condition) {
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
		if text, ok = r.expression(e, text); ok {
			*to = append(*to, Condition{text, r.conditionOf(n, f, what)})
		}
	})
}

// expression returns an expression as one and the same part is always written.
func (r *matchReader) expression(n *yaml.Node, text string) (string, bool) {
	where, name, ok := parseExpression(text)
	switch {
	case !ok:
		r.errorf(n, "expression %q is not understood; it must be ${context.request.headers.NAME}, "+
			"${context.request.queryParams.NAME} or ${context.request.pathParams.NAME}", short(text))
		return "", false
	case where == inBody:
		r.unseen(n, "an expression over the request's body")
		return "", false
	}
	name, ok = r.name(n, name, where)
	return "${context.request." + expressionParts[where] + "." + name + "}", ok
}
