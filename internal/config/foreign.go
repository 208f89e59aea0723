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
	use := func(url string) error { return fmt.Errorf("%q: set %s=%s", value, EnvName("backend"), url) }
	switch {
	case value == "inmemory" && scheme != "memory":
		return use("memory://, or remove the variable")
	case value == "store-redis" && !strings.HasPrefix(scheme, "redis"):
		return use("redis://HOST:6379")
	case value == "store-dynamodb":
		return errors.New(`"store-dynamodb": there is no such backend; docs/backends.md lists those that there are`)
	case value != "inmemory" && value != "store-redis":
		return fmt.Errorf("%q: want inmemory or store-redis; or remove the variable and set %s", value, EnvName("backend"))
	}
	return nil
}

// throttlexMode accepts what this program is.
func throttlexMode(value string, _ *Config) error {
	switch strings.ToLower(value) {
	case "service":
		return nil
	case "embedded":
		return errors.New(`"embedded": this program is the service; in process, use headgate as a Go library (docs/library.md)`)
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
