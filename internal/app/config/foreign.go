package config

import (
	"errors"
	"fmt"
	"strings"
)

// A foreign variable is one of another program that says something about limits. It has no
// setting here that takes its values as they are. The error names what to use, since
// limits that count elsewhere, or longer, than somebody believes must not pass in silence.
type foreign struct {
	name  string
	check func(value string, c *Config) error
}

var foreigners = []foreign{
	{"IMPOSTER_STORE_DRIVER", imposterDriver},
	{"IMPOSTER_STORE_INMEMORY_TTL", func(value string, _ *Config) error {
		return fmt.Errorf("%q: counters expire with their windows; for requests in flight whose end is never reported, set %s=%ss or IMPOSTER_RATE_LIMITER_TTL=%s",
			value, EnvName("lease-ttl"), value, value)
	}},
	{"THROTTLEX_MODE", throttlexMode},
}

// imposterDriver accepts a store that is also the one of --backend.
func imposterDriver(value string, c *Config) error {
	scheme, _, _ := strings.Cut(c.Backend, ":")
	is, url := false, ""
	switch value {
	case "inmemory":
		is, url = scheme == "memory", "memory://, or remove the variable"
	case "store-redis":
		is, url = strings.HasPrefix(scheme, "redis") || scheme == "unix", "redis://HOST:6379"
	case "store-dynamodb":
		is, url = scheme == "dynamodb", "dynamodb://TABLE"
	default:
		return fmt.Errorf("%q: want inmemory, store-redis or store-dynamodb; or remove the variable and set %s", value, EnvName("backend"))
	}
	if !is {
		return fmt.Errorf("%q: set %s=%s", value, EnvName("backend"), url)
	}
	return nil
}

const isService = "this program is the service; in process, use headgate as a Go library (docs/library.md)"

// throttlexMode accepts what this program is.
func throttlexMode(value string, _ *Config) error {
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
func (c *Config) checkForeign(e environment) error {
	var errs []error
	for _, f := range foreigners {
		if value := e[f.name]; value != "" {
			if err := f.check(value, c); err != nil {
				errs = append(errs, fmt.Errorf("environment variable %s: %w", f.name, err))
			}
		}
	}
	return errors.Join(errs...)
}
