package config

import (
	"errors"
	"fmt"
	"strings"

	"github.com/headgate-rls/headgate/internal/kit/settings"
)

// Prefix begins the environment variables of all settings.
const Prefix = "HEADGATE"

// ignored are settings of other programs that are read and have no effect, or are errors.
var ignored = []settings.Alias{
	{Property: "rate-limiter.headroom-windows",
		Note: "it has no effect any more: a search begins at the first window that has room"},
	{Property: "quarkus.datasource.db-kind", Note: "the URL has the kind of database"},
	{Property: "throttlex.mode", Refused: true, Note: "remove it: " + isService},
	{Property: "imposter.store.driver", Refused: true, Note: "remove it and set backend, such as redis://HOST:6379"},
	{Property: "imposter.store.inmemory.ttl", Refused: true,
		Note: "remove it: counters expire with their windows; lease-ttl is for requests in flight whose end is " +
			"never reported"},
}

// A foreign variable is one of another program that says something about limits. It has no
// setting here that takes its values as they are. The error names what to use, since
// limits that count elsewhere, or longer, than somebody believes must not pass in silence.
type foreign struct {
	name  string
	check func(value, backend string) error
}

var foreigners = []foreign{
	{"IMPOSTER_STORE_DRIVER", imposterDriver},
	{"IMPOSTER_STORE_INMEMORY_TTL", func(value, _ string) error {
		return fmt.Errorf("%q: counters expire with their windows; for requests in flight whose end is never reported, "+
			"set %s=%ss or IMPOSTER_RATE_LIMITER_TTL=%s",
			value, settings.EnvName(Prefix, "lease-ttl"), value, value)
	}},
	{"THROTTLEX_MODE", throttlexMode},
}

// imposterDriver accepts a store that is also the one of --backend.
func imposterDriver(value, backend string) error {
	scheme, _, _ := strings.Cut(backend, ":")
	is, url := false, ""
	switch value {
	case "inmemory":
		is, url = scheme == "memory", "memory://, or remove the variable"
	case "store-redis":
		is, url = strings.HasPrefix(scheme, "redis") || scheme == "unix", "redis://HOST:6379"
	case "store-dynamodb":
		is, url = scheme == "dynamodb", "dynamodb://TABLE"
	default:
		return fmt.Errorf("%q: want inmemory, store-redis or store-dynamodb; or remove the variable and set %s", value,
			settings.EnvName(Prefix, "backend"))
	}
	if !is {
		return fmt.Errorf("%q: set %s=%s", value, settings.EnvName(Prefix, "backend"), url)
	}
	return nil
}

const isService = "this program is the service; in process, use headgate as a Go library (docs/library.md)"

// throttlexMode accepts what this program is.
func throttlexMode(value, _ string) error {
	switch strings.ToLower(value) {
	case "service":
		return nil
	case "embedded":
		return errors.New(`"embedded": ` + isService)
	}
	return fmt.Errorf("%q: want service, or remove the variable", value)
}

// checkForeign returns what is wrong with variables of other programs. An empty variable
// counts as unset.
func checkForeign(env map[string]string, backend string) error {
	var errs []error
	for _, f := range foreigners {
		if value := env[f.name]; value != "" {
			if err := f.check(value, backend); err != nil {
				errs = append(errs, fmt.Errorf("environment variable %s: %w", f.name, err))
			}
		}
	}
	return errors.Join(errs...)
}
