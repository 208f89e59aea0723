package rulefile

import (
	"go.yaml.in/yaml/v3"

	"github.com/headgate-rls/headgate/descriptors"
)

// addresses reads for which networks a rule is, and for which it is not.
func (l *loader) addresses(f fields, t *twig, r *descriptors.RuleSpec) {
	r.Broken = !l.Clean(func() {
		r.Networks = l.networks(f, t)
		r.Except = l.except(f, t)
	}) || r.Broken
	if t.value == "" && len(r.Networks) > 0 {
		t.value = r.Networks[0].String() // of problems of the rules below
	}
}

// except reads the networks that a rule or resource is not for.
func (l *loader) except(f fields, t *twig) []descriptors.Network {
	n := f.get("except")
	if n == nil {
		return nil
	}
	inside, ok := l.fields(n, levelExcept, t)
	if ok && inside.get("network") == nil {
		l.errorf(n, t, "except has no network; write except: {network: 10.0.0.0/8}, or leave it out")
	}
	return l.networks(inside, t)
}

// networks reads one network, or a list of them.
func (l *loader) networks(f fields, t *twig) (list []descriptors.Network) {
	l.texts(f, t, "network", func(n *yaml.Node, text string) {
		list = append(list, descriptors.Network{Text: text, Place: l.place(n)})
	})
	return list
}

// texts reads a field that is one text or a list of them, and calls f for each.
func (l *loader) texts(in fields, t *twig, name string, f func(n *yaml.Node, text string)) {
	n := in.get(name)
	if n == nil {
		return
	}
	one := func(n *yaml.Node) {
		text, ok := l.text(n, t, name)
		switch {
		case !ok:
		case text == "":
			l.errorf(n, t, "%s is empty, or has an empty entry; leave it out", name)
		default:
			f(n, text)
		}
	}
	n = l.follow(n)
	switch {
	case n.Kind != yaml.SequenceNode:
		one(n)
	case len(n.Content) == 0:
		l.errorf(n, t, "%s is empty, or has an empty entry; leave it out", name)
	default:
		l.list(n, t, name, one)
	}
}
