package main

import (
	"os"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/headgate-rls/headgate/internal/app/config"
)

// serve stands in for the reference only where nothing says that headgate itself is meant.
func TestWhomServeStandsInFor(t *testing.T) {
	for _, c := range []struct {
		env, flag string
		ownRules  bool
		inPlace   bool
		note      string // begins so
	}{
		{"", "", false, false, ""},
		{"PORT=1 HOST=h LOG_LEVEL=warn USE_STATSD=false GRPC_PORT=2 REDIS_PORT=tcp://10.0.0.1:6379", "", false, false, ""},
		{"REDIS_URL= RUNTIME_ROOT=", "", false, false, ""},
		{"REDIS_URL=r:1", "", false, true, "serving in place of"},
		{"RUNTIME_ROOT=/d", "", false, true, "serving in place of"},
		{"CONFIG_TYPE=GRPC_XDS_SOTW", "", false, true, "serving in place of"},
		{"CONFIG_GRPC_XDS_NODE_ID=n", "", false, true, "serving in place of"},
		{"RUNTIME_ROOT=/d HEADGATE_PORT_8081_TCP_ADDR=10.0.0.1 HEADGATE_PORT=tcp://10.0.0.1:8081", "", false, true,
			"serving in place of"},
		{"REDIS_URL=r:1", "", true, false, "variables of envoyproxy/ratelimit have no effect, because there are rules in"},
		{"REDIS_URL=r:1 RUNTIME_ROOT=/d", "", true, true, "serving in place of"},
		{"RUNTIME_ROOT=/d HEADGATE_LOG_LEVEL=debug", "", false, false,
			"variables of envoyproxy/ratelimit have no effect, because HEADGATE_LOG_LEVEL is set: RUNTIME_ROOT"},
		{"RUNTIME_ROOT=/d HEADGATE_RULEZ=", "", false, false,
			"variables of envoyproxy/ratelimit have no effect, because HEADGATE_RULEZ is set"},
		{"RUNTIME_ROOT=/d", "grpc", false, false,
			"variables of envoyproxy/ratelimit have no effect, because --grpc is set: RUNTIME_ROOT"},
	} {
		t.Run(c.env+" "+c.flag, func(t *testing.T) {
			t.Chdir(t.TempDir())
			if c.ownRules {
				if err := os.Mkdir(config.DefaultRules, 0o700); err != nil {
					t.Fatal(err)
				}
			}
			fs := pflag.NewFlagSet("serve", pflag.ContinueOnError)
			config.Define(fs)
			if c.flag != "" {
				if err := fs.Set(c.flag, ":1"); err != nil {
					t.Fatal(err)
				}
			}
			inPlace, note := inPlaceOfReference(fs, strings.Fields(c.env))
			if inPlace != c.inPlace || !strings.HasPrefix(note, c.note) || c.note == "" && note != "" {
				t.Errorf("in place: %v, %q; want %v, %q", inPlace, note, c.inPlace, c.note)
			}
		})
	}
}
