package web

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// Browsers run pages of any site on machines that reach ports nobody else does. Programs send neither Origin nor
// Sec-Fetch-Site, and are not affected by what follows.

// SameSite refuses requests that change something if a page of another site makes them.
func SameSite(refusals *Refusals, next http.Handler) http.Handler {
	other := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if other.Check(r) != nil {
			refusals.note(r, http.StatusForbidden, otherSite)
			Error(w, http.StatusForbidden, otherSiteMessage)
			return
		}
		next.ServeHTTP(w, r)
	})
}

const otherSiteMessage = "the request comes from a page of another site"

// A Private port has no token: pages of other sites must not reach it at all, nor read it under a name of their own
// that leads to it (DNS rebinding).
type Private struct {
	Hosts    []string // names beside localhost and all IP addresses
	Setting  string   // where they are set, for messages
	Refusals *Refusals
	// Open reports whether a request may name any host, because its answer has no secrets; nil: none may.
	Open func(*http.Request) bool
}

// Wrap returns a handler that passes on what is not refused.
func (p Private) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case fromOtherSite(r):
			p.Refusals.note(r, http.StatusForbidden, otherSite)
			Error(w, http.StatusForbidden, otherSiteMessage+": open its address itself")
		case !p.names(r) && (p.Open == nil || !p.Open(r)):
			p.Refusals.note(r, http.StatusForbidden, "host")
			Error(w, http.StatusForbidden, "this port answers to IP addresses, to localhost and to the names in "+p.Setting+
				", not to "+Clip(r.Host))
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// fromOtherSite reports whether a browser says that the request comes from another site, whatever its method.
func fromOtherSite(r *http.Request) bool {
	switch site := r.Header.Get("Sec-Fetch-Site"); {
	case site == "same-origin" || site == "none":
		return false
	case site != "":
		return true
	}
	origin := r.Header.Get("Origin")
	_, host, _ := strings.Cut(origin, "://")
	return origin != "" && (host == "" || host != r.Host)
}

// names reports whether a request names a host that the port answers to.
func (p Private) names(r *http.Request) bool {
	if _, err := netip.ParseAddrPort(r.RemoteAddr); err != nil || r.Host == "" {
		return true // a Unix socket, or HTTP/1.0: no browser
	}
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	if _, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil || host == "localhost" {
		return true
	}
	return slices.ContainsFunc(p.Hosts, func(name string) bool { return strings.EqualFold(name, host) })
}
