package certs

import (
	"crypto/x509"
	"net"
	"net/url"
	"strings"
	"testing"
)

func certificate(t *testing.T, names ...string) *x509.Certificate {
	t.Helper()
	c := new(x509.Certificate)
	for _, n := range names {
		if ip := net.ParseIP(n); ip != nil {
			c.IPAddresses = append(c.IPAddresses, ip)
			continue
		}
		if name, ok := strings.CutPrefix(n, "dns:"); ok {
			c.DNSNames = append(c.DNSNames, name)
			continue
		}
		if !strings.Contains(n, ":") {
			c.DNSNames = append(c.DNSNames, n)
			continue
		}
		u, err := url.Parse(n)
		if err != nil {
			t.Fatal(err)
		}
		c.URIs = append(c.URIs, u)
	}
	return c
}

func TestClientsAreAdmittedByTheirNamesOnly(t *testing.T) {
	for _, c := range []struct {
		pattern, names string
		want           bool
	}{
		{"envoy.example.com", "envoy.example.com", true},
		{"envoy.example.com", "other.example.com Envoy.Example.COM.", true},
		{"envoy.example.com", "envoy.example.com.evil.org", false},
		{"envoy.example.com", "x.envoy.example.com", false},
		{"envoy.example.com", "*.example.com", false},
		{"envoy.example.com", "", false},
		{"*.example.com", "envoy.example.com", true},
		{"*.example.com", "example.com", false},
		{"*.example.com", "a.b.example.com", false},
		{"*.example.com", "*.example.com", false},
		{"*.example.com", "spiffe://a.example.com", false},
		{"10.0.0.1", "10.0.0.1", true},
		{"10.0.0.1", "10.0.0.2", false},
		{"10.0.0.1", "dns:10.0.0.1", false},
		{"fd00::1", "fd00:0::1", true},
		{"*.0.0.1", "10.0.0.1", false},
		{"spiffe://cluster.local/ns/shop/sa/envoy", "spiffe://cluster.local/ns/shop/sa/envoy", true},
		{"spiffe://cluster.local/ns/shop/sa/envoy", "spiffe://Cluster.Local/ns/shop/sa/envoy", true},
		{"spiffe://cluster.local/ns/shop/sa/envoy", "spiffe://cluster.local/ns/Shop/sa/envoy", false},
		{"spiffe://cluster.local/ns/shop/sa/envoy", "spiffe://cluster.local/ns/shop/sa/envoy/x", false},
		{"spiffe://cluster.local/ns/shop/sa/envoy", "https://cluster.local/ns/shop/sa/envoy", false},
		{"spiffe://cluster.local/ns/shop/sa/envoy", "spiffe://cluster.local/ns/shop/sa/envoy?x=1", false},
		{"spiffe://cluster.local/ns/shop/sa/envoy", "spiffe://cluster.local/ns/shop/sa/envoy#x", false},
		{"spiffe://cluster.local/ns/shop/sa/envoy", "spiffe://u@cluster.local/ns/shop/sa/envoy", false},
		{"spiffe://cluster.local/ns/*/sa/envoy", "spiffe://cluster.local/ns/shop/sa/envoy", true},
		{"spiffe://cluster.local/ns/*/sa/envoy", "spiffe://cluster.local/ns//sa/envoy", false},
		{"spiffe://cluster.local/ns/*/sa/envoy", "spiffe://cluster.local/ns/../sa/envoy", false},
		{"spiffe://cluster.local/ns/*/sa/envoy", "spiffe://cluster.local/ns/a%2Fb/sa/envoy", false},
		{"spiffe://cluster.local/ns/*/sa/envoy", "spiffe://cluster.local/ns/a/b/sa/envoy", false},
		{"spiffe://cluster.local/ns/*/sa/envoy", "spiffe://other.local/ns/shop/sa/envoy", false},
	} {
		patterns, err := Parse([]string{"never.matches", c.pattern})
		if err != nil {
			t.Fatal(err)
		}
		cert := certificate(t, strings.Fields(c.names)...)
		cert.Subject.CommonName = "envoy.example.com" // is no name
		if got := patterns.Admit(cert); got != c.want {
			t.Errorf("%s admits %s: %v, want %v", c.pattern, c.names, got, c.want)
		}
	}
}

func TestBadPatternsAreErrors(t *testing.T) {
	for pattern, want := range map[string]string{
		"":                               "must be a DNS name",
		"*":                              "admits every name",
		"*.*":                            "admits every name",
		"a*.example.com":                 "whole label",
		"a b":                            "must be a DNS name",
		"https://cluster.local/x":        "begins with spiffe://",
		"spiffe:///ns":                   "no trust domain",
		"spiffe://*/ns":                  "no trust domain",
		"spiffe://cluster.local/ns/a*":   "whole segment",
		"spiffe://cluster.local/ns/":     `has "" in its path`,
		"spiffe://cluster.local/../x":    `has ".." in its path`,
		"spiffe://cluster.local/ns/x?y=": "in its path",
	} {
		if _, err := Parse([]string{pattern}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", pattern, err, want)
		}
	}
}
