package rulefile

import (
	"regexp/syntax"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/internal/spell"
)

// A matchReader reads the criteria of one resource.
type matchReader struct {
	l      *loader
	t      *twig
	params []string // of the path: the name of each segment, "" for none
	m      descriptors.Matcher
}

func (r *matchReader) errorf(n *yaml.Node, format string, args ...any) {
	r.l.errorf(n, r.t, format, args...)
}

// read reads the criteria among f, the fields of a resource or of its match,
// which call some of them differently.
func (r *matchReader) read(f fields) {
	for _, kind := range []struct {
		names [2]string
		place descriptors.Part
		to    *map[string]descriptors.Criterion
	}{
		{[2]string{"requestHeaders", "headers"}, descriptors.InHeader, &r.m.RequestHeaders},
		{[2]string{"queryParams", "query"}, descriptors.InQuery, &r.m.QueryParams},
		{[2]string{"pathParams"}, descriptors.InPath, &r.m.PathParams},
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
func (r *matchReader) named(n *yaml.Node, what string, place descriptors.Part, to *map[string]descriptors.Criterion) {
	pairs, ok := r.l.mapping(n, r.t, what)
	if !ok {
		return
	}
	if len(pairs)+len(*to) > descriptors.MaxCriteria {
		r.errorf(n, "%s has more than %d entries", what, descriptors.MaxCriteria)
		return
	}
	if *to == nil {
		*to = map[string]descriptors.Criterion{}
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
func (r *matchReader) name(n *yaml.Node, name string, where descriptors.Part) (string, bool) {
	if name == "" || len(name) > maxName {
		r.errorf(n, "a name must have 1 to %d characters", maxName)
		return "", false
	}
	name, err := descriptors.PartName(where, name, r.params)
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
func (r *matchReader) condition(n *yaml.Node, what string) descriptors.Criterion {
	if n.Kind != yaml.MappingNode {
		return r.test(n, n, descriptors.Operators()[0], what)
	}
	f, ok := r.l.fields(n, levelCriterion, r.t)
	if !ok {
		return descriptors.Criterion{}
	}
	return r.conditionOf(n, f, what)
}

func (r *matchReader) conditionOf(n *yaml.Node, f fields, what string) descriptors.Criterion {
	op := descriptors.Operators()[0]
	if o := f.get("operator"); o != nil {
		i, ok := r.l.word(o, r.t, "operator", descriptors.Operators()...)
		if !ok {
			return descriptors.Criterion{}
		}
		op = descriptors.Operators()[i]
	}
	value := f.get("value")
	if !strings.HasSuffix(op, "Exists") {
		return r.test(n, value, op, what)
	}
	if value != nil {
		r.errorf(value, "%s takes no value", op)
	}
	return descriptors.Criterion{Operator: op}
}

// test reads the value that a criterion compares with.
func (r *matchReader) test(n, value *yaml.Node, op string, what string) descriptors.Criterion {
	if value == nil || isNull(value) {
		r.errorf(n, "%s has no value; for whether it is there at all write {operator: Exists} or NotExists", what)
		return descriptors.Criterion{}
	}
	most := maxValue
	if strings.HasSuffix(op, "Matches") {
		most = descriptors.MaxPattern
	}
	s, ok := r.l.text(value, r.t, what, most)
	if !ok {
		return descriptors.Criterion{}
	}
	if strings.HasSuffix(op, "Matches") {
		if _, err := syntax.Parse(s, syntax.Perl); err != nil {
			r.errorf(value, "%s: %v", what, err)
		}
	}
	if strings.HasSuffix(op, "Contains") && s == "" {
		r.errorf(value, "%s contains the empty text always; write {operator: Exists}", what)
	}
	if op == descriptors.Operators()[0] {
		return descriptors.Criterion{Value: s}
	}
	return descriptors.Criterion{Operator: op, Value: s}
}

// expressions reads a list of conditions on expressions.
func (r *matchReader) expressions(n *yaml.Node, what string, to *[]descriptors.Condition) {
	r.l.list(n, r.t, what, func(n *yaml.Node) {
		if len(*to) == descriptors.MaxCriteria {
			r.errorf(n, "%s has more than %d entries", what, descriptors.MaxCriteria)
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
			*to = append(*to, descriptors.Condition{Expression: text, Criterion: r.conditionOf(n, f, what)})
		}
	})
}

// expression returns an expression as one and the same part is always written.
func (r *matchReader) expression(n *yaml.Node, text string) (string, bool) {
	where, name, ok := descriptors.ParseExpression(text)
	switch {
	case !ok:
		r.errorf(n, "expression %q is not understood; it must be ${context.request.headers.NAME}, "+
			"${context.request.queryParams.NAME} or ${context.request.pathParams.NAME}", spell.Short(text))
		return "", false
	case where == descriptors.InBody:
		r.unseen(n, "an expression over the request's body")
		return "", false
	}
	name, ok = r.name(n, name, where)
	return descriptors.Expression(where, name), ok
}
