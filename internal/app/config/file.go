package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/headgate-rls/headgate/descriptors/rulefile"
)

const maxFileSize = 1 << 20

// A fileReader sets the flags that a file names and nothing before it did.
type fileReader struct {
	program  program
	path     string
	fs       *pflag.FlagSet
	given    map[string]bool // flags that the command line or the environment set
	first    map[string]property
	errs     []error
	warnings []string
}

// readFile returns every problem of the file, with its place.
func (p program) readFile(path string, fs *pflag.FlagSet) (warnings []string, wrong []error) {
	r := &fileReader{program: p, path: path, fs: fs, given: map[string]bool{}, first: map[string]property{}}
	fs.Visit(func(f *pflag.Flag) { r.given[f.Name] = true })
	root, err := r.parse()
	if err != nil {
		return nil, []error{err}
	}
	for i := 0; root != nil && i+1 < len(root.Content); i += 2 {
		r.entry(root.Content[i], root.Content[i+1])
	}
	return r.warnings, r.errs
}

// parse returns the mapping in the file, nil if the file is empty.
func (r *fileReader) parse() (*yaml.Node, error) {
	data, err := readBounded(r.path)
	var where *fs.PathError
	if errors.As(err, &where) {
		err = fmt.Errorf("%s: %w", r.path, where.Err)
	}
	if err != nil {
		return nil, fmt.Errorf("--config: read configuration: %w", err)
	}
	var doc, more yaml.Node
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	if err = decoder.Decode(&doc); err == nil {
		err = decoder.Decode(&more)
	}
	switch {
	case err == nil:
		return nil, fmt.Errorf("%s:%d:%d: a second YAML document; want one", r.path, more.Line, more.Column)
	case !errors.Is(err, io.EOF):
		line, message := rulefile.NotYAML(data, err)
		return nil, fmt.Errorf("%s:%d: %s", r.path, line, message)
	case len(doc.Content) == 0:
		return nil, nil
	}
	root := doc.Content[0]
	if root.Kind != yaml.MappingNode {
		return nil, fmt.Errorf("%s:%d:%d: expected settings as `name: value`", r.path, root.Line, root.Column)
	}
	return root, nil
}

func readBounded(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	// A pipe would be waited for, for ever.
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: not a regular file", path)
	}
	if info.Size() > maxFileSize {
		return nil, fmt.Errorf("%s: has %d bytes, at most %d are read", path, info.Size(), maxFileSize)
	}
	return os.ReadFile(path)
}

// entry reads one key of the file with its value.
func (r *fileReader) entry(key, value *yaml.Node) {
	list, others := r.program.properties(key, value)
	if !others {
		list = []property{{key.Value, key, value}}
	}
	for _, p := range list {
		if err := r.property(p, others); err != nil {
			r.errs = append(r.errs, fmt.Errorf("%s:%d:%d: %s: %w", r.path, p.key.Line, p.key.Column, p.name, err))
		}
	}
}

// property sets one flag; with others, by another program's name for it.
func (r *fileReader) property(p property, others bool) error {
	name, value := p.name, p.value
	if others {
		a, ok := r.program.findAlias(p.name)
		switch {
		case !ok:
			return errors.New("unknown setting")
		case a.refused:
			return errors.New(a.note)
		case a.flag == "":
			r.warnings = append(r.warnings, p.name+" is ignored: "+a.note)
			return r.once(p.name, p)
		case value.Kind != yaml.ScalarNode:
			return errors.New("takes a plain value")
		}
		text, err := a.value(value.Value)
		if err != nil {
			return err
		}
		other := *value
		other.Value = text
		name, value = a.flag, &other
	}
	f := r.fs.Lookup(name)
	if f == nil || name == "config" || !r.program.has(name) {
		return fmt.Errorf("unknown setting%s", r.program.suggest(name))
	}
	if err := r.once(name, p); err != nil {
		return err
	}
	values, err := valuesOf(f, value)
	if err != nil || r.given[name] {
		return err
	}
	return set(r.fs, f, values)
}

// once refuses a setting that the file has already: one of both values would be
// dropped.
func (r *fileReader) once(name string, p property) error {
	before, again := r.first[name]
	if !again {
		r.first[name] = p
		return nil
	}
	as := ""
	if before.name != p.name {
		as = " as " + before.name
	}
	return fmt.Errorf("set twice; line %d has it%s already", before.key.Line, as)
}

// valuesOf returns the values of a setting: one, or those of a list where the
// flag may be repeated.
func valuesOf(f *pflag.Flag, value *yaml.Node) ([]string, error) {
	nodes := []*yaml.Node{value}
	if value.Kind == yaml.SequenceNode {
		if f.Value.Type() != "stringArray" {
			return nil, errors.New("takes one value, not a list")
		}
		nodes = value.Content
	}
	var values []string
	for _, n := range nodes {
		switch {
		case n.Kind != yaml.ScalarNode:
			return nil, errors.New("takes a plain value")
		case n.Tag == "!!null":
			return nil, errors.New("has no value; write '' for an empty one")
		}
		values = append(values, n.Value)
	}
	return values, nil
}
