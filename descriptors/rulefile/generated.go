package rulefile

import (
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/headgate-rls/headgate/internal/kit/yamlfile"
)

// levelGenerated is the top level of files that Envoy Gateway and go-control-plane write: a control plane's message,
// which has a name and a domain. keyLevels and the schema leave it out, because nobody writes such files by hand.
var levelGenerated = &keyLevel{levelFile.what, append(slices.Clone(levelFile.keys), "name")}

// top reads a file's top level, and what it says of all that is below.
func (l *loader) top(root *yaml.Node) (fields, bool) {
	l.style = fileStyle{}
	level := levelFile
	if yamlfile.Value(root, "name") != nil && yamlfile.Value(root, "domain") != nil {
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
