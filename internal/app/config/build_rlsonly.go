//go:build rlsonly

package config

import "github.com/headgate-rls/headgate/internal/kit/settings"

// built returns the first setting of a feature, which turns it on, as an error: this build does not have it.
func built(rows []settings.Setting) []settings.Setting {
	first := rows[0]
	never := func() bool { return false }
	settings.Needs(never, "is not in this build (rlsonly): use the program without that tag")(&first)
	first.Help = "not in this build (rlsonly)"
	return []settings.Setting{first}
}
