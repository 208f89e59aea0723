package config

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// Settings of xDS that contradict each other or have no effect are refused, and an error
// never shows a header's value.
func TestXDSSettingsThatCannotBe(t *testing.T) {
	for _, c := range []struct{ flags, want string }{
		{"--xds eg:18001", ""},
		{"--xds eg:18001 --xds-tls --xds-tls-ca ca --xds-tls-cert c --xds-tls-key k --xds-tls-server-name n", ""},
		{"--xds eg:18001 --xds-header authorization:Bearer --xds-node-metadata a=b --xds-overlay f --xds-cache f", ""},
		{"--xds unix:/run/eg.sock", ""},
		{"--xds eg", "is not an address"},
		{"--xds :18001", "has no host"},
		{"--xds eg:18001 --rules a", "rules come from one place"},
		{"--xds eg:18001 --example", "rules come from one place"},
		{"--xds eg:18001 --xds-tls-ca ca", "needs --xds-tls"},
		{"--xds eg:18001 --xds-tls --xds-tls-cert c", "needs --xds-tls-key"},
		{"--xds eg:18001 --xds-header sesame", "want name:value"},
		{"--xds eg:18001 --xds-node-metadata =sesame", "want name=value"},
		{"--xds eg:18001 --xds-max-message 10", "outside"},
		{"--xds eg:18001 --xds-removal-grace 2h", "more than 1h"},
		{"--xds eg:18001 --xds-health sometimes", "must be always or rules, not \"sometimes\""},
		{"--xds-overlay f", "needs --xds"},
		{"--xds-cache f", "needs --xds"},
		{"--xds-tls", "needs --xds"},
	} {
		fs := pflag.NewFlagSet("serve", pflag.ContinueOnError)
		conf := Define(fs)
		if err := fs.Parse(strings.Fields(c.flags)); err != nil {
			t.Fatal(err)
		}
		err := Resolve(fs, conf, nil, nil)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", c.flags, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, want %q", c.flags, err, c.want)
		case err != nil && strings.Contains(err.Error(), "sesame"):
			t.Errorf("%s: the error shows the value: %v", c.flags, err)
		}
	}
}
