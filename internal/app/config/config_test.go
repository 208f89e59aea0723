package config

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/headgate-rls/headgate/internal/kit/settings"
)

// resolve parses args over an environment and a configuration file.
func resolve(t *testing.T, file string, env map[string]string, args ...string) (*Config, error) {
	t.Helper()
	fs := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	c := Define(fs)
	if file != "" {
		path := filepath.Join(t.TempDir(), "conf.yaml")
		if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, "--config", path)
	}
	if err := fs.Parse(args); err != nil {
		t.Fatal(err)
	}
	var environ []string
	for name, value := range env {
		environ = append(environ, name+"="+value)
	}
	return c, Resolve(fs, c, environ, nil)
}

func TestFlagWinsOverEnvironmentAndFile(t *testing.T) {
	file := "grpc: file:1\nhttp: file:2\ndebug: file:3\nrules: [a.yaml, b.yaml]\ndrain-delay: 7s\n"
	env := map[string]string{"HEADGATE_GRPC": "env:1", "HEADGATE_HTTP": "env:2", "HEADGATE_CHARGE": "each"}
	c, err := resolve(t, file, env, "--grpc", "flag:1")
	if err != nil {
		t.Fatal(err)
	}
	if c.GRPC != "flag:1" || c.HTTP != "env:2" || c.Debug != "file:3" || c.Backend != "memory://" ||
		c.Charge != "each" || c.DrainDelay != 7*time.Second || strings.Join(c.Rules, " ") != "a.yaml b.yaml" {
		t.Errorf("%+v", c)
	}
	c, err = resolve(t, "", map[string]string{"HEADGATE_RULES": "x,y"})
	if err != nil || strings.Join(c.Rules, " ") != "x y" {
		t.Errorf("rules %q, %v", c.Rules, err)
	}
	c, err = resolve(t, "", map[string]string{"HEADGATE_RULES": "", "HEADGATE_HTTP": ""})
	if err != nil || len(c.Rules) != 0 || c.HTTP != "" {
		t.Errorf("empty variables: rules %q, http %q, %v", c.Rules, c.HTTP, err)
	}
}

// A refused configuration has problems that name their place.
type refused struct {
	name, file string
	env        map[string]string
	args       []string
	want       []string
}

func (r *refused) check(t *testing.T) {
	_, err := resolve(t, r.file, r.env, r.args...)
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range r.want {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in:\n%v", want, err)
		}
	}
}

func TestProblemsNameTheirPlace(t *testing.T) {
	for _, r := range []refused{
		{name: "unknown key", file: "grpc: a:1\n\nrule_header: x\nbakend: y\nback-end: z\n",
			want: []string{"conf.yaml:3:1: rule_header: unknown setting; did you mean rule-header?",
				"conf.yaml:4:1: bakend: unknown setting", "conf.yaml:5:1: back-end: unknown setting; did you mean backend?"}},
		{name: "wrong type in the file", file: "shadow-mode: perhaps\n",
			want: []string{`conf.yaml:1:1: shadow-mode: "perhaps" is not a valid bool`}},
		{name: "list for one value", file: "grpc: [a, b]\n", want: []string{"grpc: takes one value, not a list"}},
		{name: "key twice", file: "grpc: a:1\nhttp: b:1\ngrpc: a:1\n",
			want: []string{"conf.yaml:3:1: grpc: set twice; line 1 has it already"}},
		{name: "key twice, once by another program's name",
			file: "lease-ttl: 1m\nimposter:\n  rate:\n    limiter:\n      ttl: 60\n",
			want: []string{"conf.yaml:5:7: imposter.rate.limiter.ttl: set twice; line 1 has it as lease-ttl already"}},
		{name: "ignored key twice", file: "rate-limiter:\n  headroom-windows: 1\n  headroom-windows: 2\n",
			want: []string{"conf.yaml:3:3: rate-limiter.headroom-windows: set twice; line 2 has it already"}},
		{name: "key without a value", file: "http:\nbackend: ~\n", want: []string{
			"conf.yaml:1:1: http: has no value; write '' for an empty one", "conf.yaml:2:1: backend: has no value"}},
		{name: "list of what is not plain", file: "rules: [{a: b}]\n",
			want: []string{"conf.yaml:1:1: rules: takes a plain value"}},
		{name: "second document", file: "http: ''\n---\ngrpc: a:1\n",
			want: []string{"conf.yaml:2:1: a second YAML document"}},
		{name: "not YAML", file: "http: ''\ngrpc: [\n", want: []string{"conf.yaml:", "not valid YAML: "}},
		{name: "flag of a command", file: "help: true\n", want: []string{"conf.yaml:1:1: help: unknown setting"}},
		{name: "not an address", args: []string{"--grpc", "8081", "--services", "unix:", "--http", ":99999", "--debug",
			"http://localhost:80"}, want: []string{
			`--grpc: "8081" is not an address: want host:port such as :8081`, `--services: "unix:" is`, `--http: ":99999" is`,
			`--debug: "http://localhost:80" is`}},
		{name: "one address twice", args: []string{"--grpc", ":8080", "--admin", "127.0.0.1:6070"}, want: []string{
			"--http: :8080 is the address of --grpc already", "--admin: 127.0.0.1:6070 is the address of --debug already"}},
		{name: "not a header", args: []string{"--rule-header", "x headgate", "--limit-header", "a:b"},
			want: []string{`--rule-header: "x headgate" cannot be`, `--limit-header: "a:b" cannot be`}},
		{name: "negative time", args: []string{"--grpc-keepalive", "-1s", "--drain-delay", "-1h"},
			want: []string{"--grpc-keepalive: -1s: must not be negative", "--drain-delay: -1h0m0s: must not be negative"}},
		{name: "two sources of rules", args: []string{"--example", "--rules", "x"},
			want: []string{"--example: serves the built-in rules and not those of --rules"}},
		{name: "not a mapping", file: "- a\n", want: []string{"expected settings as"}},
		{name: "wrong type in the environment", env: map[string]string{"HEADGATE_DRAIN_DELAY": "long"}, want: []string{
			`environment variable HEADGATE_DRAIN_DELAY: "long" is not a valid duration: want a duration such as 500ms`}},
		{name: "every bad value is reported", args: []string{"--charge", "some", "--on-backend-error", "panic",
			"--log-format", "xml", "--rules-errors", "ignore", "--log-level", "loud", "--grpc", "", "--backend-timeout", "0s",
			"--grpc-tls-cert", "c", "--socket-mode", "rw"}, want: []string{
			`--charge: must be all_or_nothing or each, not "some"`,
			`--on-backend-error: must be store, allow, deny, error or local, not "panic"`,
			`--log-format: must be text, json or logrus, not "xml"`, `--rules-errors: must be refuse or skip, not "ignore"`,
			`--log-level: must be debug, info, warn or error, not "loud"`, "--grpc: must not be empty", "--backend-timeout: " +
				"must be positive", "--grpc-tls-cert: needs --grpc-tls-key", `--socket-mode: "rw" is not a mode`}},
		{name: "client CA without TLS", args: []string{"--grpc-client-ca", "ca"}, want: []string{"--grpc-client-ca: needs"}},
		{name: "names of clients without their authority", args: []string{"--grpc-client-san", "a.example.com"},
			want: []string{"--grpc-client-san: needs --grpc-client-ca"}},
		{name: "bad names of clients", args: []string{"--grpc-tls-cert", "c", "--grpc-tls-key", "k", "--grpc-client-ca", "a",
			"--grpc-client-san", "*", "--grpc-client-san", "spiffe://*/x"},
			want: []string{`--grpc-client-san: "*" admits every name`, `"spiffe://*/x" has no trust domain`}},
		{name: "secret that can be guessed", args: []string{"--lease-secret", "geheim"},
			want: []string{"--lease-secret: has 6 characters, want at least 16"}},
		{name: "one of two secrets that can be guessed", args: []string{"--lease-secret", "not-to-be-guessed-1 geheim"},
			want: []string{"--lease-secret: has 6 characters, want at least 16"}},
		{name: "too many secrets", env: map[string]string{"HEADGATE_LEASE_SECRET": "a b c"},
			want: []string{"has 3 secrets with spaces between them"}},
		{name: "a secret of spaces", args: []string{"--lease-secret", "   "}, want: []string{"has 0 secrets"}},
		{name: "no such file", args: []string{"--config", "/does/not/exist"}, want: []string{"read configuration: "}},
	} {
		t.Run(r.name, r.check)
	}
}

func TestLoggerHidesLowerLevels(t *testing.T) {
	var out bytes.Buffer
	c, err := resolve(t, "", nil, "--log-level", "WARN", "--log-format", "json")
	if err != nil {
		t.Fatal(err)
	}
	log := c.Logger(&out)
	log.Info("hidden")
	log.Warn("shown")
	if got := out.String(); strings.Contains(got, "hidden") || !strings.HasPrefix(got, "{") ||
		!strings.Contains(got, `"shown"`) {
		t.Errorf("log: %s", got)
	}
}

// TestLeaseTTLAlias: imposter.rate.limiter.ttl is lease-ttl in seconds.
func TestLeaseTTLAlias(t *testing.T) {
	for _, c := range []struct {
		env  map[string]string
		want time.Duration
	}{
		{nil, 300 * time.Second},
		{map[string]string{"IMPOSTER_RATE_LIMITER_TTL": "60"}, time.Minute},
		{map[string]string{"IMPOSTER_RATE_LIMITER_TTL": "60", "HEADGATE_LEASE_TTL": "2m"}, 2 * time.Minute},
	} {
		conf, err := resolve(t, "", c.env)
		if err != nil || conf.LeaseTTL != c.want {
			t.Errorf("%v: %v, %v", c.env, conf.LeaseTTL, err)
		}
	}
	if _, err := resolve(t, "", map[string]string{"IMPOSTER_RATE_LIMITER_TTL": "1m"}); err == nil ||
		!strings.Contains(err.Error(), `IMPOSTER_RATE_LIMITER_TTL: "1m" is not a number of seconds`) {
		t.Error(err)
	}
}

// /json would let callers around the client certificates that --grpc demands.
func TestOpenJSONBesideClientCertificatesIsWarnedOf(t *testing.T) {
	for http, want := range map[string]bool{":8080": true, "0.0.0.0:8080": true, "[::]:8080": true, "10.0.0.1:8080": true,
		"127.0.0.1:8080": false, "[::1]:8080": false, "localhost:8080": false, "": false, "unix:/x": false} {
		c, err := resolve(t, "", nil, "--grpc-tls-cert", "c", "--grpc-tls-key", "k", "--grpc-client-ca", "a", "--http", http)
		if err != nil || (len(c.Warnings) == 1) != want {
			t.Errorf("--http %q: %q, %v", http, c.Warnings, err)
		}
		if c, err := resolve(t, "", nil, "--http", http); err != nil || len(c.Warnings) != 0 {
			t.Errorf("--http %q without client certificates: %q, %v", http, c.Warnings, err)
		}
	}
}

// What another source says comes last, and only for settings that nothing else has set.
func TestLastSource(t *testing.T) {
	resolve := func(file string, environ []string, values ...settings.Value) (*Config, error) {
		fs := pflag.NewFlagSet("serve", pflag.ContinueOnError)
		c := Define(fs)
		if file != "" {
			path := filepath.Join(t.TempDir(), "conf.yaml")
			if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
				t.Fatal(err)
			}
			environ = append(environ, "HEADGATE_CONFIG="+path)
		}
		return c, Resolve(fs, c, environ, func(given func(string) bool) ([]settings.Value, error) {
			var list []settings.Value
			for _, v := range values {
				if !given(v.Flag) {
					list = append(list, v)
				}
			}
			return list, nil
		})
	}
	c, err := resolve("http: file:2\n", []string{"HEADGATE_GRPC=env:1"}, settings.Value{Flag: "grpc",
		Values: []string{"last:1"}, From: "A"}, settings.Value{Flag: "http", Values: []string{"last:2"}, From: "B"},
		settings.Value{Flag: "debug", Values: []string{"last:3"}, From: "C"},
		settings.Value{Flag: "rules", Values: []string{"a,b", "c"}, From: "D"})
	if err != nil || c.GRPC != "env:1" || c.HTTP != "file:2" || c.Debug != "last:3" ||
		strings.Join(c.Rules, "|") != "a,b|c" {
		t.Errorf("%+v, %v", c, err)
	}
	for want, v := range map[string]settings.Value{
		"A: there is no setting nonsense": {Flag: "nonsense", Values: []string{"1"}, From: "A"},
		`A: --replicas: "x" is not a`:     {Flag: "replicas", Values: []string{"x"}, From: "A"},
		"--http: \"x\" is not an address": {Flag: "http", Values: []string{"x"}, From: "A"},
	} {
		if _, err := resolve("", nil, v); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %s", v, err, want)
		}
	}
}

// shown returns the settings as they are shown, and fails if a secret is among them.
func shown(t *testing.T, args ...string) string {
	t.Helper()
	fs := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	Define(fs)
	if err := fs.Parse(args); err != nil {
		t.Fatal(err)
	}
	text := ""
	for _, s := range Settings().Show(fs) {
		text += s.Flag + "=" + strings.Join(s.Values, "|") + "\n"
	}
	if strings.Contains(text, "geheim") || strings.Contains(text, "heim@") {
		t.Errorf("a secret is shown:\n%s", text)
	}
	return text
}

func TestShownSettingsHideSecrets(t *testing.T) {
	text := shown(t,
		"--backend", "redis+sentinel://u:geheim@a,b/m?sentinel_password=geheim&pool_size=30",
		"--admin-token", "geheim-geheim-geheim", "--lease-secret", "geheim-geheim-geheim",
		"--xds", "h:1", "--xds-header", "authorization: geheim", "--rules", "a", "--rules", "b")
	for _, want := range []string{"backend=redis+sentinel://u:***@a,b/m?sentinel_password=***&pool_size=30\n",
		"rules=a|b\n", "xds-header=***\n", "admin-token=***\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in:\n%s", want, text)
		}
	}
}

// TestHelpNamesValues shows that a flag's help names its value, and that a switch has none: a
// command in backquotes would be printed as one.
func TestHelpNamesValues(t *testing.T) {
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	Define(fs)
	fs.VisitAll(func(f *pflag.Flag) {
		name, usage := pflag.UnquoteUsage(f)
		if f.Value.Type() == "bool" && name != "" || strings.Contains(usage, "`") {
			t.Errorf("--%s %s: %s", f.Name, name, usage)
		}
	})
}
