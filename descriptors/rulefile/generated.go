package rulefile

import (
	"slices"

	"go.yaml.in/yaml/v3"
)

// levelGenerated is the top level of files that Envoy Gateway and go-control-plane write: the message of a control
// plane, which has a name beside its domain. It is none of keyLevels: nobody writes such files by hand.
var levelGenerated = &keyLevel{levelFile.what, append(slices.Clone(levelFile.keys), "name")}

// top reads a file's top level, and what it says of all that is below.
func (l *loader) top(root *yaml.Node) (fields, bool) {
	l.style = fileStyle{}
	level := levelFile
	if hasKeys(root, "name", "domain") {
		level, l.style.generated = levelGenerated, true
	}
	f, ok := l.fields(root, level, nil)
	if !ok {
		return nil, false
	}
	if l.style.generated {
		l.warnf(f.get("name"), nil, "the file has a name at its top, as files have that Envoy Gateway and go-control-plane "+
			"write: the name is not used, and what is null counts as left out")
	}
	l.readStyle(f)
	return f, true
}

// hasKeys reports whether a mapping has all these keys.
func hasKeys(n *yaml.Node, names ...string) bool {
	found := 0
	for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
		if slices.Contains(names, n.Content[i].Value) {
			found++
		}
	}
	return found == len(names)
}
