package sqldb

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// parseURL reads a URL with a host. Its errors do not quote it: there may be a
// password in it.
func parseURL(address string) (*url.URL, error) {
	u, err := parseHosts(address)
	if err != nil {
		return nil, errors.New("database url: it cannot be read; want scheme://user:password@host:port/database?parameters," +
			" with special characters in user and password as %XX, or give them apart from it")
	}
	if u.Host == "" {
		return nil, fmt.Errorf("database url: it has no host; want %s://host:port/database", u.Scheme)
	}
	return u, nil
}

// parseHosts is url.Parse for a URL that may have several hosts, IPv6 addresses in brackets among them,
// of which url.Parse knows only one.
func parseHosts(address string) (*url.URL, error) {
	before, rest, _ := strings.Cut(address, "://")
	authority := rest
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		authority = rest[:i]
	}
	user := authority[:strings.LastIndexByte(authority, '@')+1]
	hosts := strings.Split(authority[len(user):], ",")
	if len(hosts) == 1 {
		return url.Parse(address)
	}
	u, err := url.Parse(before + "://" + user + "host" + rest[len(authority):])
	if err != nil {
		return nil, err
	}
	for i, host := range hosts {
		one, err := url.Parse("any://" + host)
		if err != nil {
			return nil, err
		}
		hosts[i] = one.Host
	}
	u.Host = strings.Join(hosts, ",")
	return u, nil
}

// password is the one in a URL, wherever it is.
func password(u *url.URL, parameters url.Values) string {
	if p, ok := u.User.Password(); ok {
		return p
	}
	return parameters.Get("password")
}

// scrub makes an error about a URL without its password.
func scrub(err error, secret string) error {
	text := err.Error()
	if secret != "" {
		text = strings.ReplaceAll(text, secret, "xxxxx")
		text = strings.ReplaceAll(text, url.QueryEscape(secret), "xxxxx")
		text = strings.ReplaceAll(text, url.PathEscape(secret), "xxxxx")
	}
	return errors.New("database url: " + text)
}

// An oracleAddress is what a driver needs to connect.
type oracleAddress struct {
	connect  string // host:port/service, a TNS name, or a description in parentheses
	user     string
	password string
	relaxed  bool // commits do not wait for the disk
}
