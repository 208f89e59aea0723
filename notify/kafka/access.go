package kafka

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/headgate-rls/headgate/internal/kit/bounded"
	"github.com/headgate-rls/headgate/internal/kit/certs"
)

// Access says how brokers are talked to. Files are read for each connection, so that renewed
// ones are used with the next one. The zero Access is neither encrypted nor logged in.
type Access struct {
	TLS   bool
	Files certs.ClientFiles
	// Mechanism is how to log in, one of those below; empty: not at all.
	Mechanism    string
	Username     string
	Password     string
	PasswordFile string // has the password, instead of Password
}

// The mechanisms.
const (
	Plain       = "plain"
	ScramSHA256 = "scram-sha-256"
	ScramSHA512 = "scram-sha-512"
)

// options are those of a client. It returns an error if a file cannot be used already.
func (a Access) options(dialWithin time.Duration) ([]kgo.Opt, error) {
	dialer := &net.Dialer{Timeout: dialWithin}
	dial := dialer.DialContext
	if a.TLS {
		if _, err := a.Files.Config("localhost:1"); err != nil {
			return nil, err
		}
		dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			conf, err := a.Files.Config(address)
			if err != nil {
				return nil, err
			}
			return (&tls.Dialer{NetDialer: dialer, Config: conf}).DialContext(ctx, network, address)
		}
	}
	opts := []kgo.Opt{kgo.Dialer(dial)}
	if a.Mechanism != "" {
		if _, err := a.password(); err != nil {
			return nil, err
		}
		mechanism, err := a.login()
		if err != nil {
			return nil, err
		}
		opts = append(opts, kgo.SASL(mechanism))
	}
	return opts, nil
}

func (a Access) login() (sasl.Mechanism, error) {
	byScram := func(context.Context) (scram.Auth, error) {
		password, err := a.password()
		return scram.Auth{User: a.Username, Pass: password}, err
	}
	switch a.Mechanism {
	case Plain:
		return plain.Plain(func(context.Context) (plain.Auth, error) {
			password, err := a.password()
			return plain.Auth{User: a.Username, Pass: password}, err
		}), nil
	case ScramSHA256:
		return scram.Sha256(byScram), nil
	case ScramSHA512:
		return scram.Sha512(byScram), nil
	}
	return nil, fmt.Errorf("there is no mechanism %s", a.Mechanism)
}

// maxPassword bounds what is read of a file.
const maxPassword = 1 << 20

func (a Access) password() (string, error) {
	if a.PasswordFile == "" {
		return a.Password, nil
	}
	data, err := bounded.File(a.PasswordFile, maxPassword)
	if err != nil {
		return "", fmt.Errorf("password: %w", err)
	}
	password := strings.TrimRight(string(data), "\r\n")
	if password == "" {
		return "", fmt.Errorf("password in %s: it is empty", a.PasswordFile)
	}
	return password, nil
}

// Problem says in a few words what an error of the brokers means, without their addresses.
func Problem(err error) string {
	var invalid x509.CertificateInvalidError
	var remote *net.OpError
	switch {
	case errors.Is(err, kerr.SaslAuthenticationFailed):
		return "refuses the user name or the password"
	case errors.Is(err, kerr.UnsupportedSaslMechanism):
		return "does not know this way to log in"
	case errors.As(err, new(x509.UnknownAuthorityError)):
		return "has a certificate of an unknown authority"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "has a certificate that has expired or is not valid yet"
	case errors.As(err, &invalid), errors.As(err, new(x509.HostnameError)):
		return "has a certificate that is not for it"
	case errors.As(err, &remote) && remote.Op == "remote error": // an alert of TLS
		return "refuses the certificate of this program, or misses one"
	case errors.As(err, new(*kgo.ErrFirstReadEOF)):
		return "ends connections at once, as it does where TLS or a login is missing or not expected"
	}
	return "does not answer"
}
