//go:build !rlsonly

package config

import "github.com/headgate-rls/headgate/internal/kit/settings"

// built returns the settings of a feature, which this build has.
func built(rows []settings.Setting) []settings.Setting { return rows }
