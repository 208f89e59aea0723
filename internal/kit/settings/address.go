package settings

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
)

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

// Reachable reports whether other machines can reach the address.
func Reachable(address string) bool {
	if address == "" || strings.HasPrefix(address, "unix:") {
		return false
	}
	host, _, _ := net.SplitHostPort(address)
	return !isLocal(host)
}

// KeysURL rejects URLs whose keys somebody on the network path could replace.
func KeysURL(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "":
		return errors.New("is no URL of a JWKS")
	case u.User != nil:
		return errors.New("must not have a user or a password")
	case u.Scheme == "https", u.Scheme == "http" && isLocal(u.Hostname()):
		return nil
	}
	return errors.New("must begin with https://; http:// is for this host only")
}

func isLocal(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
