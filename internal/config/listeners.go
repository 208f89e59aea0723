package config

import (
	"fmt"
	"net"
	"strconv"
	"strings"
)

// A problem reports what is wrong with a flag.
type problem func(flag, format string, args ...any)

// listeners are the settings that name an address, in the order in which they
// are opened.
func (c *Config) listeners() []struct{ flag, address string } {
	return []struct{ flag, address string }{
		{"grpc", c.GRPC}, {"services", c.Services}, {"http", c.HTTP}, {"debug", c.Debug}, {"metrics", c.Metrics}, {"admin", c.Admin.Address},
	}
}

// checkAddresses refuses what no listener can be opened on, and an address that
// two settings name.
func (c *Config) checkAddresses(bad problem) {
	owner := map[string]string{}
	for _, l := range c.listeners() {
		switch other := owner[l.address]; {
		case l.address == "":
			continue
		case CheckAddress(l.address) != nil:
			bad(l.flag, "%v", CheckAddress(l.address))
		case other != "" && !strings.HasSuffix(l.address, ":0"):
			bad(l.flag, "%s is the address of --%s already: give it another one, or none", l.address, other)
		}
		owner[l.address] = l.flag
	}
}

// warnOfOpenPorts warns of ports that let callers around a guard of others.
func (c *Config) warnOfOpenPorts() {
	if c.ClientCA != "" && reachable(c.HTTP) {
		c.Warnings = append(c.Warnings, "--grpc-client-ca guards the gRPC ports, but /json at --http "+c.HTTP+
			" decides for every caller without a certificate: bind it to 127.0.0.1, or close it with --http ''")
	}
}

// reachable says whether other machines can reach the address.
func reachable(address string) bool {
	if address == "" || strings.HasPrefix(address, "unix:") {
		return false
	}
	host, _, _ := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	return host != "localhost" && (ip == nil || !ip.IsLoopback())
}

// maxSocketPath is the length of a Unix socket's path that all systems have.
const maxSocketPath = 103

// CheckAddress says what is wrong with an address that is listened on or called.
func CheckAddress(address string) error {
	path, socket := strings.CutPrefix(address, "unix:")
	if len(path) > maxSocketPath && socket {
		return fmt.Errorf("the path has %d bytes; that of a Unix socket has at most %d", len(path), maxSocketPath)
	}
	if socket && path != "" && path != "@" {
		return nil
	}
	_, port, err := net.SplitHostPort(address)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return fmt.Errorf("%q is not an address: want host:port such as :8081, unix:PATH or unix:@NAME", address)
	}
	return nil
}

// checkHeaders refuses names that no HTTP header can have.
func (c *Config) checkHeaders(bad problem) {
	for _, h := range []struct{ flag, name string }{
		{"limit-header", c.LimitHeader}, {"remaining-header", c.RemainingHeader}, {"reset-header", c.ResetHeader},
		{"retry-after-header", c.RetryHeader}, {"rule-header", c.RuleHeader},
	} {
		if strings.ContainsFunc(h.name, notInToken) {
			bad(h.flag, "%q cannot be the name of an HTTP header", h.name)
		}
	}
}

// notInToken says whether RFC 9110 forbids r in the name of a header.
func notInToken(r rune) bool {
	letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
	return !letter && !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
}
