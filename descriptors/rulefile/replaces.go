package rulefile

import (
	"go.yaml.in/yaml/v3"

	"github.com/headgate-rls/headgate/descriptors"
)

// replaces reads the names that a limit replaces.
func (l *loader) replaces(n *yaml.Node, t *twig) (names []descriptors.Replaced) {
	if n == nil || isNull(n) {
		return nil
	}
	l.list(n, t, "replaces", func(e *yaml.Node) {
		f, ok := l.fields(e, levelReplaces, t)
		if !ok {
			return
		}
		name := ""
		if v := f.get("name"); v != nil {
			if name, ok = l.text(v, t, "name"); !ok {
				return
			}
		}
		names = append(names, descriptors.Replaced{Name: name, Place: l.place(e)})
	})
	return names
}
