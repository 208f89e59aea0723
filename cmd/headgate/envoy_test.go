//go:build !rlsonly

package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

func runEnvoy(t *testing.T, args ...string) (code int, out, errOut string) {
	t.Helper()
	var o, e bytes.Buffer
	code = run(context.Background(), append([]string{"envoy"}, args...), nil, &o, &e)
	return code, o.String(), e.String()
}

// TestEnvoyCommand: each form is YAML and has what the flags say.
func TestEnvoyCommand(t *testing.T) {
	const rules = "../../examples/inflight/heavy.yaml"
	for name, c := range map[string]struct {
		args  []string
		parts []string
		not   string
	}{
		"whole": {
			args: []string{rules, "--listen", "10080", "--upstream", "app:9", "--owner", "envoy-7", "--lease-key", "heavy",
				"--address", "10.0.0.1:1,10.0.0.2:1", "--services", "unix:/run/als"},
			parts: []string{"port_value: 10080", "address: app, port_value: 9", "node: {id: envoy-7", "path: [{key: heavy}]",
				"address: 10.0.0.2, port_value: 1", "pipe: {path: /run/als}", "status_code: 503"},
		},
		"parts": {args: []string{rules, "--full=false"}, parts: []string{"virtual_host:", "clusters:"},
			not: "static_resources:"},
		"istio": {args: []string{rules, "--istio"},
			parts: []string{"kind: EnvoyFilter", "x-headgate-owner, value: sidecar~%ENVIRONMENT(INSTANCE_IP)%~"}},
		"no owner": {args: []string{rules, "--istio", "--owner", ""}, parts: []string{"kind: EnvoyFilter"},
			not: "x-headgate-owner"},
		"mesh": {
			args: []string{rules, "--istio", "--istio-service", "headgate.infra.svc.cluster.local", "--name", "limits",
				"--namespace", "front", "--selector", "app=shop"},
			parts: []string{"outbound|8081||headgate.infra.svc.cluster.local", "outbound|8082||headgate.infra.svc.cluster.local",
				"name: limits\n  namespace: front\n", "app: shop"}, not: "applyTo: CLUSTER",
		},
		"tls": {
			args: []string{rules, "--tls-ca", "/ca", "--tls-cert", "/cert", "--tls-key", "/key", "--san",
				"headgate.infra,spiffe://a/b"},
			parts: []string{"filename: /ca", "filename: /cert", "san_type: URI, matcher: {exact: 'spiffe://a/b'}",
				"sni: headgate.infra"},
		},
		"istio owner": {args: []string{rules, "--istio", "--owner", "gateway"},
			parts: []string{"x-headgate-owner, value: gateway"}},
		"oldest": {args: []string{rules, "--envoy-version", "1.36.4", "--timeout", "2s", "--deny-without-answer"},
			parts: []string{"timeout: 2s", "failure_mode_deny: true"}},
		"flush": {args: []string{"../../examples/inflight/users.yaml", "--lease-ttl", "9s"},
			parts: []string{"access_log_flush_interval: 3s"}},
		"grace": {args: []string{rules, "--owner-grace", "6s"}, parts: []string{"access_log_flush_interval: 2s"}},
	} {
		t.Run(name, func(t *testing.T) {
			code, out, errOut := runEnvoy(t, c.args...)
			if code != exitOK || errOut != "" {
				t.Fatalf("exit code %d: %s", code, errOut)
			}
			if err := yaml.Unmarshal([]byte(out), new(map[string]any)); err != nil {
				t.Error(err)
			}
			for _, part := range c.parts {
				if !strings.Contains(out, part) {
					t.Errorf("no %q in\n%s", part, out)
				}
			}
			if c.not != "" && strings.Contains(out, c.not) {
				t.Errorf("%q is in\n%s", c.not, out)
			}
		})
	}
}

func TestEnvoyCommandRefuses(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad.yaml")
	if err := os.WriteFile(bad, []byte("domain: a\nresources: [{path: a}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const rules = "../../examples/inflight/heavy.yaml"
	for want, args := range map[string][]string{
		"envoy 1.35 is too old":              {rules, "--envoy-version", "1.35.9"},
		`unknown Envoy version "new"`:        {rules, "--envoy-version", "new"},
		"the rules have errors":              {bad},
		"no such file":                       {"nowhere.yaml"},
		`no domain "other", but shop`:        {rules, "--domain", "other"},
		"arguments are missing":              {},
		"must be host:port or unix:PATH":     {rules, "--upstream", "app"},
		"at least 1ms":                       {rules, "--timeout", "0s"},
		"no % but in %ENVIRONMENT(NAME)%:":   {rules, "--owner", "%HOSTNAME%"},
		"no % but in %ENVIRONMENT(NAME)%: E": {rules, "--owner", "a%ENVIRONMENT(A)%%B%"},
		"are for --istio":                    {rules, "--istio-service", "a.b.svc"},
		"is not a host such as":              {rules, "--istio", "--istio-service", "headgate:8081"},
		"is not NAME=VALUE":                  {rules, "--istio", "--selector", "app"},
		"needs the file of the authority":    {rules, "--san", "a"},
		"needs its key":                      {rules, "--tls-ca", "a", "--san", "a", "--tls-cert", "b"},
		"without one, any certificate":       {rules, "--tls-ca", "a"},
		"say it in a DestinationRule": {rules, "--istio", "--istio-service", "a.b.svc.cluster.local", "--tls-ca", "a",
			"--san", "b"},
	} {
		code := exitProblems
		if want == "no such file" {
			code = exitError
		}
		if got, out, errOut := runEnvoy(t, args...); got != code || out != "" || !strings.Contains(errOut, want) {
			t.Errorf("%v: exit code %d, want %d, %q on stdout, %q on stderr, want %q", args, got, code, out, errOut, want)
		}
	}
}

// TestEnvoyCommandLeavesNothingOutInSilence: rules that the configuration would
// not ask about are named on stderr, and nothing is printed unless asked for.
func TestEnvoyCommandLeavesNothingOutInSilence(t *testing.T) {
	for name, rules := range map[string]string{
		"tenant": "domain: d\ndescriptors:\n- {key: tenant, concurrency: [{threshold: 3, response: {statusCode: " +
			"429}}]}\n- {key: x-a, rate_limit: {unit: day, requests_per_unit: 1}}\n",
		"soap_binding": "domain: d\nresources:\n- {operation: getUser, binding: SOAP11, concurrency: [{threshold: 3, " +
			"response: {statusCode: 503}}]}\n",
	} {
		path := filepath.Join(t.TempDir(), "rules.yaml")
		if err := os.WriteFile(path, []byte(rules), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, form := range []string{"--full", "--full=false", "--istio"} {
			code, out, errOut := runEnvoy(t, path, form)
			if code != exitProblems || out != "" || !strings.Contains(errOut, name) || !strings.Contains(errOut, "--partial") {
				t.Errorf("%s %s: exit code %d, %d bytes on stdout, %q on stderr", name, form, code, len(out), errOut)
			}
			code, out, errOut = runEnvoy(t, path, form, "--partial")
			if code != exitOK || !strings.Contains(out, "envoy.filters.http.ratelimit") || !strings.Contains(errOut, name) ||
				strings.Contains(errOut, "--partial") {
				t.Errorf("%s %s --partial: exit code %d, %q on stderr", name, form, code, errOut)
			}
		}
	}
}

// TestCheckFindsWhatEnvoyDoesNotSend: check --envoy does, and says what is counted apart.
func TestCheckFindsWhatEnvoyDoesNotSend(t *testing.T) {
	file := writeRules(t, "domain: shop\nresources:\n- {path: /a, by: [header.x-key, remote_address], "+
		"rate_limit: {unit: minute, requests_per_unit: 5}}\n")
	config := filepath.Join(t.TempDir(), "envoy.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	code, printed := headgate(t, "envoy", file, "--upstream", "127.0.0.1:9000")
	if code != 0 {
		t.Fatal(printed)
	}
	write(printed)
	code, out := headgate(t, "check", file, "--envoy", config, "--strict")
	if code != 0 || !strings.Contains(out, "shop/*:/a: each header.x-key and remote_address has its own counter") {
		t.Errorf("of what headgate prints: exit code %d: %s", code, out)
	}
	write(strings.ReplaceAll(printed, "- {remote_address: {}}", ""))
	code, out = headgate(t, "check", file, "--envoy", config)
	if code != exitProblems || !strings.Contains(out, config+":") ||
		!strings.Contains(out, "no action sends remote_address") {
		t.Errorf("without the address: exit code %d: %s", code, out)
	}
	if code, out = headgate(t, "check", file, "--envoy", config+"x"); code == 0 {
		t.Errorf("without the file: exit code %d: %s", code, out)
	}
}
