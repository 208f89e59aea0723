package chart

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	rlsconf "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/headgate-rls/headgate/test/controlplane"
	"github.com/headgate-rls/headgate/test/testenv"
)

// TestHeadgateStartsFromEachGoldenFile: headgate starts with the settings, rules,
// environment and volumes of each golden file, its probes pass, and it limits.
func TestHeadgateStartsFromEachGoldenFile(t *testing.T) {
	server := testenv.StartRedis(t)
	certs := testenv.TestCerts(t)
	gateway := certs.Issue(t, "gateway", func(c *x509.Certificate) {
		c.URIs = []*url.URL{{Scheme: "spiffe", Host: "cluster.local", Path: "/ns/shop/sa/gateway"}}
	})
	control := startControlPlane(t, certs)
	// Names lead to the test's own servers.
	names := strings.NewReplacer("redis://redis:6379/0", server.URL(), "redis://redis.infra:6379/0", server.URL(),
		"envoy-gateway.envoy-gateway-system.svc:18001", control)
	for name := range features(t) {
		t.Run(name, func(t *testing.T) {
			all := objects(t, read(t, filepath.Join("golden", name+".yaml")))
			for _, o := range all {
				if text, ok := at(o, "data", "settings.yaml").(string); ok {
					at(o, "data").(object)["settings.yaml"] = names.Replace(text)
				}
			}
			c, volumes := container(t, all)
			if c == nil { // the snippet is in the notes, the policy's in an expression
				c, volumes = sidecarContainer(t, name)
			}
			p := startPod(t, all, c, volumes, map[string]string{
				"HEADGATE_BACKEND":      server.URL(),
				"HEADGATE_LEASE_SECRET": "not-so-secret-0123456789",
				"HEADGATE_SLOTS":        "sqlite:" + filepath.Join(t.TempDir(), "slots.db"),
				"HEADGATE_POLICIES":     "sqlite:" + filepath.Join(t.TempDir(), "policies.db"),
				"HEADGATE_ADMIN_TOKEN":  adminToken,
			}, certs)
			testenv.Eventually(t, 20*time.Second, "the startupProbe passes", func() string {
				if p.Exited() {
					t.Fatalf("headgate has ended:\n%s", p.Log())
				}
				return p.probe(t, "startupProbe")
			})
			for _, probe := range []string{"livenessProbe", "readinessProbe"} {
				if c[probe] == nil {
					continue
				}
				if wrong := p.probe(t, probe); wrong != "" {
					t.Errorf("%s: %s", probe, wrong)
				}
			}
			if strings.Contains(p.Log(), "level=WARN") {
				t.Errorf("headgate warns of what the chart sets:\n%s", p.Log())
			}
			p.helmTest(t, all)
			p.limits(t, name, certs, gateway)
			p.servesPages(t)
			if metrics := p.address("metrics"); metrics != "" {
				if code, err := get("http://" + metrics + "/metrics"); code != http.StatusOK {
					t.Errorf("/metrics: %d %v", code, err)
				}
			}
			p.Terminate()
			if code := p.Wait(20 * time.Second); code != 0 {
				t.Errorf("exit code %d at the end", code)
			}
		})
	}
}

const adminToken = "0123456789abcdef0123456789abcdef"

// servesPages holds the admin port to what it may serve, and to whom, and asks for a slot where there are slots.
func (p *pod) servesPages(t *testing.T) {
	t.Helper()
	has := func(variable string) bool {
		return slices.ContainsFunc(asList(p.container["env"]), func(e any) bool { return at(e, "name") == variable })
	}
	isOpen := slices.ContainsFunc(asList(p.container["ports"]), func(port any) bool {
		return at(port, "name") == "admin" || at(port, "name") == "hg-admin"
	})
	if isOpen != (p.address("admin") != "") {
		t.Errorf("the pod has an admin port: %v, headgate listens at %q", isOpen, p.address("admin"))
	}
	admin := "http://" + p.address("admin")
	if isOpen {
		for _, c := range []struct {
			path, token string
			want        int
		}{
			{"/admin/status", "", 401}, {"/admin/status", adminToken, 200}, {"/admin/policies", adminToken, 200},
			{"/limits", "", 200}, {"/policies", "", 200}, {"/json", adminToken, 404},
		} {
			req, err := http.NewRequest(http.MethodGet, admin+c.path, nil)
			if err != nil {
				t.Fatal(err)
			}
			if c.token != "" {
				req.Header.Set("Authorization", "Bearer "+c.token)
			}
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			if resp.StatusCode != c.want {
				t.Errorf("the admin port: %s with the token %q: %d, want %d", c.path, c.token, resp.StatusCode, c.want)
			}
		}
	}
	if !has("HEADGATE_SLOTS") {
		return
	}
	at := "http://" + p.address("http")
	if p.settings["slots-auth"] == true && p.address("admin") != "" {
		at = admin
	}
	code, out, errOut := testenv.RunProgram(t, program, []string{"HEADGATE_ADMIN_TOKEN=" + adminToken}, "slot", "pay-1",
		"--addr", at)
	if code != 0 || !strings.Contains(out, "scheduled=") {
		t.Errorf("a slot of %s: exit code %d\n%s%s", at, code, out, errOut)
	}
}

// helmTest runs what the pod of `helm test` runs, which asks the Service.
func (p *pod) helmTest(t *testing.T, all []object) {
	t.Helper()
	for _, o := range all {
		if at(o, "metadata", "annotations", "helm.sh/hook") != "test" {
			continue
		}
		args := p.place(asStrings(at(o, "spec", "containers", 0, "args")))
		service := slices.IndexFunc(args, func(a string) bool { return strings.Contains(a, "."+namespace+".svc:") })
		switch {
		case service >= 0 && strings.HasSuffix(args[service], ".svc:8081"):
			args[service] = p.address("grpc")
		case service >= 0 && strings.HasPrefix(args[service], "http://") && strings.HasSuffix(args[service], ".svc:8080"):
			args[service] = "http://" + p.address("http")
		default:
			t.Fatalf("helm test asks nobody: %q", args)
		}
		if code, out, errOut := testenv.RunProgram(t, program, nil, args...); code != 0 {
			t.Errorf("helm test: %q: exit code %d\n%s%s", args, code, out, errOut)
		}
		args[service] = fmt.Sprintf("http://127.0.0.1:%d", testenv.FreePort(t)) // nobody is there
		if args[0] == "ask" {
			args[service] = strings.TrimPrefix(args[service], "http://")
		}
		if code, _, _ := testenv.RunProgram(t, program, nil, args...); code == 0 {
			t.Errorf("helm test succeeds without a headgate")
		}
	}
}

// startControlPlane returns the address of a control plane that sends the rules of shop, over
// TLS, to clients that show a certificate.
func startControlPlane(t *testing.T, certs *testenv.Certs) string {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(certs.Server.CertFile, certs.Server.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	plane := controlplane.Start(t, grpc.Creds(credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAnyClientCert, MinVersion: tls.VersionTLS13,
	})))
	plane.Send(controlplane.Config("shop", controlplane.Rule("tenant", "", 2, rlsconf.RateLimitUnit_DAY)))
	return plane.Addr
}

// limits asks the container three times about each of its domains: the third call is refused.
func (p *pod) limits(t *testing.T, name string, certs *testenv.Certs, gateway testenv.Pair) {
	t.Helper()
	domains := map[string]bool{}
	for _, m := range asList(p.container["volumeMounts"]) {
		switch dir := filepath.Base(at(m, "mountPath").(string)); {
		case strings.HasSuffix(dir, "-rules"):
			domains["shop"] = true
		case strings.HasPrefix(dir, "rules-"):
			domains[dir] = true
		}
	}
	if p.settings["xds"] != nil {
		domains["shop"] = true
	}
	if len(domains) == 0 {
		t.Error("no rules are mounted")
	}
	var flags []string
	if p.settings["grpc-tls-cert"] != nil {
		flags = append(flags, "--tls-ca", certs.CAFile)
	}
	if p.settings["grpc-client-ca"] != nil {
		stranger := []string{"ask", "shop", "tenant=a", "--addr", p.address("grpc"), "--tls-ca", certs.CAFile, "--tls-cert",
			certs.Client.CertFile, "--tls-key", certs.Client.KeyFile}
		if code, _, _ := testenv.RunProgram(t, program, nil, stranger...); code != 2 {
			t.Errorf("a stranger's certificate: exit code %d, want 2", code)
		}
		flags = append(flags, "--tls-cert", gateway.CertFile, "--tls-key", gateway.KeyFile)
	}
	for domain := range domains {
		args := append([]string{"ask", domain, "tenant=" + name + "-" + filepath.Base(p.root), "-n", "3", "--timeout", "5s",
			"--addr", p.address("grpc")}, flags...)
		code, out, errOut := testenv.RunProgram(t, program, nil, args...)
		if code != 3 || strings.Count(out, "OVER_LIMIT rule=") != 1 {
			t.Errorf("%v: exit code %d, want 3 and one refusal:\n%s%s", args, code, out, errOut)
		}
	}
}

// sidecarContainer returns the container of a sidecar as the template for Istio's injector
// has it, which is the same for each way into a pod.
func sidecarContainer(t *testing.T, name string) (object, []any) {
	t.Helper()
	text := render(t, features(t)[name], "--set", "sidecar.inject=istio")
	return container(t, objects(t, text))
}

// TestRulesAreFollowedWhereTheyAreMounted: an exchange of a ConfigMap, one that appears
// late and one that breaks are seen where the chart mounts them.
func TestRulesAreFollowedWhereTheyAreMounted(t *testing.T) {
	all := objects(t, read(t, "golden/teams.yaml"))
	c, volumes := container(t, all)
	p := startPod(t, all, c, volumes, nil, nil)
	mount := func(name string) string { return filepath.Join(p.root, "etc/headgate/rules", name) }
	rule := func(domain string, n string) map[string]string {
		return map[string]string{"r.yaml": "domain: " + domain + "\ndescriptors: [{key: k, rate_limit: {unit: day, " +
			"requests_per_unit: " + n + "}}]\n"}
	}
	answer := func(domain, want string) {
		t.Helper()
		testenv.Eventually(t, 30*time.Second, domain+" answers "+want, func() string {
			_, out, errOut := testenv.RunProgram(t, program, nil, "ask", domain, "k=1", "--hits", "0", "--addr",
				p.address("grpc"))
			if strings.Contains(out, want) {
				return ""
			}
			return out + errOut
		})
	}
	// The directory of an optional ConfigMap that does not exist is empty.
	empty := mount("rules-search")
	for _, name := range []string{"rules-search.yaml", "..data"} {
		if err := os.Remove(filepath.Join(empty, name)); err != nil {
			t.Fatal(err)
		}
	}
	answer("rules-payments", "no limit") // another key; it serves
	publish(t, empty, rule("late", "7"))
	answer("late", "limit=7/24h")
	publish(t, mount("limits-rules"), rule("shop", "8"))
	answer("shop", "limit=8/24h")
	publish(t, empty, map[string]string{"r.yaml": "domain: late\ndescriptors: [{ke: k}]\n"})
	publish(t, mount("limits-rules"), rule("shop", "9"))
	answer("shop", "limit=9/24h")
	answer("late", "limit=7/24h")
	publish(t, empty, rule("late", "6"))
	answer("late", "limit=6/24h")
}
