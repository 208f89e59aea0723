package config

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// aliases are the names that another program has for settings.
func (p program) aliases() []alias {
	list := slices.Clone(p.ignored)
	for _, s := range p.rows {
		list = append(list, s.aliases...)
	}
	return list
}

// fromEnv returns the environment variable that another program has for the
// flag, if it is set.
func (p program) fromEnv(flag string, lookup func(string) (string, bool)) (name, value string, ok bool, err error) {
	for _, a := range p.aliases() {
		if a.flag != flag {
			continue
		}
		if text, set := lookup(a.env()); set {
			value, err = a.value(text)
			return a.env(), value, true, err
		}
	}
	return "", "", false, nil
}

// findAlias returns the alias of a property in a file.
func (p program) findAlias(property string) (*alias, bool) {
	for _, a := range p.aliases() {
		if a.property == property {
			return &a, true
		}
	}
	return nil, false
}

// A property is a setting in a file by the name of another program, and where
// it is.
type property struct {
	name  string
	key   *yaml.Node
	value *yaml.Node
}

// properties returns what is nested below a key of another program, such as
// rate-limiter or quarkus, by dotted names; ok is false for an unknown key.
func (p program) properties(key, value *yaml.Node) (list []property, ok bool) {
	for _, a := range p.aliases() {
		ok = ok || a.property == key.Value || strings.HasPrefix(a.property, key.Value+".")
	}
	if !ok {
		return nil, false
	}
	return flatten(property{key.Value, key, value}), true
}

func flatten(p property) []property {
	if p.value.Kind != yaml.MappingNode {
		return []property{p}
	}
	var list []property
	for i := 0; i+1 < len(p.value.Content); i += 2 {
		key := p.value.Content[i]
		list = append(list, flatten(property{p.name + "." + key.Value, key, p.value.Content[i+1]})...)
	}
	return list
}
