package config

import (
	"os"
	"strings"
	"testing"
)

// Variables of other programs are honoured, or refused with the name to use.
func TestVariablesOfOtherProgramsDoNotPassInSilence(t *testing.T) {
	for variables, want := range map[string]string{
		"IMPOSTER_STORE_DRIVER=inmemory":                                     "",
		"IMPOSTER_STORE_DRIVER=":                                             "",
		"IMPOSTER_STORE_DRIVER=store-redis HEADGATE_BACKEND=redis://h":       "",
		"IMPOSTER_STORE_DRIVER=store-redis HEADGATE_BACKEND=rediss://h":      "",
		"IMPOSTER_STORE_DRIVER=store-redis":                                  "set HEADGATE_BACKEND=redis://HOST:6379",
		"IMPOSTER_STORE_DRIVER=inmemory HEADGATE_BACKEND=redis://h":          "set HEADGATE_BACKEND=memory://",
		"IMPOSTER_STORE_DRIVER=store-redis HEADGATE_BACKEND=unix:///r.sock":  "",
		"IMPOSTER_STORE_DRIVER=store-dynamodb":                               "set HEADGATE_BACKEND=dynamodb://TABLE",
		"IMPOSTER_STORE_DRIVER=store-dynamodb HEADGATE_BACKEND=dynamodb://t": "",
		"IMPOSTER_STORE_DRIVER=memory":                                       "want inmemory, store-redis or store-dynamodb",
		"IMPOSTER_STORE_INMEMORY_TTL=60": "set HEADGATE_LEASE_TTL=60s or " +
			"IMPOSTER_RATE_LIMITER_TTL=60",
		"THROTTLEX_MODE=service":  "",
		"THROTTLEX_MODE=EMBEDDED": "docs/library.md",
		"THROTTLEX_MODE=embeded":  `"embeded": want service`,
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

// Settings of other programs in a file are honoured, or refused with the name to use.
func TestPropertiesOfOtherProgramsDoNotPassInSilence(t *testing.T) {
	for file, want := range map[string]string{
		"throttlex:\n  mode: embedded\n": "conf.yaml:2:3: throttlex.mode: remove it: this program is the service; " +
			"in process, use headgate as a Go library (docs/library.md)",
		"throttlex.mode: service\n":         "conf.yaml:1:1: throttlex.mode: remove it",
		"throttlex:\n  moed: embedded\n":    "throttlex.moed: unknown setting",
		"imposter:\n  store: {driver: x}\n": "imposter.store.driver: remove it and set backend",
		"imposter.store.inmemory.ttl: 60\n": "imposter.store.inmemory.ttl: remove it: counters expire with their " +
			"windows; lease-ttl",
		"imposter.rate.limiter.ttl: 60\n": "",
	} {
		_, err := resolve(t, file, nil)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", file, err, want)
		}
	}
}

// TestForeignVariablesAreDocumented: docs/reference.md says what becomes of each.
func TestForeignVariablesAreDocumented(t *testing.T) {
	document, err := os.ReadFile("../../../docs/reference.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range foreigners {
		if !strings.Contains(string(document), "\n| `"+f.name+"` | ") {
			t.Errorf("docs/reference.md has no row about %s", f.name)
		}
	}
}
