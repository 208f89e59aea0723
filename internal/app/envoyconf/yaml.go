package envoyconf

import (
	"bytes"
	"fmt"

	"go.yaml.in/yaml/v3"
)

// A mapping is a YAML mapping whose fields keep their order.
type mapping []field

// A list is a YAML list.
type list []any

// A field is one entry of a mapping. Its comment stands above it.
type field struct {
	name    string
	value   any
	comment string
}

// A noted is an element of a list with a comment above it.
type noted struct {
	comment string
	value   any
}

// A flow is written on one line.
type flow struct{ value any }

// f makes a field without a comment.
func f(name string, value any) field { return field{name: name, value: value} }

// one is a mapping with one field.
func one(name string, value any) mapping { return mapping{f(name, value)} }

// typed is a mapping that begins with the name of its message.
func typed(message string, fields ...field) mapping {
	return append(mapping{f("@type", "type.googleapis.com/envoy."+message)}, fields...)
}

// node makes the YAML of a value.
func node(v any) (*yaml.Node, error) {
	switch v := v.(type) {
	case mapping:
		return mappingNode(v)
	case list:
		n := &yaml.Node{Kind: yaml.SequenceNode}
		for _, element := range v {
			child, err := node(element)
			if err != nil {
				return nil, err
			}
			n.Content = append(n.Content, child)
		}
		return n, nil
	case noted:
		n, err := node(v.value)
		if err == nil {
			n.HeadComment = v.comment
		}
		return n, err
	case flow:
		n, err := node(v.value)
		if err == nil {
			n.Style = yaml.FlowStyle
		}
		return n, err
	case string, int, bool:
		n := new(yaml.Node)
		err := n.Encode(v)
		return n, err
	}
	return nil, fmt.Errorf("no YAML is made of a %T", v)
}

func mappingNode(m mapping) (*yaml.Node, error) {
	n := &yaml.Node{Kind: yaml.MappingNode}
	for _, f := range m {
		value, err := node(f.value)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.name, err)
		}
		key := &yaml.Node{Kind: yaml.ScalarNode, HeadComment: f.comment}
		key.SetString(f.name)
		n.Content = append(n.Content, key, value)
	}
	return n, nil
}

// render writes v as a document below a comment.
func render(comment string, v any) ([]byte, error) {
	n, err := node(v)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	b.WriteString(commented(comment) + "\n")
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	if err := enc.Encode(n); err != nil {
		return nil, err
	}
	return b.Bytes(), enc.Close()
}

// commented makes a comment of text.
func commented(text string) string {
	var b bytes.Buffer
	for line := range bytes.Lines([]byte(text)) {
		b.WriteString("# ")
		b.Write(bytes.TrimSpace(line))
		b.WriteString("\n")
	}
	return b.String()
}
