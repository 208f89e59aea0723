package config

import (
	"strings"
	"testing"
)

// Variables of other programs are honoured, or refused with the name to use.
func TestVariablesOfOtherProgramsDoNotPassInSilence(t *testing.T) {
	for variables, want := range map[string]string{
		"IMPOSTER_STORE_DRIVER=inmemory":                                   "",
		"IMPOSTER_STORE_DRIVER=":                                           "",
		"IMPOSTER_STORE_DRIVER=store-redis HEADGATE_BACKEND=redis://h":     "",
		"IMPOSTER_STORE_DRIVER=store-redis HEADGATE_BACKEND=rediss://h":    "",
		"IMPOSTER_STORE_DRIVER=store-redis":                                "set HEADGATE_BACKEND=redis://HOST:6379",
		"IMPOSTER_STORE_DRIVER=inmemory HEADGATE_BACKEND=redis://h":        "set HEADGATE_BACKEND=memory://",
		"IMPOSTER_STORE_DRIVER=store-dynamodb":                             "there is no such backend",
		"IMPOSTER_STORE_DRIVER=memory":                                     "want inmemory or store-redis",
		"IMPOSTER_STORE_INMEMORY_TTL=60":                                   "set HEADGATE_LEASE_TTL=60s or IMPOSTER_RATE_LIMITER_TTL=60",
		"THROTTLEX_MODE=service":                                           "",
		"THROTTLEX_MODE=EMBEDDED":                                          "docs/library.md",
		"THROTTLEX_MODE=embeded":                                           `"embeded": want service`,
		"IMPOSTER_RATE_LIMITER_TTL=60 IMPOSTER_SOMETHING_ELSE=1 THROTTLEX": "",
	} {
		env := map[string]string{}
		for _, variable := range strings.Fields(variables) {
			name, value, _ := strings.Cut(variable, "=")
			env[name] = value
		}
		_, err := resolve(t, "", env)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", variables, err, want)
		}
	}
}
