package config

import (
	"slices"
	"strings"
	"testing"
)

func TestUnknownVariablesAreWarnedOf(t *testing.T) {
	for variable, want := range map[string]string{
		"HEADGATE_BACKNED=redis://:secret@h": "unknown environment variable HEADGATE_BACKNED has no effect; " +
			"did you mean HEADGATE_BACKEND?",
		"HEADGATE_LOGLEVEL=warn": "did you mean HEADGATE_LOG_LEVEL?",
		"HEADGATE_GRPC_PORT=9000": "unknown environment variable HEADGATE_GRPC_PORT has no effect; " +
			"did you mean HEADGATE_GRPC?",
		"HEADGATE_NONSENSE=1": "unknown environment variable HEADGATE_NONSENSE has no effect",
		"HEADGATE_=1":         "unknown environment variable HEADGATE_ has no effect",
		"HEADGATE=1":          "unknown environment variable HEADGATE has no effect",
		"HEADGATES_BACKEND=x": "unknown environment variable HEADGATES_BACKEND has no effect; did you mean HEADGATE_BACKEND?",
		"headgate_backend=x":  "unknown environment variable headgate_backend has no effect; did you mean HEADGATE_BACKEND?",

		"HEADGATE_BACKEND=x":                        "",
		"HEADGATE_LEASE_TTL=1m":                     "",
		"HEADGATE_PORT=tcp://10.0.0.1:8081":         "",
		"HEADGATE_GRPC_PORT=tcp://10.0.0.1:8081":    "",
		"HEADGATE_SERVICE_HOST=10.0.0.1":            "",
		"HEADGATE_SERVICE_PORT=8081":                "",
		"HEADGATE_RLS_SERVICE_PORT_GRPC=8081":       "",
		"HEADGATE_PORT_8081_TCP=tcp://10.0.0.1:80":  "",
		"HEADGATE_PORT_8081_TCP_PROTO=tcp":          "",
		"HEADGATE_PORT_8081_TCP_PORT=8081":          "",
		"HEADGATE_EU_PORT_8081_TCP_ADDR=10.0.0.1":   "",
		"HEADGATE_TEST_SEED=random":                 "",
		"HEADGEAR_BACKEND_COLOUR=red":               "",
		"HEADSUP_DISPLAY=1":                         "",
		"PATH=/bin":                                 "",
		"IMPOSTER_RATE_LIMITER_TTL=60":              "",
		"HEADGATE_BACKEND=redis://h?password_env=P": "",
	} {
		name, value, _ := strings.Cut(variable, "=")
		c, err := resolve(t, "", map[string]string{name: value})
		if err != nil {
			t.Errorf("%s: %v", variable, err)
			continue
		}
		if got := strings.Join(c.Warnings, "\n"); got != want && (want == "" || !strings.HasSuffix(got, want)) {
			t.Errorf("%s: %q, want %q", variable, got, want)
		}
		if strings.Contains(strings.Join(c.Warnings, ""), "secret") {
			t.Errorf("a warning has the value: %q", c.Warnings)
		}
	}
	c, err := resolve(t, "", map[string]string{"HEADGATE_BACKEND": "redis://h?password_env=HEADGATE_REDIS_PASSWORD",
		"HEADGATE_REDIS_PASSWORD": "x"})
	if err != nil || len(c.Warnings) != 0 {
		t.Errorf("a variable that --backend names: %q, %v", c.Warnings, err)
	}
}

// No setting may have a name that Kubernetes injects.
func TestSettingsAreNotNamedLikeServices(t *testing.T) {
	for _, name := range Settings().Names() {
		if Settings().Ignores(Settings().EnvName(name), "tcp://10.0.0.1:1") {
			t.Errorf("Kubernetes would set %s for a Service", Settings().EnvName(name))
		}
	}
}

// Flags that a command has beside the settings are not set from outside.
func TestFlagsOfCommandsAreNotSettings(t *testing.T) {
	has := func(name string) bool { return slices.Contains(Settings().Names(), name) }
	if has("repair") || has("help") || !has("grpc") || !has("slots") {
		t.Error("the settings are not those that Define declares")
	}
}
