//go:build rlsonly

package config

import "github.com/headgate-rls/headgate/internal/kit/settings"

// built returns the first of a feature's settings, which enables it, and makes setting it an error: this build lacks
// the feature.
func built(rows []settings.Setting) []settings.Setting {
	first := rows[0]
	never := func() bool { return false }
	settings.Needs(never, "is not in this build (rlsonly): use the program without that tag")(&first)
	first.Help = "not in this build (rlsonly)"
	return []settings.Setting{first}
}
