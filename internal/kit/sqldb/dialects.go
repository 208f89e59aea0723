package sqldb

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// dialects are all that there are.
func dialects() []*Dialect {
	return []*Dialect{SQLite, Postgres, MySQL, Oracle}
}

// dialectOf returns the dialect of a URL's scheme, such as "postgres" or "mariadb".
func dialectOf(scheme string) (*Dialect, error) {
	for _, d := range dialects() {
		if slices.Contains(d.schemes, scheme) {
			return d, nil
		}
	}
	return nil, fmt.Errorf("unknown database %q; want one of %s", scheme, strings.Join(schemes(), ", "))
}

// schemes are those of all dialects.
func schemes() []string {
	var all []string
	for _, d := range dialects() {
		all = append(all, d.schemes...)
	}
	return all
}

// parse checks a Config without connecting. Errors name the field, and hold no password.
func parse(c Config) (*Dialect, *source, error) {
	if err := c.checkPool(); err != nil {
		return nil, nil, err
	}
	address := strings.TrimPrefix(c.URL, "jdbc:")
	scheme, _, found := strings.Cut(address, ":")
	if !found {
		return nil, nil, errors.New("database url: want a scheme, one of " + strings.Join(schemes(), ", ") +
			", such as postgres://host:5432/database")
	}
	d, err := dialectOf(scheme)
	if err != nil {
		return nil, nil, fmt.Errorf("database url: unknown scheme %q; want one of %s", scheme, strings.Join(schemes(), ", "))
	}
	src, err := d.parse(address, c)
	return d, src, err
}
