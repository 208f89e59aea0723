package yamlfile

import "go.yaml.in/yaml/v3"

// Value returns the value of a key in a mapping, or nil if n is no mapping or has no such key.
func Value(n *yaml.Node, key string) *yaml.Node {
	for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}
