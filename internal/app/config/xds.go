package config

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// XDS has the settings of rules that a control plane sends by xDS.
type XDS struct {
	Address  string
	NodeID   string
	Metadata []string
	Headers  []string

	TLS        bool
	TLSCert    string
	TLSKey     string
	TLSCA      string
	ServerName string

	MaxMessage   int
	Wait         time.Duration
	Health       string
	RemovalGrace time.Duration
	Cache        string
	Overlays     []string
}

// HealthNeedsRules is the --xds-health that fails until there are rules.
const HealthNeedsRules = "rules"

// DefaultXDSNodeID is the node id for which Envoy Gateway has rules.
const DefaultXDSNodeID = "envoy-ratelimit"

// Bounds of --xds-max-message.
const (
	minXDSMessage     = 4 << 20
	defaultXDSMessage = 64 << 20
	maxXDSMessage     = 1 << 30
)

// settings returns the rows of the table for xDS. The check alone refuses what says
// where rules come from beside --xds.
func (c *XDS) settings(alone func() bool) []setting {
	keyPair := func() bool { return (c.TLSCert == "") == (c.TLSKey == "") }
	byTLS := require[string](func() bool { return c.TLS || c.TLSCert+c.TLSKey+c.TLSCA+c.ServerName == "" }, "needs --xds-tls: without it nothing is encrypted")
	used := func(set func() bool) func() bool { return func() bool { return c.Address != "" || !set() } }
	grace := func(d time.Duration) error {
		if d > time.Hour {
			return fmt.Errorf("%v is more than 1h", d)
		}
		return nil
	}
	const unused = "needs --xds: without it rules come from files"
	return []setting{
		row("xds", &c.Address, "", all(
			require[string](alone, "rules come from one place: give --xds, or --rules, or --example"), target),
			"`host:port` of a control plane, such as Envoy Gateway's, that sends the rules by xDS; instead of --rules"),
		row("xds-node-id", &c.NodeID, DefaultXDSNodeID, nil, "node `id` that headgate sends to the control plane, which chooses the rules by it"),
		row("xds-node-metadata", &c.Metadata, nil, all(pairs("="), require[[]string](used(func() bool { return len(c.Metadata) > 0 }), unused)),
			"`name=value` in the metadata of the node; may be repeated"),
		row("xds-header", &c.Headers, nil, all(pairs(":"), require[[]string](used(func() bool { return len(c.Headers) > 0 }), unused)),
			"`name:value` to send to the control plane with the stream, such as a token; may be repeated").hiding(whole),

		row("xds-tls", &c.TLS, false, require[bool](used(func() bool { return c.TLS }), unused), "talk TLS to the control plane"),
		row("xds-tls-cert", &c.TLSCert, "", all(byTLS, require[string](keyPair, "needs --xds-tls-key, and the other way round")),
			"certificate chain `file` to show to the control plane; read again for each connection, as the next two are"),
		row("xds-tls-key", &c.TLSKey, "", byTLS, "private key `file` of --xds-tls-cert"),
		row("xds-tls-ca", &c.TLSCA, "", byTLS, "`file` with the certificate authorities that headgate trusts for the control plane (default: the system's)"),
		row("xds-tls-server-name", &c.ServerName, "", byTLS, "`name` that the control plane's certificate must have (default: the host of --xds)"),

		row("xds-max-message", &c.MaxMessage, defaultXDSMessage, between(minXDSMessage, maxXDSMessage), "largest message that headgate accepts from the control plane, in bytes"),
		row("xds-wait", &c.Wait, 10*time.Second, nil,
			"how long to wait for the first rules at start; after that headgate serves, is not ready, and answers calls with an error until rules arrive; 0: do not wait"),
		row("xds-health", &c.Health, "always", either("always", HealthNeedsRules),
			"whether health checks succeed before the first rules arrive: always, or rules (only with rules); /readyz always waits for rules"),
		row("xds-removal-grace", &c.RemovalGrace, 10*time.Second, grace,
			"how long to keep domains that the control plane does not send, after its first answer on a connection: a control plane that has just started sends its rules in parts"),
		row("xds-cache", &c.Cache, "", require[string](used(func() bool { return c.Cache != "" }), unused),
			"`file` with the last good rules, which headgate uses at start until the control plane answers; empty: disabled"),
		row("xds-overlay", &c.Overlays, nil, require[[]string](used(func() bool { return len(c.Overlays) > 0 }), unused),
			"`file` that changes algorithms, windows and policies of rules that come by xDS; followed as it changes; may be repeated"),
	}
}

// target is the check of the address of another server, which has a host.
func target(text string) error {
	err := address(text)
	if err == nil && strings.HasPrefix(text, ":") {
		err = fmt.Errorf("%q has no host: want host:port", text)
	}
	return err
}

// pairs returns a check for texts of a name and a value. Its errors show no value,
// which may be a secret.
func pairs(separator string) func([]string) error {
	return func(list []string) error {
		for _, text := range list {
			if name, _, ok := strings.Cut(text, separator); !ok || strings.TrimSpace(name) == "" {
				return errors.New("want name" + separator + "value")
			}
		}
		return nil
	}
}

// Pairs returns the names and values of --xds-node-metadata or --xds-header, which
// separator stands between.
func Pairs(list []string, separator string) map[string]string {
	out := make(map[string]string, len(list))
	for _, text := range list {
		name, value, _ := strings.Cut(text, separator)
		out[strings.TrimSpace(name)] = strings.TrimSpace(value)
	}
	return out
}
