package settings

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/headgate-rls/headgate/internal/kit/spell"
	"github.com/headgate-rls/headgate/internal/kit/yamlfile"
)

// A fileReader sets the flags that a file names and nothing before it did.
type fileReader struct {
	names    []string
	aliases  []Alias
	fs       *pflag.FlagSet
	given    map[string]bool // flags that the command line or the environment set
	first    map[string]property
	warnings []string
}

// A property is a setting in a file, and where it is.
type property struct {
	name  string
	key   *yaml.Node
	value *yaml.Node
}

// readFile returns every problem of the file, with its place.
func readFile(path string, fs *pflag.FlagSet, rows []Setting, others []Alias) (warnings []string, wrong []error) {
	r := &fileReader{aliases: others, fs: fs, given: map[string]bool{}, first: map[string]property{}}
	for _, s := range rows {
		r.names = append(r.names, s.Name)
		r.aliases = append(r.aliases, s.aliases...)
	}
	fs.Visit(func(f *pflag.Flag) { r.given[f.Name] = true })
	root, err := readMapping(path)
	if err != nil {
		return nil, []error{err}
	}
	for one := range pairs(property{value: root}) {
		list, read := []property{one}, r.setting
		if r.foreign(one.name) {
			list, read = flatten(one), r.alias
		}
		for _, one := range list {
			if err := read(one); err != nil {
				wrong = append(wrong, fmt.Errorf("%s:%d:%d: %s: %w", path, one.key.Line, one.key.Column, one.name, err))
			}
		}
	}
	return r.warnings, wrong
}

const maxFileSize = 1 << 20

// readMapping returns the mapping in the file; an empty file has an empty one.
func readMapping(path string) (*yaml.Node, error) {
	data, err := readBounded(path)
	if err != nil {
		return nil, fmt.Errorf("--config: read configuration: %s: %w", path, err)
	}
	doc, more, wrong := yamlfile.Decode(data)
	switch {
	case wrong != nil:
		return nil, fmt.Errorf("%s:%d: %s", path, wrong.Line, wrong.Message)
	case more != nil:
		return nil, fmt.Errorf("%s:%d:%d: a second YAML document; want one", path, more.Line, more.Column)
	case doc == nil || len(doc.Content) == 0:
		return new(yaml.Node), nil
	}
	root := doc.Content[0]
	if root.Kind != yaml.MappingNode {
		return nil, fmt.Errorf("%s:%d:%d: expected settings as `name: value`", path, root.Line, root.Column)
	}
	return root, nil
}

func readBounded(path string) (data []byte, err error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
	case !info.Mode().IsRegular(): // a pipe would be waited for, for ever
		err = errors.New("not a regular file")
	case info.Size() > maxFileSize:
		err = fmt.Errorf("has %d bytes, at most %d are read", info.Size(), maxFileSize)
	default:
		data, err = os.ReadFile(path)
	}
	if where, ok := errors.AsType[*fs.PathError](err); ok {
		err = where.Err
	}
	return data, err
}

// pairs ranges over what is directly below a property, by dotted names.
func pairs(p property) func(func(property) bool) {
	return func(yield func(property) bool) {
		for i := 0; i+1 < len(p.value.Content); i += 2 {
			key := p.value.Content[i]
			if !yield(property{strings.TrimPrefix(p.name+"."+key.Value, "."), key, p.value.Content[i+1]}) {
				return
			}
		}
	}
}

func flatten(p property) (list []property) {
	if p.value.Kind != yaml.MappingNode {
		return []property{p}
	}
	for below := range pairs(p) {
		list = append(list, flatten(below)...)
	}
	return list
}

// foreign reports whether a key is one of another program, such as rate-limiter or quarkus.
func (r *fileReader) foreign(key string) bool {
	return slices.ContainsFunc(r.aliases, func(a Alias) bool { return strings.HasPrefix(a.Property+".", key+".") })
}

// alias reads a setting by the name of another program.
func (r *fileReader) alias(p property) error {
	for _, a := range r.aliases {
		switch {
		case a.Property != p.name:
			continue
		case a.Refused:
			return errors.New(a.Note)
		case a.flag == "":
			r.warnings = append(r.warnings, p.name+" is ignored: "+a.Note)
			return r.once(p.name, p)
		case p.value.Kind != yaml.ScalarNode:
			return errors.New("takes a plain value")
		}
		text, err := a.value(p.value.Value)
		if err != nil {
			return err
		}
		other := *p.value
		other.Value = text
		return r.set(a.flag, p, &other)
	}
	return errors.New("unknown setting")
}

// setting reads a setting by its name.
func (r *fileReader) setting(p property) error {
	if p.name != "config" && slices.Contains(r.names, p.name) {
		return r.set(p.name, p, p.value)
	}
	if meant := spell.Nearest(p.name, r.names); meant != "" {
		return fmt.Errorf("unknown setting; did you mean %s?", meant)
	}
	return errors.New("unknown setting")
}

func (r *fileReader) set(name string, p property, value *yaml.Node) error {
	if err := r.once(name, p); err != nil {
		return err
	}
	f := r.fs.Lookup(name)
	values, err := valuesOf(f, value)
	if err != nil || r.given[name] {
		return err
	}
	return set(r.fs, f, values)
}

// once refuses a setting that the file has already: one of both values would be dropped.
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

// valuesOf returns the values of a setting: one, or those of a list where the flag may be repeated.
func valuesOf(f *pflag.Flag, value *yaml.Node) (values []string, err error) {
	nodes := []*yaml.Node{value}
	if value.Kind == yaml.SequenceNode {
		if !repeated(f) {
			return nil, errors.New("takes one value, not a list")
		}
		nodes = value.Content
	}
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
