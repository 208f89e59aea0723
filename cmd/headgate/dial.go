package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/netip"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/headgate-rls/headgate/internal/config"
)

// dialOptions say where a running service is, and how to talk to it.
type dialOptions struct {
	addr    string
	timeout time.Duration

	tls           bool
	ca, cert, key string
	serverName    string
}

func (opt *dialOptions) define(f *pflag.FlagSet) {
	f.StringVar(&opt.addr, "addr", localAddress("grpc", "127.0.0.1:8081"), "`address` of the service: host:port, unix:PATH or unix:@NAME; by default what HEADGATE_GRPC says")
	f.DurationVar(&opt.timeout, "timeout", time.Second, "longest wait for an answer")
	f.BoolVar(&opt.tls, "tls", false, "ask over TLS")
	f.StringVar(&opt.ca, "tls-ca", "", "`file` with the authorities to trust; implies --tls (default: the system's)")
	f.StringVar(&opt.cert, "tls-cert", "", "client certificate `file`; implies --tls")
	f.StringVar(&opt.key, "tls-key", "", "client key `file`")
	f.StringVar(&opt.serverName, "tls-server-name", "", "`name` that the service's certificate must have, if not that of --addr")
}

// localAddress returns where a service that has this process's environment can
// be asked: a listener on all addresses is on the loopback one, too.
func localAddress(setting, fallback string) string {
	addr := os.Getenv(config.EnvName(setting))
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

// dial returns a connection, which is made when it is first used.
func (opt *dialOptions) dial() (*grpc.ClientConn, error) {
	if err := config.CheckAddress(opt.addr); err != nil {
		return nil, fmt.Errorf("--addr: %w", err)
	}
	creds, err := opt.credentials()
	if err != nil {
		return nil, err
	}
	conn, err := grpc.NewClient(grpcTarget(opt.addr), grpc.WithTransportCredentials(creds))
	if err != nil {
		return nil, fmt.Errorf("--addr %s: %w", opt.addr, err)
	}
	return conn, nil
}

// transportError is the part of grpc-go's text that says what happened.
var transportError = regexp.MustCompile(`desc = "transport: (?:Error while dialing: )?(.*)"$`)

// explain says what err of a call means for who called.
func (opt *dialOptions) explain(err error) error {
	s := status.Convert(err)
	switch m := transportError.FindStringSubmatch(s.Message()); {
	case s.Code() == codes.DeadlineExceeded:
		return fmt.Errorf("service at %s: no answer within --timeout %v", opt.addr, opt.timeout)
	case m != nil && strings.Contains(m[1], "connection refused"):
		return fmt.Errorf("service at %s: %s; is it running? --addr says where", opt.addr, m[1])
	case m != nil:
		return fmt.Errorf("service at %s: %s", opt.addr, m[1])
	}
	return fmt.Errorf("service at %s: %s: %s", opt.addr, s.Code(), s.Message())
}

// credentials returns how to connect: in plain unless a flag says TLS.
func (opt *dialOptions) credentials() (credentials.TransportCredentials, error) {
	if !opt.tls && opt.ca == "" && opt.cert == "" {
		return insecure.NewCredentials(), nil
	}
	conf, err := opt.tlsConfig()
	if err != nil {
		return nil, err
	}
	return credentials.NewTLS(conf), nil
}

// tlsConfig is how to talk TLS.
func (opt *dialOptions) tlsConfig() (*tls.Config, error) {
	conf := &tls.Config{ServerName: opt.serverName, MinVersion: tls.VersionTLS12}
	if conf.ServerName == "" && strings.HasPrefix(opt.addr, "unix:") {
		conf.ServerName = "localhost" // a socket has no name
	}
	if opt.ca != "" {
		pem, err := os.ReadFile(opt.ca)
		if err != nil {
			return nil, fmt.Errorf("--tls-ca: %w", err)
		}
		conf.RootCAs = x509.NewCertPool()
		if !conf.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("--tls-ca %s: no certificate in it", opt.ca)
		}
	}
	if opt.cert != "" {
		pair, err := tls.LoadX509KeyPair(opt.cert, opt.key)
		if err != nil {
			return nil, fmt.Errorf("--tls-cert, --tls-key: %w", err)
		}
		conf.Certificates = []tls.Certificate{pair}
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
