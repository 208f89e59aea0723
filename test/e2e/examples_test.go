package e2e

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/test/testenv"
)

const exampleDir = "examples/envoy/"

// substitute replaces what must occur exactly once: an example whose ports
// have changed must not be tested on the old ones.
func substitute(t *testing.T, text string, pairs ...string) string {
	t.Helper()
	for i := 0; i+1 < len(pairs); i += 2 {
		if n := strings.Count(text, pairs[i]); n != 1 {
			t.Fatalf("the example has %q %d times, want once", pairs[i], n)
		}
		text = strings.Replace(text, pairs[i], pairs[i+1], 1)
	}
	return text
}

const (
	exampleService     = "{socket_address: {address: 127.0.0.1, port_value: 8081}}"
	exampleSocket      = "{pipe: {path: /run/headgate/rls.sock}}"
	exampleApplication = "{socket_address: {address: 127.0.0.1, port_value: 9000}}"
)

// startExample runs an example file, unchanged but for addresses and timeout,
// with a headgate at the given address.
func startExample(t *testing.T, env environment, file, grpc string) (*service, *front) {
	t.Helper()
	s := startService(t, "--rules", filepath.Join(sources, exampleDir, "rules.yaml"), "--grpc", grpc)
	headgate := exampleService
	if strings.Contains(file, "uds") {
		headgate = exampleSocket
	}
	where, err := address(s.GRPC)
	if err != nil {
		t.Fatal(err)
	}
	app, err := address(startApplication(t))
	if err != nil {
		t.Fatal(err)
	}
	return s, newFront(t, env.envoy, substitute(t, readSource(t, exampleDir+file),
		headgate, where, exampleApplication, app,
		"port_value: 9901", "port_value: 0", "port_value: 10000", "port_value: 0",
		// Machines that run tests are busy, and the example fails open.
		"timeout: 0.1s", "timeout: 5s"))
}

// TestDemoNamesTheLimitingRule runs what make demo does.
func TestDemoNamesTheLimitingRule(t *testing.T) {
	onEnvoys(t, func(t *testing.T, env environment) {
		out, err := exec.Command(demo, "-headgate", program, "-envoy", env.envoy, "-root", sources).CombinedOutput()
		if err != nil || !strings.Contains(string(out), "shop/route_pay.tenant:payments") {
			t.Errorf("the demo: %v\n%s", err, out)
		}
	})
}

func TestExampleFiles(t *testing.T) {
	onEnvoys(t, func(t *testing.T, env environment) {
		for file, grpc := range map[string]string{
			"envoy.yaml":     "127.0.0.1:0",
			"envoy-uds.yaml": "unix:" + filepath.Join(socketDir(t), "rls.sock"),
		} {
			t.Run(file, func(t *testing.T) {
				s, f := startExample(t, env, file, grpc)
				wantExampleLimits(t, s, f)
			})
		}
	})
}

// wantExampleLimits checks what the README says of the example.
func wantExampleLimits(t *testing.T, s *service, f *front) {
	t.Helper()
	// Two descriptors: the address and the tenant with the path.
	a := f.Get("/items?page=1", "x-tenant", "acme")
	// The bucket holds 10, which is in no unit of time that Envoy knows: it refills in two seconds.
	if limits := a.Header.Get("x-ratelimit-limit"); a.Code != 200 || limits != `10, 600;w=60;name="per-address"` {
		t.Errorf("the answer is %v", a)
	}
	// The query makes no other path, and one tenant's limit is its own.
	f.wantRefusedWithin(t, 60, "/items?page=2", "acme", "shop/tenant.url_path:burst")
	f.WantCodes(codes(2, 200), "/items", "x-tenant", "other")
	f.WantCodes(codes(2, 200), "/articles", "x-tenant", "acme")

	// Exactly three in ten seconds, with a body of the rule's own.
	f.WantCodes("200 200 200 429", "/pay", "x-tenant", "acme")
	a = f.Get("/pay/card?x=1", "x-tenant", "acme")
	if a.Code != 429 || a.Rule() != "shop/route_pay.tenant:payments" || !strings.Contains(a.Body, "too many payments") {
		t.Errorf("the answer to a payment too many is %v", a)
	}
	wantHeader(t, a, "content-type", "application/json")
	f.WantCodes("200", "/payments", "x-tenant", "acme") // another path

	before := s.Metric("headgate_request_duration_seconds_count")
	f.WantCodes(codes(5, 200), "/healthz", "x-tenant", "acme")
	if after := s.Metric("headgate_request_duration_seconds_count"); after != before {
		t.Errorf("headgate was asked %v times about /healthz", after-before)
	}
	f.WantCodes(codes(5, 200), "/reports/1", "x-tenant", "acme")
	if n := s.Metric("headgate_decisions_total", `outcome="shadow_over_limit"`); n != 3 {
		t.Errorf("%v reports would have been refused, want 3", n)
	}
	testenv.Eventually(t, 5*time.Second, "see the rule in the access log", func() string {
		if !strings.Contains(f.Log(), `"rule":"shop/route_pay.tenant:payments"`) {
			return lastLines(f.Log(), 1)
		}
		return ""
	})
}

// wantRefusedWithin asks until a request is refused: on a slow machine a
// bucket refills while it is being emptied.
func (f *front) wantRefusedWithin(t *testing.T, most int, path, tenant, rule string) {
	t.Helper()
	for range most {
		if a := f.Get(path, "x-tenant", tenant); a.Code == 429 {
			if a.Rule() != rule {
				t.Errorf("%s is refused by %q, want %q", path, a.Rule(), rule)
			}
			wantSeconds(t, a, "retry-after", 1, 1)
			return
		}
	}
	t.Errorf("%d requests for %s in a row are all admitted", most, path)
}

// TestExamplesAgree keeps the two Envoy files from growing apart.
func TestExamplesAgree(t *testing.T) {
	t.Parallel()
	tcp, uds := readSource(t, exampleDir+"envoy.yaml"), readSource(t, exampleDir+"envoy-uds.yaml")
	tcp = substitute(t, tcp, exampleService, exampleSocket, "headgate (port 8081)", "headgate over a Unix socket")
	if tcp != uds {
		t.Error("envoy.yaml and envoy-uds.yaml differ in more than headgate's address")
	}
	command(t, nil, "check", filepath.Join(sources, exampleDir, "rules.yaml")).want(t, 0, []string{"ok: "}, nil)
}

var yamlBlock = regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$")

// TestExampleReadme holds Envoy to the snippets in the README: each replaces
// the part of envoy.yaml that starts with the same words.
func TestExampleReadme(t *testing.T) {
	onEnvoys(t, func(t *testing.T, env environment) {
		blocks := yamlBlock.FindAllStringSubmatch(readSource(t, exampleDir+"README.md"), -1)
		if len(blocks) < 2 {
			t.Fatalf("only %d snippets are found in the README", len(blocks))
		}
		certs := testenv.TestCerts(t)
		for _, b := range blocks {
			snippet := strings.TrimSpace(b[1])
			first, _, _ := strings.Cut(snippet, "\n")
			config := readSource(t, exampleDir+"envoy.yaml")
			switch {
			case strings.HasPrefix(first, "transport_socket:"):
				snippet = strings.NewReplacer("/etc/headgate/ca.pem", certs.CAFile,
					"/etc/headgate/client.pem", certs.Client.CertFile, "/etc/headgate/client.key",
					certs.Client.KeyFile).Replace(snippet)
				config = substitute(t, config, "  - name: headgate\n", "  - name: headgate\n"+indent(snippet, 4)+"\n")
			case strings.HasPrefix(first, "- actions:"):
				config = substitute(t, config, "                  rate_limits:\n                  - actions:\n"+
					"                    - remote_address: {}\n                  - actions:\n                    - request_headers",
					"                  rate_limits:\n"+indent(snippet, 18)+
						"\n                  - actions:\n                    - request_headers")
			default:
				t.Errorf("where does this snippet of the README belong?\n%s", snippet)
				continue
			}
			newFront(t, env.envoy, substitute(t, config, "port_value: 9901", "port_value: 0", "port_value: 10000",
				"port_value: 0"))
		}
	})
}

func indent(text string, by int) string {
	space := strings.Repeat(" ", by)
	return space + strings.ReplaceAll(text, "\n", "\n"+space)
}
