package rulefile

import (
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/limit"
)

// reserve reads how requests reserve units; nil if f does not say.
func (l *loader) reserve(f fields, t *twig) *descriptors.ReserveSpec {
	n := f.get("reserve")
	if n == nil {
		return nil
	}
	spec := &descriptors.ReserveSpec{Place: l.place(n)}
	spec.Broken = !l.Clean(func() {
		f, ok := l.fields(n, levelReserve, t)
		if !ok {
			return
		}
		spec.Fields = written(f)
		l.amount(n, f, t, &spec.Reserve)
		if v := f.get("ttl"); v != nil {
			spec.TTL = l.duration(v, t, "ttl")
		}
		choose(l, f, t, "on_lost", descriptors.ReserveEnds(), &spec.OnLost)
		choose(l, f, t, "on_5xx", descriptors.ReserveEnds(), &spec.On5xx)
		choose(l, f, t, "on_429", descriptors.ReserveFulls(), &spec.On429)
		choose(l, f, t, "match", descriptors.ReserveMatches(), &spec.Match)
		choose(l, f, t, "ask", descriptors.ReserveAsks(), &spec.Ask)
		choose(l, f, t, "report", descriptors.ReserveReports(), &spec.Report)
	})
	return spec
}

// amount reads how many units are reserved: a word, or a number.
func (l *loader) amount(parent *yaml.Node, f fields, t *twig, r *descriptors.Reserve) {
	n := f.get("amount")
	switch {
	case n == nil:
		l.errorf(parent, t, "reserve has no amount; write auto, estimate or a number")
		return
	case n.Kind == yaml.ScalarNode && n.ShortTag() == "!!int":
		r.By = descriptors.ReserveFixed
		r.Default, _ = l.integer(n, t, "amount", 1, limit.MaxUnits)
	case slices.Contains(descriptors.Reservings(), n.Value) || n.Kind != yaml.ScalarNode:
		choose(l, f, t, "amount", descriptors.Reservings(), &r.By)
	default:
		l.errorf(n, t, "amount must be auto, estimate or a number, not %s", describe(n))
	}
	for _, field := range []struct {
		name string
		to   *int64
	}{{"default", &r.Default}, {"min", &r.Min}, {"max", &r.Max}} {
		v := f.get(field.name)
		switch {
		case v == nil:
		case r.By == descriptors.ReserveFixed:
			l.errorf(v, t, "%s has no meaning beside an amount that is a number", field.name)
		default:
			*field.to, _ = l.integer(v, t, field.name, 1, limit.MaxUnits)
		}
	}
}
