package compat

import (
	"slices"
	"strings"
)

// ownPrefixes are prefixes of variables that hardly any program but the reference reads. Many programs read PORT, HOST,
// LOG_LEVEL and the variables of metrics and traces.
var ownPrefixes = []string{"RUNTIME_", "CONFIG_TYPE", "CONFIG_GRPC_XDS_", "REDIS_"}

// Own returns the variables of an environment that are the reference's own, in the order of their names. rules says
// whether one of them says where the rules are: others, such as REDIS_URL, might be meant for another program.
func Own(environ []string) (names []string, rules bool) {
	for name, value := range newValues(environ).env {
		i := slices.IndexFunc(ownPrefixes, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
		if i >= 0 && value != "" {
			names = append(names, name)
			rules = rules || ownPrefixes[i] != "REDIS_"
		}
	}
	slices.Sort(names)
	return names, rules
}
