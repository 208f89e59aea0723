package sqldb

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/headgate-rls/headgate/internal/kit/params"
)

// dialects are all that there are.
func dialects() []*Dialect {
	return []*Dialect{SQLite, Postgres, MySQL, Oracle}
}

// dialectOf returns the dialect of a URL's scheme, such as "postgres" or "mariadb".
func dialectOf(scheme string) (*Dialect, error) {
	for _, d := range dialects() {
		if d.Has(scheme) {
			return d, nil
		}
	}
	return nil, fmt.Errorf("unknown database %q; want one of %s", scheme, strings.Join(Schemes(), ", "))
}

// Has reports whether a scheme of URLs, such as "mariadb", is the dialect's.
func (d *Dialect) Has(scheme string) bool { return slices.Contains(d.schemes, scheme) }

// Schemes are those of all dialects.
func Schemes() []string {
	var all []string
	for _, d := range dialects() {
		all = append(all, d.schemes...)
	}
	return all
}

// CheckLogin refuses a URL of which a part of the password would be taken for something else: see params.CheckLogin.
func CheckLogin(rawURL string) error {
	address := strings.TrimPrefix(rawURL, "jdbc:")
	if strings.HasPrefix(address, "sqlite:") || strings.HasPrefix(address, "oracle:thin:") {
		return nil // a file, and a form of its own
	}
	err := params.CheckLogin(address, params.HoldNoAt, "user", "password")
	if err == nil && strings.Contains(address, "#") {
		err = errors.New("a # in a password must be written %23")
	}
	if err != nil {
		return fmt.Errorf("database url: %w", err)
	}
	return nil
}

// parse checks a Config without connecting. Errors name the field, and hold no password.
func parse(c Config) (*Dialect, *source, error) {
	if c.PoolMin < 0 || c.PoolMax < 0 || (c.PoolMax > 0 && c.PoolMin > c.PoolMax) {
		return nil, nil, fmt.Errorf("database pool: want 0 <= min <= max, got min %d and max %d", c.PoolMin, c.PoolMax)
	}
	address := strings.TrimPrefix(c.URL, "jdbc:")
	scheme, _, found := strings.Cut(address, ":")
	if !found {
		return nil, nil, errors.New("database url: want a scheme, one of " + strings.Join(Schemes(), ", ") +
			", such as postgres://host:5432/database")
	}
	d, err := dialectOf(scheme)
	if err != nil {
		return nil, nil, fmt.Errorf("database url: unknown scheme %q; want one of %s", scheme, strings.Join(Schemes(), ", "))
	}
	if err := CheckLogin(c.URL); err != nil {
		return nil, nil, err
	}
	src, err := d.parse(address, c)
	return d, src, err
}
