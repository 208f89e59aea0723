package config

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/headgate-rls/headgate/internal/kit/certs"
	"github.com/headgate-rls/headgate/internal/kit/settings"
)

// XDS has the settings of rules that a control plane sends by xDS.
type XDS struct {
	Address  string
	NodeID   string
	Metadata []string
	Headers  []string

	TLS   bool
	Files certs.ClientFiles

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
func (c *XDS) settings(alone settings.Option) []settings.Setting {
	byTLS := settings.NeedsTLS(&c.TLS, "--xds-tls")
	used := settings.Needs(func() bool { return c.Address != "" }, "needs --xds: without it rules come from files")
	return []settings.Setting{
		settings.Row("xds", &c.Address, "",
			"`host:port` of a control plane, such as Envoy Gateway's, that sends the rules by xDS; instead of "+
				"--rules", alone, settings.Check(target)),
		settings.Row("xds-node-id", &c.NodeID, DefaultXDSNodeID,
			"node `id` that headgate sends to the control plane, which chooses the rules by it"),
		settings.Row("xds-node-metadata", &c.Metadata, nil,
			"`name=value` in the metadata of the node; may be repeated", settings.Check(pairs("=")),
			used),
		settings.Row("xds-header", &c.Headers, nil,
			"`name:value` to send to the control plane with the stream, such as a token; may be repeated",
			settings.Check(pairs(":")), used,
			settings.Secret),

		settings.Row("xds-tls", &c.TLS, false,
			"talk TLS to the control plane", used),
		settings.Row("xds-tls-cert", &c.Files.Cert, "",
			"certificate chain `file` to show to the control plane; read again for each connection, as the next "+
				"two are", byTLS, settings.Pair(&c.Files.Cert, &c.Files.Key, "--xds-tls-key")),
		settings.Row("xds-tls-key", &c.Files.Key, "", "private key `file` of --xds-tls-cert", byTLS),
		settings.Row("xds-tls-ca", &c.Files.CA, "",
			"`file` with the certificate authorities that headgate trusts for the control plane (default: the "+
				"system's)", byTLS),
		settings.Row("xds-tls-server-name", &c.Files.ServerName, "",
			"`name` that the control plane's certificate must have (default: the host of --xds)", byTLS),

		settings.Row("xds-max-message", &c.MaxMessage, defaultXDSMessage,
			"largest message that headgate accepts from the control plane, in bytes",
			settings.Between(minXDSMessage, maxXDSMessage)),
		settings.Row("xds-wait", &c.Wait, 10*time.Second,
			"how long to wait for the first rules at start; after that headgate serves, is not ready, and answers "+
				"calls with an error until rules arrive; 0: do not wait"),
		settings.Row("xds-health", &c.Health, "always",
			"whether health checks succeed before the first rules arrive: always, or rules (only with rules); "+
				"/readyz always waits for rules", settings.OneOf("always", HealthNeedsRules)),
		settings.Row("xds-removal-grace", &c.RemovalGrace, 10*time.Second,
			"how long to keep domains that the control plane does not send, after its first answer on a "+
				"connection: a control plane that has just started sends its rules in parts", settings.AtMost(time.Hour)),
		settings.Row("xds-cache", &c.Cache, "",
			"`file` with the last good rules, which headgate uses at start until the control plane answers; empty: "+
				"disabled", used),
		settings.Row("xds-overlay", &c.Overlays, nil,
			"`file` that changes algorithms, windows and policies of rules that come by xDS; followed as it "+
				"changes; may be repeated", used),
	}
}

// target is the check of the address of another server, which has a host.
func target(text string) error {
	err := settings.CheckAddress(text)
	if text == "" {
		return nil
	}
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
