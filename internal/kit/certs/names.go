package certs

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Patterns are names of clients. A pattern is a DNS name, such as
// "envoy.example.com", an IP address, or a SPIFFE ID, such as
// "spiffe://cluster.local/ns/shop/sa/envoy". A label of a DNS name or a segment
// of a SPIFFE ID's path may be *, which stands for any one.
type Patterns []pattern

type pattern struct {
	spiffe bool
	ip     net.IP   // nil unless the pattern is one
	parts  []string // labels, or the trust domain and the segments of the path
}

// Parse reads patterns.
func Parse(texts []string) (Patterns, error) {
	var all Patterns
	var errs []error
	for _, text := range texts {
		p, err := parse(text)
		if err != nil {
			errs = append(errs, fmt.Errorf("%q %w", text, err))
		}
		all = append(all, p)
	}
	return all, errors.Join(errs...)
}

var label = regexp.MustCompile(`^([a-z0-9_]([a-z0-9_-]*[a-z0-9_])?|\*)$`)

func parse(text string) (pattern, error) {
	if scheme, rest, ok := strings.Cut(text, "://"); ok {
		return parseSPIFFE(scheme, rest)
	}
	if ip := net.ParseIP(text); ip != nil {
		return pattern{ip: ip}, nil
	}
	p := pattern{parts: labels(text)}
	literal := false
	for _, l := range p.parts {
		if !label.MatchString(l) {
			return p, errors.New("must be a DNS name, an IP address or spiffe://DOMAIN/PATH; * stands for a whole label")
		}
		literal = literal || l != "*"
	}
	if !literal {
		return p, errors.New("admits every name of as many parts")
	}
	return p, nil
}

func parseSPIFFE(scheme, rest string) (pattern, error) {
	p := pattern{spiffe: true, parts: strings.Split(rest, "/")}
	p.parts[0] = strings.ToLower(p.parts[0])
	switch {
	case !strings.EqualFold(scheme, "spiffe"):
		return p, errors.New("is not a SPIFFE ID: it begins with spiffe://")
	case !trustDomain.MatchString(p.parts[0]):
		return p, errors.New("has no trust domain, such as cluster.local; it cannot be *")
	}
	for _, s := range p.parts[1:] {
		if s != "*" && !segment.MatchString(s) || s == "." || s == ".." {
			return p, fmt.Errorf("has %q in its path; * stands for a whole segment", s)
		}
	}
	return p, nil
}

// What the SPIFFE standard allows.
var (
	trustDomain = regexp.MustCompile(`^[a-z0-9._-]+$`)
	segment     = regexp.MustCompile(`^[a-zA-Z0-9._-]+$`)
)

func labels(name string) []string {
	return strings.Split(strings.TrimSuffix(strings.ToLower(name), "."), ".")
}

// Admit reports whether one of the certificate's names is one of the patterns. A
// wildcard in the certificate does not name a client.
func (all Patterns) Admit(cert *x509.Certificate) bool {
	for _, name := range cert.DNSNames {
		if parts := labels(name); !strings.Contains(name, "*") && all.admit(isDNS, parts) {
			return true
		}
	}
	for _, id := range cert.URIs {
		if parts, ok := spiffeParts(id); ok && all.admit(isSPIFFE, parts) {
			return true
		}
	}
	for _, ip := range cert.IPAddresses {
		if slices.ContainsFunc(all, func(p pattern) bool { return p.ip != nil && p.ip.Equal(ip) }) {
			return true
		}
	}
	return false
}

// spiffeParts returns the trust domain and the segments of an ID; ok=false if
// it is not one by the standard.
func spiffeParts(id *url.URL) ([]string, bool) {
	if id.Scheme != "spiffe" || id.User != nil || id.RawQuery != "" || id.ForceQuery || id.Fragment != "" ||
		id.Opaque != "" {
		return nil, false
	}
	parts := strings.Split(id.Host+id.EscapedPath(), "/")
	for _, s := range parts[1:] {
		if !segment.MatchString(s) || s == "." || s == ".." {
			return nil, false
		}
	}
	parts[0] = strings.ToLower(parts[0])
	return parts, true
}

// What the parts of a name are of.
const (
	isDNS    = false
	isSPIFFE = true
)

func (all Patterns) admit(spiffe bool, parts []string) bool {
	return slices.ContainsFunc(all, func(p pattern) bool {
		return p.ip == nil && p.spiffe == spiffe && slices.EqualFunc(p.parts, parts, matches)
	})
}

func matches(want, part string) bool { return want == "*" || want == part }

// Names returns the names in a certificate, for messages.
func Names(cert *x509.Certificate) string {
	names := append([]string(nil), cert.DNSNames...)
	for _, id := range cert.URIs {
		names = append(names, id.String())
	}
	for _, ip := range cert.IPAddresses {
		names = append(names, ip.String())
	}
	if len(names) == 0 {
		return "no DNS name, no URI and no IP address"
	}
	const most = 5
	if len(names) > most {
		names = append(names[:most], "…")
	}
	text := strings.Join(names, ", ")
	const longest = 300
	return text[:min(len(text), longest)]
}

// maxIdentity bounds an identity, in bytes.
const maxIdentity = 256

// Identity returns who a client is by its certificate, which must have been
// verified: the first URI in it (SPIFFE), else the first DNS name, else its
// subject; "" without one. It stays the same when the certificate is renewed.
func Identity(state *tls.ConnectionState) string {
	if state == nil || len(state.VerifiedChains) == 0 {
		return ""
	}
	leaf := state.VerifiedChains[0][0]
	switch {
	case len(leaf.URIs) > 0:
		return plainIdentity("uri:" + leaf.URIs[0].String())
	case len(leaf.DNSNames) > 0:
		return plainIdentity("dns:" + leaf.DNSNames[0])
	}
	return plainIdentity("subject:" + leaf.Subject.String())
}

// plainIdentity replaces an identity that is too long or not printable by its hash.
func plainIdentity(s string) string {
	if len(s) <= maxIdentity && utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl) {
		return s
	}
	sum := sha256.Sum256([]byte(s))
	return "sha256:" + hex.EncodeToString(sum[:])
}
