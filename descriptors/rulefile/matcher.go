package rulefile

import (
	"go.yaml.in/yaml/v3"

	"github.com/headgate-rls/headgate/descriptors"
)

// A matchReader reads the criteria of one resource.
type matchReader struct {
	l *loader
	t *twig
	m descriptors.Matcher
	// unusable: the resource has criteria that no request can carry, in a file that was written for a server that
	// reads bodies.
	unusable bool
}

func (r *matchReader) errorf(n *yaml.Node, format string, args ...any) {
	r.l.errorf(n, r.t, format, args...)
}

// read reads the criteria among f, the fields of a resource or of its match,
// which call some of them differently.
func (r *matchReader) read(f fields) {
	for _, kind := range []struct {
		names [2]string
		to    *map[string]descriptors.Criterion
	}{
		{[2]string{"requestHeaders", "headers"}, &r.m.RequestHeaders},
		{[2]string{"queryParams", "query"}, &r.m.QueryParams},
		{[2]string{"pathParams"}, &r.m.PathParams},
	} {
		for _, name := range kind.names {
			if n := f.get(name); !isNull(n) {
				r.named(n, name, kind.to)
			}
		}
	}
	for _, name := range []string{"formParams", "requestBody"} {
		if n := f.get(name); !isNull(n) {
			r.unseen(n, name)
		}
	}
	if n := f.get("allOf"); !isNull(n) {
		r.expressions(n, "allOf", &r.m.AllOf)
	}
	if n := f.get("anyOf"); !isNull(n) {
		r.expressions(n, "anyOf", &r.m.AnyOf)
	}
	r.soap(f.get("soapAction"), "soapAction", &r.m.SOAPAction)
	r.soap(f.get("binding"), "binding", &r.m.Binding)
}

// soap reads a field that requests must equal.
func (r *matchReader) soap(n *yaml.Node, what string, to *string) {
	if isNull(n) {
		return
	}
	s, ok := r.l.text(n, r.t, what)
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
func (r *matchReader) named(n *yaml.Node, what string, to *map[string]descriptors.Criterion) {
	pairs, ok := r.l.mapping(n, r.t, what)
	if !ok {
		return
	}
	if *to == nil {
		*to = map[string]descriptors.Criterion{}
	}
	for _, p := range pairs {
		if _, twice := (*to)[p.name]; twice {
			r.errorf(p.key, "%s %q is given twice", what, p.name)
			continue
		}
		c := r.condition(p.value, what+" "+p.name)
		c.Place = r.l.place(p.key)
		(*to)[p.name] = c
	}
}

// unseen reports criteria that Envoy's rate limit requests cannot carry.
func (r *matchReader) unseen(n *yaml.Node, what string) {
	const never = "%s can never be matched: Envoy asks before it has read the request's body; " +
		"match on headers, query or pathParams instead"
	if r.l.style.plugin == "" {
		r.errorf(n, never, what)
	} else if !r.unusable {
		r.l.warnf(n, r.t, "the resource is skipped, and limits nothing: "+never, what)
	}
	r.unusable = true
}

// condition reads a value, or {value, operator}.
func (r *matchReader) condition(n *yaml.Node, what string) descriptors.Criterion {
	if n.Kind != yaml.MappingNode {
		return r.value(n, n, descriptors.Criterion{}, what)
	}
	f, ok := r.l.fields(n, levelCriterion, r.t)
	if !ok {
		return descriptors.Criterion{}
	}
	return r.conditionOf(n, f, what)
}

func (r *matchReader) conditionOf(n *yaml.Node, f fields, what string) (c descriptors.Criterion) {
	operators := descriptors.Operators()
	if o := f.get("operator"); o != nil {
		i, ok := r.l.word(o, r.t, "operator", operators...)
		if !ok {
			return c
		}
		c.Operator = operators[i]
	}
	value := f.get("value")
	if !descriptors.TakesValue(c.Operator) {
		if value != nil {
			r.errorf(value, "%s takes no value", c.Operator)
		}
		return c
	}
	return r.value(n, value, c, what)
}

// value reads the value that a criterion compares with.
func (r *matchReader) value(n, value *yaml.Node, c descriptors.Criterion, what string) descriptors.Criterion {
	if isNull(value) {
		r.errorf(n, "%s has no value; for whether it is there at all write {operator: Exists} or NotExists", what)
		return c
	}
	c.Value, _ = r.l.text(value, r.t, what)
	c.ValuePlace = r.l.place(value)
	return c
}

// expressions reads a list of conditions on expressions.
func (r *matchReader) expressions(n *yaml.Node, what string, to *[]descriptors.Condition) {
	r.l.list(n, r.t, what, func(n *yaml.Node) {
		f, ok := r.l.fields(n, levelExpression, r.t)
		if !ok {
			return
		}
		e := f.get("expression")
		if e == nil {
			r.errorf(n, "an entry of %s has no expression", what)
			return
		}
		c := descriptors.Condition{Criterion: r.conditionOf(n, f, what)}
		c.Expression, _ = r.l.text(e, r.t, "expression")
		c.Place = r.l.place(e)
		if r.l.style.plugin != "" && descriptors.AsksBody(c.Expression) {
			r.unseen(e, "an expression over the request's body")
		}
		*to = append(*to, c)
	})
}
