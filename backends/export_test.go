package backends

import "slices"

// HomeSchemes returns the schemes of each package of a store.
func HomeSchemes() (all [][]string) {
	for _, h := range homes {
		all = append(all, slices.Clone(h.schemes))
	}
	return all
}
