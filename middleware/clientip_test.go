package middleware

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"
)

func request(remote string, headers ...string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.RemoteAddr = remote
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	return r
}

func TestClientIP(t *testing.T) {
	const xff, fwd = "X-Forwarded-For", "Forwarded"
	hops := func(n int, more ...IPOption) []IPOption { return append(more, TrustedHops(n)) }
	private := TrustedNetworks(netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8"))
	mapped := TrustedNetworks(netip.MustParsePrefix("::ffff:10.0.0.0/104"))
	for name, c := range map[string]struct {
		opts []IPOption
		r    *http.Request
		want string
	}{
		"who connects":                  {nil, request("192.0.2.1:1234"), "192.0.2.1"},
		"the header is not read":        {nil, request("192.0.2.1:1234", xff, "203.0.113.9"), "192.0.2.1"},
		"IPv6 by its network":           {nil, request("[2001:db8:1:2:3:4:5:6]:1234"), "2001:db8:1:2::/64"},
		"IPv6 as a whole":               {[]IPOption{IPv6Bits(128)}, request("[2001:db8::6]:1"), "2001:db8::6"},
		"IPv6 with 48 bits":             {[]IPOption{IPv6Bits(48)}, request("[2001:db8:1:2::6]:1"), "2001:db8:1::/48"},
		"IPv4 in IPv6":                  {nil, request("[::ffff:192.0.2.1]:1"), "192.0.2.1"},
		"a zone":                        {nil, request("[fe80::1%eth0]:1"), "fe80::/64"},
		"a Unix socket":                 {nil, request("@"), ""},
		"one hop":                       {hops(1), request("10.0.0.1:1", xff, "203.0.113.9"), "203.0.113.9"},
		"one hop, spoofed":              {hops(1), request("10.0.0.1:1", xff, "1.2.3.4, 203.0.113.9"), "203.0.113.9"},
		"one hop, spoofed in two lines": {hops(1), request("10.0.0.1:1", xff, "1.2.3.4", xff, "203.0.113.9"), "203.0.113.9"},
		"two hops": {hops(2), request("10.0.0.1:1", xff, "1.2.3.4, 203.0.113.9, 10.0.0.2"),
			"203.0.113.9"},
		"two hops, in two lines": {hops(2), request("10.0.0.1:1", xff, "1.2.3.4, 203.0.113.9", xff, "10.0.0.2"),
			"203.0.113.9"},
		"two hops, one address":      {hops(2), request("10.0.0.1:1", xff, "203.0.113.9"), "10.0.0.1"},
		"one hop, no header":         {hops(1), request("10.0.0.1:1"), "10.0.0.1"},
		"one hop, no address":        {hops(1), request("10.0.0.1:1", xff, "unknown"), "10.0.0.1"},
		"one hop, empty":             {hops(1), request("10.0.0.1:1", xff, "1.2.3.4, "), "10.0.0.1"},
		"a port":                     {hops(1), request("10.0.0.1:1", xff, "203.0.113.9:443"), "203.0.113.9"},
		"brackets and a port":        {hops(1), request("10.0.0.1:1", xff, "[2001:db8::1]:443"), "2001:db8::/64"},
		"a hop behind a Unix socket": {hops(1), request("@", xff, "203.0.113.9"), "203.0.113.9"},
		"beyond networks": {[]IPOption{private}, request("10.0.0.1:1", xff, "1.2.3.4, 203.0.113.9, 10.0.0.2"),
			"203.0.113.9"},
		"outside of networks":       {[]IPOption{private}, request("203.0.113.1:1", xff, "1.2.3.4"), "203.0.113.1"},
		"only networks":             {[]IPOption{private}, request("10.0.0.1:1", xff, "10.0.0.3, 10.0.0.2"), "10.0.0.3"},
		"networks, then no address": {[]IPOption{private}, request("10.0.0.1:1", xff, "1.2.3.4, x, 10.0.0.2"), "10.0.0.2"},
		"IPv6 networks":             {[]IPOption{private}, request("[fd00::1]:1", xff, "2001:db8::7"), "2001:db8::/64"},
		"networks of IPv4 in IPv6": {[]IPOption{mapped}, request("10.0.0.1:1", xff, "203.0.113.9, 10.0.0.2"),
			"203.0.113.9"},
		"Forwarded": {hops(1, Forwarded()),
			request("10.0.0.1:1", fwd, `for=1.2.3.4, for=203.0.113.9;proto=https;by=10.0.0.1`), "203.0.113.9"},
		"Forwarded in capitals": {hops(1, Forwarded()),
			request("10.0.0.1:1", fwd, `Proto=https; For="203.0.113.9:99"`), "203.0.113.9"},
		"Forwarded, IPv6": {hops(1, Forwarded()), request("10.0.0.1:1", fwd, `for="[2001:db8::1]:4711"`),
			"2001:db8::/64"},
		"Forwarded, hidden": {hops(1, Forwarded()), request("10.0.0.1:1", fwd, `for=_hidden`), "10.0.0.1"},
		"Forwarded, a comma in quotes": {hops(1, Forwarded()), request("10.0.0.1:1", fwd, `for=203.0.113.9;host="a,b"`),
			"203.0.113.9"},
		"Forwarded, an open quote": {hops(1, Forwarded()), request("10.0.0.1:1", fwd, `for="1.2.3.4, for=203.0.113.9`),
			"203.0.113.9"},
		"Forwarded, not the other": {hops(1, Forwarded()), request("10.0.0.1:1", xff, "1.2.3.4"), "10.0.0.1"},
	} {
		if got, ok := ClientIP(c.opts...)(c.r); got != c.want || ok != (c.want != "") {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// A header with 10,000 addresses, or a megabyte of anything, costs no more than it must.
func TestLongHeadersCostLittle(t *testing.T) {
	long := strings.Repeat("10.0.0.1, ", 10_000)
	for _, header := range []string{long + "203.0.113.9", strings.Repeat(`"`, 1<<20), strings.Repeat(",", 1<<20),
		strings.Repeat("for=", 1<<18), strings.Repeat(" ", 1<<20)} {
		for _, name := range []string{"X-Forwarded-For", "Forwarded"} {
			r := request("10.0.0.1:1", name, header)
			opts := []IPOption{TrustedNetworks(netip.MustParsePrefix("10.0.0.0/8"))}
			if name == "Forwarded" {
				opts = append(opts, Forwarded())
			}
			find := ClientIP(opts...)
			start := time.Now()
			for range 10 {
				find(r)
			}
			if took := time.Since(start) / 10; took > 10*time.Second {
				t.Errorf("%s with %.10s…: %v", name, header, took)
			}
			if n := testing.AllocsPerRun(10, func() { find(r) }); n > 100 {
				t.Errorf("%s with %.10s…: %v allocations", name, header, n)
			}
		}
	}
}

func FuzzClientIP(f *testing.F) {
	for _, seed := range []string{"1.2.3.4", "1.2.3.4, 5.6.7.8:9", `for="[2001:db8::1]:4711";by=x, for=1.2.3.4`,
		"[::1%eth0]:1", ",,,", `"`, "\xff"} {
		f.Add("10.0.0.1:1", seed, "5.6.7.8", uint8(1))
	}
	networks := TrustedNetworks(netip.MustParsePrefix("10.0.0.0/8"))
	f.Fuzz(func(t *testing.T, remote, header, last string, hops uint8) {
		r := &http.Request{RemoteAddr: remote, Header: http.Header{"X-Forwarded-For": {header}, "Forwarded": {header}}}
		direct, _ := ClientIP()(r)
		for _, opts := range [][]IPOption{
			{TrustedHops(int(hops) % maxHops)}, {TrustedHops(int(hops) % maxHops), Forwarded()}, {networks},
			{networks, Forwarded()},
		} {
			got, ok := ClientIP(opts...)(r)
			if !ok {
				continue
			}
			if _, err := netip.ParsePrefix(got); err != nil {
				if _, err := netip.ParseAddr(got); err != nil {
					t.Fatalf("%q is no address", got)
				}
			}
		}
		// What a client writes cannot change what the proxy in front appends.
		addr, err := netip.ParseAddr(last)
		if err != nil || addr.Zone() != "" {
			return
		}
		r.Header = http.Header{"X-Forwarded-For": {header + ", " + last}, "Forwarded": {header + `, for="` + last + `"`}}
		alone := &http.Request{RemoteAddr: remote,
			Header: http.Header{"X-Forwarded-For": {last}, "Forwarded": {`for="` + last + `"`}}}
		for _, opts := range [][]IPOption{{TrustedHops(1)}, {TrustedHops(1), Forwarded()}} {
			spoofed, _ := ClientIP(opts...)(r)
			want, _ := ClientIP(opts...)(alone)
			if spoofed != want {
				t.Fatalf("with %q before it, %s is taken for %q", header, last, spoofed)
			}
		}
		_ = direct
	})
}

// An IPv4 address is not written anew.
func TestIPv4AddressesCostNoMemory(t *testing.T) {
	r := request("10.0.0.1:1", "X-Forwarded-For", "1.2.3.4, 203.0.113.9:80 ")
	for want, find := range map[string]Extractor{"10.0.0.1": ClientIP(), "203.0.113.9": ClientIP(TrustedHops(1))} {
		var got string
		if n := testing.AllocsPerRun(100, func() { got, _ = find(r) }); n != 0 || got != want {
			t.Errorf("%q with %v allocations, want %s with none", got, n, want)
		}
	}
}
