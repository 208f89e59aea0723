package config

import "fmt"

// Admin has the settings of the guarded HTTP paths.
type Admin struct {
	Address  string
	Token    string
	TLSCert  string
	TLSKey   string
	ClientCA string
}

// minToken is the shortest token that is accepted: shorter ones can be guessed.
const minToken = 16

// settings returns the rows of the table for the admin paths.
func (c *Admin) settings() []setting {
	token := func(v string) error {
		if v != "" && len(v) < minToken {
			return fmt.Errorf("has %d characters, want at least %d; `openssl rand -hex 32` makes one", len(v), minToken)
		}
		return nil
	}
	keyPair := func() bool { return (c.TLSCert == "") == (c.TLSKey == "") }
	certHasListener := func() bool { return c.TLSCert == "" || c.Address != "" }
	caHasCert := func() bool { return c.ClientCA == "" || c.TLSCert != "" }
	return []setting{
		listener("admin", &c.Address, "", nil, "`address` of the admin paths; empty: the --http address serves them"),
		row("admin-token", &c.Token, "", token,
			"`secret` that admin requests send as Authorization: Bearer; without it and without --admin-client-ca the admin API is disabled").hiding(whole),
		row("admin-tls-cert", &c.TLSCert, "", all(
			require[string](keyPair, "needs --admin-tls-key, and the other way round"),
			require[string](certHasListener, "needs --admin, a listener of its own")),
			"certificate chain `file` of the --admin address; reloaded when it changes"),
		row("admin-tls-key", &c.TLSKey, "", nil, "private key `file` of the --admin address"),
		row("admin-client-ca", &c.ClientCA, "", require[string](caHasCert, "needs --admin-tls-cert and --admin-tls-key"),
			"`file` with the certificate authorities whose clients may use the --admin address; others are rejected"),
	}
}
