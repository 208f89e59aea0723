package chart

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/headgate-rls/headgate/test/testenv"
)

// hookJob returns the container and the volumes of the Job that checks rules before an install and an upgrade.
func hookJob(t *testing.T, all []object) (c object, volumes []any) {
	t.Helper()
	for _, o := range all {
		if o["kind"] == "Job" && at(o, "metadata", "annotations", "helm.sh/hook") == "pre-install,pre-upgrade" {
			for _, kind := range []string{"labels", "annotations"} { // a sidecar would never end
				if at(o, "spec", "template", "metadata", kind, "sidecar.istio.io/inject") != "false" {
					t.Errorf("the pod of the Job gets a sidecar of Istio by its %s", kind)
				}
			}
			spec := at(o, "spec", "template", "spec")
			return at(spec, "containers", 0).(object), asList(at(spec, "volumes"))
		}
	}
	return nil, nil
}

// TestHookChecksTheRules: before an install and an upgrade the rules of the release are checked, and one with bad
// rules fails there.
func TestHookChecksTheRules(t *testing.T) {
	testenv.UseClient(t, testenv.Helm)
	for name, c := range map[string]struct {
		values string
		args   []string
		want   int    // exit code; -1: there is no hook
		spoil  string // a file of others, which gets errors
	}{
		"good rules":            {"memory", nil, 0, ""},
		"beside a Redis":        {"autoscaling", nil, 0, ""},
		"in a sidecar":          {"sidecar", nil, 0, ""},
		"bad rules":             {"memory", []string{"--set-string", `rules.files.shop\.yaml=domain: [`}, 1, ""},
		"what no store can":     {"memory", []string{"--set-file", `rules.files.shop\.yaml=TOO_LONG`}, 1, ""},
		"one bad file":          {"memory", []string{"--set-string", `rules.files.x\.yaml=domainn: x`}, 1, ""},
		"turned off":            {"memory", []string{"--set", "rules.check=false"}, -1, ""},
		"rules are elsewhere":   {"xds", nil, -1, ""},
		"files are not a whole": {"teams", nil, -1, ""},
		"rules of others":       {"teams", []string{"--set", "config.rules-errors=refuse"}, 0, ""},
		"bad rules of others":   {"teams", []string{"--set", "config.rules-errors=refuse"}, 1, "rules-search/x.yaml"},
		"only rules of others":  {"memory", []string{"--set", "rules.files=null,rules.configMaps={rules-a}"}, 0, ""},
		"one's own domain": {"memory", []string{"--set-json",
			`rules.configMaps=[{"name":"rules-a","domains":["shop-*","rules-a"]},"rules-b"]`}, 0, ""},
		"another's domain": {"memory", []string{"--set-json",
			`rules.configMaps=[{"name":"rules-a","domains":["pay"]}]`}, 1, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			long := filepath.Join(t.TempDir(), "long.yaml")
			write(t, long, "domain: shop\ndescriptors:\n- key: t\n  limits: [{algorithm: sliding_log, limit: 99999999, "+
				"window: 1h}]\n")
			for i := range c.args {
				c.args[i] = strings.ReplaceAll(c.args[i], "TOO_LONG", long)
			}
			all := objects(t, render(t, features(t)[c.values], c.args...))
			job, volumes := hookJob(t, all)
			if job == nil || c.want < 0 {
				if c.want >= 0 || job != nil {
					t.Errorf("there is a hook: %v", job != nil)
				}
				return
			}
			p := &pod{container: job, root: t.TempDir()}
			p.mount(t, all, volumes, nil)
			if c.spoil != "" {
				write(t, filepath.Join(p.root, "etc/headgate/rules", c.spoil), "domain: [")
			}
			code, out, errOut := testenv.RunProgram(t, program, nil, p.place(asStrings(job["args"]))...)
			if code != c.want {
				t.Errorf("exit code %d, want %d:\n%s%s", code, c.want, out, errOut)
			}
		})
	}
}

// TestHelmTestFailsWithADeadStore: `helm test` asks about the release's own rules, and fails if no counter decides.
func TestHelmTestFailsWithADeadStore(t *testing.T) {
	testenv.UseClient(t, testenv.Helm)
	server := testenv.StartRedis(t)
	certs := testenv.TestCerts(t)
	for name, rules := range map[string]string{
		"redis": "",
		"deep": "domain: shop\ndescriptors:\n- {key: a, value: 'x,y*', descriptors: [{key: b, descriptors: " +
			"[{key: c, limits: [{algorithm: token_bucket, rate: 1/h, burst: 9}]}]}]}\n",
		"nothing to ask": "domain: shop\nresources: [{path: /pay, rate_limit: {unit: day, requests_per_unit: 2}}]\n",
	} {
		t.Run(name, func(t *testing.T) {
			var args []string
			if rules != "" {
				file := filepath.Join(t.TempDir(), "rules.yaml")
				write(t, file, rules)
				args = []string{"--set-file", `rules.files.shop\.yaml=` + file}
			}
			all := objects(t, render(t, features(t)["redis"], args...))
			c, volumes := container(t, all)
			p := startPod(t, all, c, volumes, map[string]string{"HEADGATE_BACKEND": server.URL(),
				"HEADGATE_LEASE_SECRET": "not-so-secret-0123456789"}, certs)
			testenv.Eventually(t, patience, "the startupProbe passes", func() string { return p.probe(t, "startupProbe") })
			ask := func() (int, string) {
				code, out, errOut := testenv.RunProgram(t, program, nil, p.helmTestArgs(t, all)...)
				return code, out + errOut
			}
			testenv.Eventually(t, patience, "helm test passes", func() string {
				if code, out := ask(); code != 0 {
					return out
				}
				return ""
			})
			server.Kill()
			defer server.Restart()
			testenv.Eventually(t, patience, "helm test fails with a dead store", func() string {
				if code, out := ask(); code == 0 {
					return "it passes: " + out
				}
				return ""
			})
		})
	}
}

// helmTestArgs are the arguments of the pod of `helm test`, with the addresses of p.
func (p *pod) helmTestArgs(t *testing.T, all []object) []string {
	t.Helper()
	for _, o := range all {
		if at(o, "metadata", "annotations", "helm.sh/hook") != "test" {
			continue
		}
		args := p.place(asStrings(at(o, "spec", "containers", 0, "args")))
		service := slices.IndexFunc(args, func(a string) bool { return strings.Contains(a, "."+namespace+".svc:") })
		if service < 0 {
			t.Fatalf("helm test asks nobody: %q", args)
		}
		if strings.HasSuffix(args[service], ":8081") {
			args[service] = p.address("grpc")
		} else {
			args[service] = "http://" + p.address("http")
		}
		return args
	}
	t.Fatal("there is no test")
	return nil
}

// TestOwnersOfDomains: a pod serves a ConfigMap's own domains, and refuses them while its rules have errors.
func TestOwnersOfDomains(t *testing.T) {
	testenv.UseClient(t, testenv.Helm)
	all := objects(t, render(t, features(t)["memory"], "--set-json", `config={"rules-errors":"skip"}`, "--set-json",
		`rules.configMaps=[{"name":"rules-a","domains":["rules-a","a-*"]},{"name":"rules-b","domains":["b"]},"rules-c"]`))
	c, volumes := container(t, all)
	p := startPod(t, all, c, volumes, nil, nil)
	for domain, want := range map[string]string{"rules-a": "OK", "a-1": "no such domain", "b": "OVER_LIMIT",
		"b-1": "no such domain", "rules-b": "no such domain", "rules-c": "OK"} {
		testenv.Eventually(t, patience, domain+" answers "+want, func() string {
			_, out, errOut := testenv.RunProgram(t, program, nil, "ask", domain, "tenant=1", "--hits", "0", "--addr",
				p.address("grpc"))
			if strings.Contains(out+errOut, want) {
				return ""
			}
			return out + errOut
		})
	}
}
