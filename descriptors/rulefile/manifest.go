package rulefile

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"go.yaml.in/yaml/v3"

	"github.com/headgate-rls/headgate/internal/kit/spell"
	"github.com/headgate-rls/headgate/internal/kit/yamlfile"
)

// Files returns the files that a source holds: of a manifest of Kubernetes the entries of the data of its ConfigMaps
// that are rules by their names, each called like a file in a directory that has the manifest's name. A source that is
// no manifest with a ConfigMap is its own only file.
func (s Source) Files(rules func(name string) bool) []Source {
	if len(s.Data) > MaxSourceBytes || !bytes.Contains(s.Data, []byte("ConfigMap")) ||
		!bytes.Contains(s.Data, []byte("apiVersion")) {
		return []Source{s}
	}
	var list []Source
	for d := yaml.NewDecoder(bytes.NewReader(s.Data)); ; {
		var doc yaml.Node
		err := d.Decode(&doc)
		if errors.Is(err, io.EOF) && len(list) > 0 {
			return list
		}
		if err != nil || len(doc.Content) != 1 || !isManifest(doc.Content[0]) {
			return []Source{s} // the loader says what is wrong
		}
		list = append(list, s.entries(doc.Content[0], rules)...)
	}
}

// isManifest reports whether a document is one of Kubernetes.
func isManifest(root *yaml.Node) bool {
	has := func(key string) bool { return yamlfile.Value(root, key) != nil }
	return has("apiVersion") && has("kind") && !has("domain")
}

// entries returns the files of a manifest, none if it is no ConfigMap.
func (s Source) entries(root *yaml.Node, rules func(name string) bool) (list []Source) {
	kind, data := yamlfile.Value(root, "kind"), yamlfile.Value(root, "data")
	if kind.Value != "ConfigMap" || data == nil || data.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(data.Content); i += 2 {
		key, text := data.Content[i], data.Content[i+1]
		if text.Kind == yaml.ScalarNode && rules(key.Value) {
			list = append(list, Source{Name: s.Name + "/" + key.Value, Data: []byte(text.Value), Owner: s.Owner})
		}
	}
	return list
}

// manifest reports whether a source is a manifest of Kubernetes, and notes that it holds no rules.
func (l *loader) manifest(root *yaml.Node) bool {
	if !isManifest(root) {
		return false
	}
	kind := yamlfile.Value(root, "kind")
	why := fmt.Sprintf("the file is a manifest of Kubernetes of kind %q; only ConfigMaps have rules, in their data",
		spell.Short(kind.Value))
	if kind.Value == "ConfigMap" {
		why = "the file is a ConfigMap of Kubernetes, and its data has no entry called *.yaml or *.yml with rules"
	}
	l.manifests = append(l.manifests, l.problem(kind, nil, "%s", why))
	return true
}

// passManifests reports the manifests without rules: beside others that have rules they are warnings.
func (l *loader) passManifests() {
	for _, p := range l.manifests {
		p.Warning = len(l.spec.Domains) > 0
		l.Add(p)
	}
}
