package envoyconf

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
)

// A choice is what rules choose from: the values of the last entry of the descriptors that Envoy asks about. Each is
// the name of a cluster.
type choice struct {
	Name       string
	candidates []candidate
}

type candidate struct {
	value  string
	prefer int64
}

// Header is the request header that has the cluster's name.
func (c *choice) Header() string { return "x-headgate-" + strings.ToLower(c.Name) }

// Clusters are the candidates, the preferred ones first.
func (c *choice) Clusters() (names []string) {
	slices.SortStableFunc(c.candidates, func(a, b candidate) int { return cmp.Compare(a.prefer, b.prefer) })
	for _, one := range c.candidates {
		names = append(names, one.value)
	}
	return names
}

// plainName is a name that is part of a header's, and the name of a cluster that needs no quotes in Lua.
var plainName = regexp.MustCompile(`^[A-Za-z0-9][-A-Za-z0-9_.:/]*$`)
