package envoyconf

import (
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/headgate-rls/headgate/descriptors"
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

// choose notes what a rule is chosen from.
func (w *wants) choose(r *descriptors.RuleSpec) error {
	switch {
	case w.Choice != nil && w.Choice.Name != r.Choose:
		return fmt.Errorf("the rules choose %q and %q; a route of Envoy follows one choice: give the rules one name, or "+
			"write the routes yourself (docs/routing.md)", w.Choice.Name, r.Choose)
	case !plainName.MatchString(r.Choose):
		return fmt.Errorf("the rules choose %q, which cannot be part of a header's name; use letters, digits and hyphens",
			r.Choose)
	case w.Choice == nil:
		w.Choice = &choice{Name: r.Choose}
	}
	if r.Value == "" || strings.Contains(r.Value, "*") {
		return nil // see shape.actions
	}
	if !plainName.MatchString(r.Value) {
		return fmt.Errorf("a rule that is chosen has the value %q, which is no name of a cluster; use letters, digits, "+
			"hyphens and dots", r.Value)
	}
	same := func(c candidate) bool { return c.value == r.Value }
	if !slices.ContainsFunc(w.Choice.candidates, same) {
		w.Choice.candidates = append(w.Choice.candidates, candidate{r.Value, r.Prefer})
	}
	return nil
}

// candidates returns the actions of each descriptor that a shape is chosen from; nil if the rules do not say what the
// last entry's values are.
func (s *shape) candidates() (all [][]string) {
	last := len(s.keys) - 1
	var before []string
	for i, key := range s.keys[:last] {
		a := action(key, s.values[i])
		if a == "" {
			return nil
		}
		before = append(before, a)
	}
	for _, value := range s.values[last] {
		if value == "" || strings.Contains(value, "*") {
			return nil
		}
		named := fmt.Sprintf("- {generic_key: {descriptor_key: %s, descriptor_value: %s}}", q(s.keys[last]), q(value))
		all = append(all, append(slices.Clone(before), named))
	}
	return all
}

// An upstream is a cluster behind Envoy.
type upstream struct{ Name, Address string }

// application is the name of the only cluster, if nothing is chosen.
const application = "application"

// Upstreams are the clusters behind Envoy, as Options.Upstream has them.
func (o *Options) Upstreams() (list []upstream) {
	for _, text := range o.Upstream {
		name, addr, named := strings.Cut(text, "=")
		if !named {
			name, addr = application, text
		}
		list = append(list, upstream{name, addr})
	}
	return list
}

// checkUpstreams says which clusters of a whole configuration have no address, or are not needed.
func (c *Config) checkUpstreams() error {
	want := []string{application}
	if c.Choice != nil {
		want = c.Choice.Clusters()
	}
	var have []string
	for _, u := range c.Upstreams() {
		have = append(have, u.Name)
	}
	var errs []error
	for _, name := range want {
		switch {
		case slices.Contains(have, name):
		case c.Choice == nil:
			errs = append(errs, errors.New("--upstream NAME=ADDRESS is for rules with choose; these need one "+
				"--upstream ADDRESS"))
		default:
			errs = append(errs, fmt.Errorf("the rules choose %s: say where %s is, by --upstream %s=HOST:PORT", c.Choice.Name,
				name, name))
		}
	}
	for i, name := range have {
		switch {
		case slices.Contains(have[:i], name):
			errs = append(errs, fmt.Errorf("--upstream: %s is there twice", name))
		case !slices.Contains(want, name) && c.Choice != nil:
			errs = append(errs, fmt.Errorf("--upstream: the rules choose from %s, not from %s", strings.Join(want, ", "), name))
		}
	}
	return errors.Join(errs...)
}

// chooseLua tells the route which cluster was chosen.
//
//go:embed choose.lua
var chooseLua string

// ChooseLua returns what hands on which cluster was chosen.
func (c *Config) ChooseLua() string {
	return strings.NewReplacer("HEADER", c.Choice.Header(), "NAME", c.Choice.Name, "FIRST", c.Choice.Clusters()[0]).
		Replace(strings.TrimSpace(chooseLua))
}
