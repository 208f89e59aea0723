package envoyconf

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/test/golden"
	"github.com/headgate-rls/headgate/test/testenv"
)

// whole returns the bootstrap that a printed configuration makes: itself, or
// one that it was put into.
func (p printed) whole(t *testing.T) []byte {
	t.Helper()
	text := string(p.print(t))
	if strings.Contains(text, tlsDir) {
		certs := testenv.TestCerts(t)
		text = strings.NewReplacer(tlsDir+"ca.crt", certs.CAFile, tlsDir+"tls.crt", certs.Client.CertFile, tlsDir+"tls.key",
			certs.Client.KeyFile).Replace(text)
	}
	m := parse(t, []byte(text))
	switch {
	case m["spec"] != nil:
		return toJSON(t, patched(t, m))
	case m["static_resources"] == nil:
		return toJSON(t, assembled(t, m))
	}
	return toJSON(t, m)
}

// tlsDir is where the files of TLS are said to be.
const tlsDir = "/etc/envoy/tls/"

// plain is a bootstrap that knows nothing of headgate.
func plain(t *testing.T) map[string]any {
	t.Helper()
	set, spec := load(t, "testdata/one.yaml")
	c, err := New(set, spec, options())
	if err != nil {
		t.Fatal(err)
	}
	text, err := c.Bootstrap()
	if err != nil {
		t.Fatal(err)
	}
	m := parse(t, text)
	hcm := manager(m)
	for _, f := range []string{"access_log", "access_log_options", "local_reply_config"} {
		delete(hcm, f)
	}
	filters := hcm["http_filters"].([]any)
	hcm["http_filters"] = filters[len(filters)-1:] // the router
	delete(virtualHost(hcm), "typed_per_filter_config")
	resources := m["static_resources"].(map[string]any)
	clusters := resources["clusters"].([]any)
	resources["clusters"] = clusters[len(clusters)-1:] // the application
	return m
}

// at walks down maps by name and lists at their first element.
func at(v any, path ...string) map[string]any {
	for _, name := range path {
		if list, ok := v.([]any); ok {
			v = list[0]
		}
		v = v.(map[string]any)[name]
	}
	if list, ok := v.([]any); ok {
		v = list[0]
	}
	return v.(map[string]any)
}

func manager(m map[string]any) map[string]any {
	return at(m, "static_resources", "listeners", "filter_chains", "filters", "typed_config")
}

func virtualHost(manager map[string]any) map[string]any {
	return at(manager, "route_config", "virtual_hosts")
}

// merge does what merging messages does.
func merge(to, from map[string]any) {
	for name, v := range from {
		switch old := to[name].(type) {
		case map[string]any:
			merge(old, v.(map[string]any))
		case []any:
			to[name] = append(old, v.([]any)...)
		default:
			to[name] = v
		}
	}
}

// insert puts filters before the router.
func insert(manager map[string]any, filters ...any) {
	old := manager["http_filters"].([]any)
	manager["http_filters"] = append(append(append([]any{}, old[:len(old)-1]...), filters...), old[len(old)-1])
}

// assembled puts parts where their comments say.
func assembled(t *testing.T, parts map[string]any) map[string]any {
	t.Helper()
	m := plain(t)
	hcm, fields := manager(m), parts["http_connection_manager"].(map[string]any)
	insert(hcm, fields["http_filters"].([]any)...)
	delete(fields, "http_filters")
	merge(hcm, fields)
	merge(virtualHost(hcm), parts["virtual_host"].(map[string]any))
	merge(at(m, "static_resources"), map[string]any{"clusters": parts["clusters"]})
	if len(parts) != 3 {
		t.Errorf("some parts are not put anywhere: %v", parts)
	}
	return m
}

// patched does what Istio does.
func patched(t *testing.T, filter map[string]any) map[string]any {
	t.Helper()
	m := plain(t)
	hcm := manager(m)
	if filter["apiVersion"] != "networking.istio.io/v1alpha3" || filter["kind"] != "EnvoyFilter" {
		t.Errorf("this is not an EnvoyFilter: %v", filter)
	}
	for _, p := range filter["spec"].(map[string]any)["configPatches"].([]any) {
		var patch struct {
			ApplyTo string
			Match   struct {
				Context  string
				Listener *struct {
					FilterChain struct {
						Filter struct {
							Name      string
							SubFilter *struct{ Name string }
						}
					}
				}
				RouteConfiguration *struct {
					Vhost struct{ Route struct{ Action string } }
				}
			}
			Patch struct {
				Operation string
				Value     map[string]any
			}
		}
		dec := json.NewDecoder(strings.NewReader(string(toJSON(t, p))))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&patch); err != nil {
			t.Fatal(err)
		}
		value, listener := patch.Patch.Value, patch.Match.Listener
		if patch.Match.Context != "SIDECAR_INBOUND" {
			t.Errorf("the context is %q", patch.Match.Context)
		}
		if listener != nil && listener.FilterChain.Filter.Name != "envoy.filters.network.http_connection_manager" {
			t.Errorf("the filter is %q", listener.FilterChain.Filter.Name)
		}
		switch to := patch.ApplyTo + " " + patch.Patch.Operation; to {
		case "HTTP_FILTER INSERT_BEFORE":
			if listener.FilterChain.Filter.SubFilter.Name != "envoy.filters.http.router" {
				t.Errorf("it goes before %q", listener.FilterChain.Filter.SubFilter.Name)
			}
			insert(hcm, value)
		case "NETWORK_FILTER MERGE":
			merge(hcm, value["typed_config"].(map[string]any))
		case "VIRTUAL_HOST MERGE":
			merge(virtualHost(hcm), value)
		case "CLUSTER ADD":
			merge(at(m, "static_resources"), map[string]any{"clusters": []any{value}})
		default:
			t.Errorf("what is %q?", to)
		}
	}
	if strings.Contains(string(toJSON(t, filter)), meshService) {
		// Istio has a cluster for each port of each Service.
		for _, port := range []string{"8081", "8082"} {
			merge(at(m, "static_resources"), map[string]any{
				"clusters": []any{map[string]any{"name": "outbound|" + port + "||" + meshService, "type": "STATIC"}}})
		}
	}
	return m
}

// TestRealEnvoys: every Envoy that a configuration is for takes it. Envoy is
// strict: it refuses fields and values that it does not know.
func TestRealEnvoys(t *testing.T) {
	for _, version := range []string{"1.40.0", "1.38.3", "1.36.4"} {
		t.Run(version, func(t *testing.T) {
			binary := testenv.Require(t, "envoy-"+version)
			v, err := ParseVersion(version)
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range all() {
				opt := options()
				p.opt(&opt)
				if v.before(opt.Version) && (p.rules == "hits" || opt.Tokens == TokensNative) {
					continue
				}
				t.Run(p.name, func(t *testing.T) {
					config := filepath.Join(t.TempDir(), "envoy.json")
					if err := os.WriteFile(config, p.whole(t), 0o600); err != nil {
						t.Fatal(err)
					}
					validate(t, binary, config)
				})
			}
		})
	}
}

func validate(t *testing.T, binary, config string) {
	t.Helper()
	cmd := exec.Command(binary, "--mode", "validate", "--config-path", config, "--log-level", "warning",
		"--concurrency", "1")
	timer := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "eprecated") {
			t.Errorf("Envoy warns: %s", line)
		}
	}
}

// TestExampleOfTokensIsPrinted: examples/llm/envoy.yaml is what headgate prints.
func TestExampleOfTokensIsPrinted(t *testing.T) {
	text, err := configure(t, "../../../examples/llm/rules.yaml").Bootstrap()
	if err != nil {
		t.Fatal(err)
	}
	golden.Check(t, "../../../examples/llm/envoy.yaml", string(text))
}

// TestExamplesFitEveryEnvoy: the rules in examples/inflight and examples/llm are such that Envoy can be
// configured for them.
func TestExamplesFitEveryEnvoy(t *testing.T) {
	files, err := filepath.Glob("../../../examples/inflight/*.yaml")
	files = append(slices.DeleteFunc(files, func(name string) bool { return strings.HasSuffix(name, ".test.yaml") }),
		"../../../examples/llm/rules.yaml")
	if err != nil || len(files) < 3 {
		t.Fatalf("%d examples (%v)", len(files), err)
	}
	for _, version := range []string{"1.40.0", "1.38.3", "1.36.4"} {
		t.Run(version, func(t *testing.T) {
			binary := testenv.Require(t, "envoy-"+version)
			for _, file := range files {
				text, err := configure(t, file, func(o *Options) { o.Version, _ = ParseVersion(version) }).Bootstrap()
				if err != nil {
					t.Fatal(err)
				}
				config := filepath.Join(t.TempDir(), "envoy.yaml")
				if err := os.WriteFile(config, text, 0o600); err != nil {
					t.Fatal(err)
				}
				validate(t, binary, config)
			}
		})
	}
}
