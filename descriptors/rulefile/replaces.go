package rulefile

import (
	"go.yaml.in/yaml/v3"

	"github.com/headgate-rls/headgate/descriptors"
)

// replaces reads the names that a limit replaces.
func (l *loader) replaces(n *yaml.Node, t *twig) (names []descriptors.Replaced) {
	if isNull(n) {
		return nil
	}
	l.list(n, t, "replaces", func(e *yaml.Node) {
		f, ok := l.fields(e, levelReplaces, t)
		if !ok {
			return
		}
		if name, ok := l.text(f.get("name"), t, "name"); ok {
			names = append(names, descriptors.Replaced{Name: name, Place: l.place(e)})
		}
	})
	return names
}
