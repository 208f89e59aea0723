package middleware

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// An IPOption says how [ClientIP] finds the client.
type IPOption func(*ipFinder)

// An ipFinder finds the address of the client.
type ipFinder struct {
	hops      int
	networks  []netip.Prefix
	forwarded bool // reads Forwarded in place of X-Forwarded-For
	v6        int  // bits of an IPv6 address that identify a client
}

// TrustedHops says how many proxies stand in front of the server. Each adds the address of
// its own client to the right of X-Forwarded-For, so the client is the n-th address from
// the right. The default is 0: the client is who has connected, and X-Forwarded-For, which
// clients can write as they like, is not read.
func TrustedHops(n int) IPOption {
	if n < 0 || n > maxHops {
		panic(fmt.Sprintf("middleware: TrustedHops(%d): want 0 to %d", n, maxHops))
	}
	return func(f *ipFinder) { f.hops = n }
}

// TrustedNetworks says where proxies are. The client is the first address that is in none
// of the networks, beginning with who has connected and then from the right of
// X-Forwarded-For. It takes the place of [TrustedHops].
func TrustedNetworks(networks ...netip.Prefix) IPOption {
	networks = slices.Clone(networks)
	for i, n := range networks {
		if !n.IsValid() {
			panic("middleware: TrustedNetworks: a network is not valid")
		}
		if n.Addr().Is4In6() && n.Bits() >= 96 { // requests have IPv4 addresses
			networks[i] = netip.PrefixFrom(n.Addr().Unmap(), n.Bits()-96)
		}
	}
	return func(f *ipFinder) { f.networks = append(f.networks, networks...) }
}

// Forwarded reads the header Forwarded (RFC 7239) in place of X-Forwarded-For.
func Forwarded() IPOption { return func(f *ipFinder) { f.forwarded = true } }

// IPv6Bits says how many bits of an IPv6 address identify a client: 64 by default, since
// one client has at least so many addresses.
func IPv6Bits(bits int) IPOption {
	if bits < 1 || bits > 128 {
		panic(fmt.Sprintf("middleware: IPv6Bits(%d): want 1 to 128", bits))
	}
	return func(f *ipFinder) { f.v6 = bits }
}

// maxHops bounds how many addresses of a header are read.
const maxHops = 64

// ClientIP is the client's address: an IPv4 address, or the network of an IPv6 address
// ("2001:db8::/64"). A header that proxies should have written and have not counts for
// nothing: the address is then that of the last proxy that can be trusted.
func ClientIP(opts ...IPOption) Extractor {
	f := &ipFinder{v6: 64}
	for _, o := range opts {
		o(f)
	}
	return func(r *http.Request) (string, bool) {
		client, ok := f.find(r)
		if !ok {
			return "", false
		}
		return f.shown(client), true
	}
}

// An address is one that a request names. spelt is how it does, for IPv4 addresses: those
// have one spelling, so that they need not be written anew.
type address struct {
	netip.Addr
	spelt string
}

// shown returns what identifies the client.
func (f *ipFinder) shown(client address) string {
	switch {
	case client.spelt != "":
		return client.spelt
	case client.Is4() || f.v6 == 128:
		return client.String()
	}
	return netip.PrefixFrom(client.Addr, f.v6).Masked().String()
}

// find returns the client's address. ok is false only if the server does not know who has
// connected, as on a Unix socket without proxies.
func (f *ipFinder) find(r *http.Request) (client address, ok bool) {
	peer, known := parseAddr(r.RemoteAddr)
	switch {
	case len(f.networks) > 0:
		return f.beyondNetworks(r, peer, known)
	case f.hops == 0:
		return peer, known
	}
	left := f.hops
	found, foundOK := peer, known
	f.each(r, func(addr address, ok bool) bool {
		if left--; left == 0 && ok {
			found, foundOK = addr, true
		}
		return left > 0
	})
	return found, foundOK
}

// beyondNetworks returns the first address that is not a trusted proxy's.
func (f *ipFinder) beyondNetworks(r *http.Request, peer address, known bool) (address, bool) {
	if known && !f.trusts(peer) {
		return peer, true
	}
	client, left := peer, maxHops
	f.each(r, func(addr address, ok bool) bool {
		if left--; !ok || left < 0 {
			return false
		}
		client, known = addr, true
		return f.trusts(addr)
	})
	return client, known
}

func (f *ipFinder) trusts(addr address) bool {
	return slices.ContainsFunc(f.networks, func(n netip.Prefix) bool { return n.Contains(addr.Addr) })
}

// each calls f with the addresses of the header from the right, while it returns true. ok
// is false for what is not an address.
func (f *ipFinder) each(r *http.Request, visit func(addr address, ok bool) bool) {
	name, read := "X-Forwarded-For", parseAddr
	if f.forwarded {
		name, read = "Forwarded", parseForwarded
	}
	lines := r.Header[name]
	for i := len(lines) - 1; i >= 0; i-- {
		for rest, more := lines[i], true; more; {
			var element string
			rest, element, more = cutLast(rest, f.forwarded)
			if !visit(read(element)) {
				return
			}
		}
	}
}

// cutLast cuts the last element off a list. In quotes a comma separates nothing. It looks
// for quotes from the right, since what stands to the left may be the client's.
func cutLast(list string, quotes bool) (rest, last string, more bool) {
	inside := false
	for i := len(list) - 1; i >= 0; i-- {
		switch {
		case list[i] == '"' && quotes:
			inside = !inside
		case list[i] == ',' && !inside:
			return list[:i], list[i+1:], true
		}
	}
	return "", list, false
}

// parseForwarded reads the address of for=… in an element of Forwarded.
func parseForwarded(element string) (address, bool) {
	for pair := range strings.SplitSeq(element, ";") {
		name, value, ok := strings.Cut(pair, "=")
		if !ok || !strings.EqualFold(strings.TrimSpace(name), "for") {
			continue
		}
		value = strings.TrimSpace(value)
		if n := len(value); n >= 2 && value[0] == '"' && value[n-1] == '"' {
			value = value[1 : n-1]
		}
		return parseAddr(value)
	}
	return address{}, false
}

// maxAddr is longer than any address with its port, in bytes.
const maxAddr = 64

// parseAddr reads an address that may have a port, brackets and a zone, which is dropped.
func parseAddr(s string) (address, bool) {
	s = strings.TrimSpace(s[:min(len(s), 2*maxAddr)])
	if len(s) > maxAddr {
		return address{}, false
	}
	if strings.HasPrefix(s, "[") {
		end := strings.IndexByte(s, ']')
		if end < 0 {
			return address{}, false
		}
		if rest := s[end+1:]; rest != "" && rest[0] != ':' {
			return address{}, false
		}
		s = s[1:end]
	} else if at := strings.IndexByte(s, ':'); at >= 0 && strings.IndexByte(s[at+1:], ':') < 0 {
		s = s[:at]
	}
	addr, err := netip.ParseAddr(s)
	switch {
	case err != nil:
		return address{}, false
	case addr.Is4():
		return address{addr, s}, true
	}
	return address{Addr: addr.WithZone("").Unmap()}, true
}
