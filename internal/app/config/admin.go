package config

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"strings"
	"time"

	"github.com/headgate-rls/headgate/internal/kit/settings"
)

// Admin has the settings of the guarded HTTP paths.
type Admin struct {
	Address  string
	Token    string
	TLSCert  string
	TLSKey   string
	ClientCA string

	// Named are the tokens of HEADGATE_ADMIN_TOKEN_<NAME>, by their names in lower case.
	Named    map[string]string
	Networks []string

	// Keys says what answers have of keys.
	Keys string

	JWKS     string
	Issuer   string
	Audience string
	Leeway   time.Duration
}

// Guarded reports whether there is anything that lets somebody use the admin paths.
func (c *Admin) Guarded() bool {
	return c.Token != "" || len(c.Named) > 0 || c.ClientCA != "" || c.JWKS != ""
}

// Prefixes are the networks of --admin-networks, which was checked when the settings were read.
func (c *Admin) Prefixes() (list []netip.Prefix) {
	for _, n := range c.Networks {
		p, _ := prefix(n)
		list = append(list, p)
	}
	return list
}

// prefix reads a network, which may be one address.
func prefix(text string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(text)
	if addr, e := netip.ParseAddr(text); e == nil && addr.Zone() == "" {
		p, err = netip.PrefixFrom(addr, addr.BitLen()), nil
	}
	switch {
	case err != nil:
		return p, fmt.Errorf("%q is neither a network such as 10.0.0.0/8 nor an address", text)
	case p.Addr().Is4In6():
		return p, fmt.Errorf("%q is IPv4 written as IPv6; write it as IPv4", text)
	case p != p.Masked():
		return p, fmt.Errorf("%q has bits behind its length; did you mean %v?", text, p.Masked())
	}
	return p, nil
}

// maxNamed bounds how many named tokens there are: each is compared with what a request has.
const maxNamed = 100

// tokenName is what may stand behind HEADGATE_ADMIN_TOKEN_.
var tokenName = regexp.MustCompile(`^[A-Z0-9][A-Z0-9_]{0,63}$`)

// addToken takes the value of a variable HEADGATE_ADMIN_TOKEN_<NAME>. Errors do not tell it.
func (c *Admin) addToken(name, value string) error {
	if !tokenName.MatchString(name) {
		return fmt.Errorf("%q is no name of a token: want 1 to 64 capital letters, digits and _", name)
	}
	if name == "FILE" {
		return errors.New("tokens are not read from files: set HEADGATE_ADMIN_TOKEN to the content of the file, " +
			"not to its name")
	}
	if err := settings.CheckToken(value); err != nil || value == "" {
		return cmp.Or(err, errors.New("must not be empty"))
	}
	if c.Named == nil {
		c.Named = map[string]string{}
	}
	c.Named[strings.ToLower(name)] = value
	if len(c.Named) > maxNamed {
		return fmt.Errorf("there are more than %d named tokens", maxNamed)
	}
	return nil
}

// settings returns the rows of the table for the admin paths.
func (c *Admin) settings() []settings.Setting {
	hasListener := func() bool { return c.Address != "" }
	hasCert := func() bool { return c.TLSCert != "" }
	networks := func(list []string) error {
		for _, n := range list {
			if _, err := prefix(n); err != nil {
				return err
			}
		}
		return nil
	}
	return []settings.Setting{
		settings.Row("admin", &c.Address, "",
			"`address` of the admin paths; empty: the --http address serves them", settings.Listens),
		settings.Row("admin-token", &c.Token, "",
			"`secret` that admin requests send as Authorization: Bearer; the variables HEADGATE_ADMIN_TOKEN_<NAME> "+
				"have more of them, and logs say which was used; without any, and without --admin-client-ca and "+
				"--admin-jwks, the admin API is disabled", settings.Token, settings.Secret),
		settings.Row("admin-networks", &c.Networks, nil,
			"`network` such as 10.0.0.0/8 that admin requests may come from, others get 403; may be repeated "+
				"(default: any)", settings.Check(networks)),
		settings.Row("admin-keys", &c.Keys, "plain",
			"how answers of the admin API name keys of counters, which may have personal values: plain, or hashed, as "+
				"logs do by --log-keys", settings.OneOf(HashedKeys, "plain")),
		settings.Row("admin-tls-cert", &c.TLSCert, "",
			"certificate chain `file` of the --admin address; reloaded when it changes",
			settings.Pair(&c.TLSCert, &c.TLSKey, "--admin-tls-key"),
			settings.Needs(hasListener, "needs --admin, a listener of its own")),
		settings.Row("admin-tls-key", &c.TLSKey, "", "private key `file` of the --admin address"),
		settings.Row("admin-client-ca", &c.ClientCA, "",
			"`file` with the certificate authorities whose clients may use the --admin address; others are rejected",
			settings.Needs(hasCert, "needs --admin-tls-cert and --admin-tls-key")),
	}
}

// jwtSettings returns the rows of the table for JWTs.
func (c *Admin) jwtSettings() []settings.Setting {
	complete := func() bool { return (c.JWKS != "") == (c.Issuer != "") && (c.JWKS != "") == (c.Audience != "") }
	return []settings.Setting{
		settings.Row("admin-jwks", &c.JWKS, "",
			"`file or https URL` with the public keys (JWKS) of JWTs that do in the place of a token, signed by "+
				"RS256, ES256 or EdDSA",
			settings.Want(complete, "needs --admin-jwt-issuer and --admin-jwt-audience, and the other way round"),
			settings.Check(jwksSource)),
		settings.Row("admin-jwt-issuer", &c.Issuer, "",
			"`issuer` (iss) that such JWTs must have",
			settings.Want(complete, "needs --admin-jwks and --admin-jwt-audience")),
		settings.Row("admin-jwt-audience", &c.Audience, "",
			"`audience` (aud) that such JWTs must have",
			settings.Want(complete, "needs --admin-jwks and --admin-jwt-issuer")),
		settings.Row("admin-jwt-leeway", &c.Leeway, 30*time.Second,
			"how much the clocks of issuers may differ", settings.AtMost(5*time.Minute)),
	}
}

// jwksSource refuses URLs that keys must not come from.
func jwksSource(v string) error {
	if strings.Contains(v, "://") {
		return settings.KeysURL(v)
	}
	return nil
}
