package rulefile

import (
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/headgate-rls/headgate/descriptors"
)

// replaces reads the names that a limit replaces, and notes its own.
func (l *loader) replaces(n *yaml.Node, t *twig, r *descriptors.Body, own string) {
	if own != "" {
		r.References = append(r.References, descriptors.Reference{From: own})
	}
	if n == nil || isNull(n) {
		return
	}
	l.list(n, t, "replaces", func(e *yaml.Node) {
		f, ok := l.fields(e, levelReplaces, t)
		if !ok {
			return
		}
		name := ""
		if v := f.get("name"); v != nil {
			if name, ok = l.text(v, t, "name", maxName); !ok {
				return
			}
		}
		switch {
		case name == "":
			l.errorf(e, t, "an entry of replaces must name a limit")
		case name == own:
			l.errorf(e, t, "the limit %q replaces itself", own)
		default:
			if !slices.Contains(r.Replaces, name) {
				r.Replaces = append(r.Replaces, name)
			}
			r.References = append(r.References, descriptors.Reference{From: own, To: name, Place: l.place(e)})
		}
	})
}
