//go:build rlsonly

package config

import "github.com/headgate-rls/headgate/internal/kit/settings"

// built returns the first of a feature's settings, which enables it, as an error: this build lacks the feature.
func built(rows []settings.Setting) []settings.Setting {
	return []settings.Setting{rows[0].Missing("not in this build (rlsonly)", "use the program without that tag")}
}
