package config

import (
	"fmt"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// An alias is the name that another program has for a setting of ours, so that
// its environment and its file go on working.
type alias struct {
	property string // in the environment: in capitals, with _ for . and -
	flag     string // empty: the setting is read and has no effect
	note     string // why it has none
	seconds  bool   // it is a number of seconds
}

var aliases = []alias{
	{property: "imposter.rate.limiter.ttl", flag: "lease-ttl", seconds: true},
	{property: "rate-limiter.default-config-name", flag: "slots-default-config"},
	{property: "rate-limiter.max-windows-in-chunk", flag: "slots-chunk"},
	{property: "rate-limiter.max-chunks-to-search", flag: "slots-extra-chunks"},
	{property: "rate-limiter.headroom-windows", note: "it has no effect any more: a search begins at the first window that has room"},
	{property: "quarkus.datasource.db-kind", note: "the URL says what kind of database it is"},
	{property: "quarkus.datasource.jdbc.url", flag: "slots"},
	{property: "quarkus.datasource.username", flag: "slots-username"},
	{property: "quarkus.datasource.password", flag: "slots-password"},
	{property: "quarkus.datasource.jdbc.min-size", flag: "slots-pool-min"},
	{property: "quarkus.datasource.jdbc.max-size", flag: "slots-pool-max"},
	{property: "quarkus.flyway.migrate-at-start", flag: "slots-migrate"},
}

func (a *alias) env() string {
	return strings.ToUpper(strings.NewReplacer(".", "_", "-", "_").Replace(a.property))
}

// value returns what to set the flag to.
func (a *alias) value(text string) (string, error) {
	if !a.seconds {
		return text, nil
	}
	if _, err := strconv.ParseUint(text, 10, 31); err != nil {
		return "", fmt.Errorf("%q is not a number of seconds", text)
	}
	return text + "s", nil
}

// fromEnv returns the environment variable that another program has for the
// flag, if it is set.
func fromEnv(flag string, lookup func(string) (string, bool)) (name, value string, ok bool, err error) {
	for _, a := range aliases {
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
func findAlias(property string) (*alias, bool) {
	for i := range aliases {
		if aliases[i].property == property {
			return &aliases[i], true
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
// rate-limiter or quarkus, by dotted names; ok=false if the key is none.
func properties(key, value *yaml.Node) (list []property, ok bool) {
	for _, a := range aliases {
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
