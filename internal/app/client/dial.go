package client

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/netip"
	"os"
	"regexp"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/headgate-rls/headgate/internal/kit/certs"
	"github.com/headgate-rls/headgate/internal/kit/settings"
)

// Options say where a running service is, and how to talk to it.
type Options struct {
	Addr    string        // host:port, a URL, unix:PATH or unix:@NAME; for [API] no socket
	Timeout time.Duration // longest wait for an answer
	Ready   bool          // health: whether all that the service needs answers, too
	Own     bool          // health: as Ready, but for what replicas share

	TLS        bool   // ask over TLS; implied by CA and Cert
	CA         string // file with the authorities to trust; empty: the system's
	Cert, Key  string // files of the client's certificate; empty: none
	ServerName string // that the service's certificate must have; empty: that of Addr
}

// env returns a setting of the service from this process's environment.
func env(setting string) string { return os.Getenv(settings.EnvName("HEADGATE", setting)) }

// LocalAddress returns where a service that has this process's environment can be
// asked by what a setting says, such as grpc, or fallback if the environment does not
// have it. A listener on all addresses is on the loopback one, too.
func LocalAddress(setting, fallback string) string {
	addr := env(setting)
	if addr == "" {
		return fallback
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return addr
	}
	if ip, err := netip.ParseAddr(host); host == "" || err == nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port)
}

// Dial returns a connection, which is made when it is first used. The error says which
// of the options is wrong. The caller closes it.
func (opt *Options) Dial() (*grpc.ClientConn, error) {
	opt.takeURL()
	if err := settings.CheckAddress(opt.Addr); err != nil {
		return nil, fmt.Errorf("--addr: %w", err)
	}
	creds, err := opt.credentials()
	if err != nil {
		return nil, err
	}
	conn, err := grpc.NewClient(grpcTarget(opt.Addr), grpc.WithTransportCredentials(creds))
	if err != nil {
		return nil, fmt.Errorf("--addr %s: %w", opt.Addr, err)
	}
	return conn, nil
}

// takeURL makes host:port of http://host:port, and also TLS of https://host:port: other commands take URLs.
func (opt *Options) takeURL() {
	addr, secure := strings.CutPrefix(opt.Addr, "https://")
	opt.TLS = opt.TLS || secure
	opt.Addr = strings.TrimPrefix(addr, "http://")
	if opt.Addr != addr || secure {
		opt.Addr = strings.TrimSuffix(opt.Addr, "/")
	}
}

// transportError is the part of grpc-go's text that says what happened.
var transportError = regexp.MustCompile(`desc = "transport: (?:Error while dialing: )?(.*)"$`)

// notTLS matches handshake errors of a server without TLS.
var notTLS = regexp.MustCompile(`handshake failed: .*(connection reset|EOF|does not look like a TLS handshake)`)

// badCertificate matches handshake errors about the certificate of the server, and outOfTime those about its dates.
var (
	badCertificate = regexp.MustCompile(`handshake failed: tls: failed to verify certificate: (.*)`)
	outOfTime      = regexp.MustCompile(`: current time \S+ is (after|before) (\S+)`)
)

// certificateProblem says what is wrong with the server's certificate, by what badCertificate found.
func certificateProblem(text string) string {
	text = outOfTime.ReplaceAllStringFunc(text, func(part string) string {
		m := outOfTime.FindStringSubmatch(part)
		return map[string]string{"after": "; expired on ", "before": "; not valid before "}[m[1]] + m[2]
	})
	return "the server's certificate is not valid: " + text
}

// Explain says what the error of a call over a connection means for who called.
func (opt *Options) Explain(err error) error {
	s := status.Convert(err)
	switch m := transportError.FindStringSubmatch(s.Message()); {
	case s.Code() == codes.DeadlineExceeded:
		return fmt.Errorf("service at %s: no answer within --timeout %v", opt.Addr, opt.Timeout)
	case m != nil && strings.Contains(m[1], "connection refused"):
		return fmt.Errorf("service at %s: %s; is it running? --addr says where", opt.Addr, m[1])
	case strings.Contains(s.Message(), "looked like an HTTP/1.1 header"):
		return fmt.Errorf("service at %s: an HTTP/1.1 server answers there; --addr is the gRPC address, "+
			"whose port is 8081 by default", opt.Addr)
	case strings.Contains(s.Message(), "error reading server preface"):
		return fmt.Errorf("service at %s: it does not talk gRPC in plain; does it want TLS (--tls)?", opt.Addr)
	case s.Code() == codes.Unimplemented:
		return fmt.Errorf("service at %s: it has no such method: %s; --addr is the gRPC address (--grpc), "+
			"whose port is 8081 by default", opt.Addr, s.Message())
	case m != nil && badCertificate.MatchString(m[1]):
		return fmt.Errorf("service at %s: %s", opt.Addr, certificateProblem(badCertificate.FindStringSubmatch(m[1])[1]))
	case m != nil && notTLS.MatchString(m[1]):
		return fmt.Errorf("service at %s: %s; does it talk TLS there?", opt.Addr, m[1])
	case m != nil:
		return fmt.Errorf("service at %s: %s", opt.Addr, m[1])
	}
	return fmt.Errorf("service at %s: %s: %s", opt.Addr, s.Code(), s.Message())
}

// credentials returns how to connect: in plain unless a flag says TLS.
func (opt *Options) credentials() (credentials.TransportCredentials, error) {
	if !opt.TLS && opt.CA == "" && opt.Cert == "" {
		return insecure.NewCredentials(), nil
	}
	conf, err := opt.tlsConfig()
	if err != nil {
		return nil, err
	}
	return credentials.NewTLS(conf), nil
}

// tlsConfig is how to talk TLS.
func (opt *Options) tlsConfig() (*tls.Config, error) {
	files := certs.ClientFiles{Cert: opt.Cert, Key: opt.Key, ServerName: opt.ServerName}
	if files.ServerName == "" && strings.HasPrefix(opt.Addr, "unix:") {
		files.ServerName = "localhost" // a socket has no name
	}
	conf, err := files.Load()
	if err != nil {
		return nil, fmt.Errorf("--tls-cert, --tls-key: %w", err)
	}
	if opt.CA != "" {
		if conf.RootCAs, _, err = certs.Authorities(certs.OfClient, opt.CA); err != nil {
			return nil, fmt.Errorf("--tls-ca: %w", err)
		}
	}
	return conf, nil
}

// grpcTarget returns addr as grpc-go's resolvers spell it.
func grpcTarget(addr string) string {
	if name, ok := strings.CutPrefix(addr, "unix:@"); ok {
		return "unix-abstract:" + name
	}
	if strings.HasPrefix(addr, "unix:") {
		return addr
	}
	return "passthrough:///" + addr
}
