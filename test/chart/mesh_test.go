package chart

import (
	"crypto/x509"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/test/testenv"
)

const meshRules = `domain: shop
resources:
  - {path: /slow, concurrency: [{threshold: 1, response: {statusCode: 429}}]}
`

// startMeshEnvoy runs Envoy with what `headgate envoy` prints for these flags, in front of an
// application that answers after a tenth of a second, and returns its address.
func startMeshEnvoy(t *testing.T, rules string, flags []string,
	options ...testenv.EnvoyOption) (*testenv.Envoy, string) {
	t.Helper()
	application := testenv.FreePort(t)
	serveApplication(t, application)
	args := append([]string{"envoy", rules, "--upstream", fmt.Sprintf("127.0.0.1:%d", application), "--listen", "0",
		"--admin", "127.0.0.1:0", "--timeout", "5s"}, flags...)
	code, config, errOut := testenv.RunProgram(t, program, nil, args...)
	if code != 0 {
		t.Fatal(errOut)
	}
	e := testenv.StartEnvoy(t, "1.40.0", config, options...)
	return e, "http://" + strings.Replace(e.ListenerAddr("ingress"), "0.0.0.0", "127.0.0.1", 1)
}

// TestEnvoyOverTLS: the printed configuration asks over TLS with Envoy's certificate, and
// refuses a headgate whose certificate has another name.
func TestEnvoyOverTLS(t *testing.T) {
	certs := testenv.TestCerts(t)
	named := certs.Issue(t, "headgate", func(c *x509.Certificate) {
		c.URIs = []*url.URL{{Scheme: "spiffe", Host: "cluster.local", Path: "/ns/infra/sa/headgate"}}
	})
	rules := filepath.Join(t.TempDir(), "shop.yaml")
	write(t, rules, meshRules)
	h := testenv.StartHeadgate(t, program, "--rules", rules, "--grpc-tls-cert", named.CertFile, "--grpc-tls-key",
		named.KeyFile,
		"--grpc-client-ca", certs.CAFile, "--grpc-client-san", "localhost")
	for san, want := range map[string]int{"spiffe://cluster.local/ns/infra/sa/headgate": 200,
		"spiffe://cluster.local/ns/other/sa/headgate": 500, "localhost": 200, "elsewhere": 500} {
		_, address := startMeshEnvoy(t, rules, []string{"--address", h.GRPC, "--services", h.Services,
			"--deny-without-answer",
			"--tls-ca", certs.CAFile, "--tls-cert", certs.Client.CertFile, "--tls-key", certs.Client.KeyFile, "--san", san})
		last := 0
		testenv.Eventually(t, patience, fmt.Sprintf("--san %s is answered with %d", san, want), func() string {
			var err error
			if last, err = get(address + "/slow"); err != nil || last != want {
				return fmt.Sprint(last, err)
			}
			return ""
		})
	}
	if page, err := h.Fetch("/metrics"); err != nil ||
		!strings.Contains(page, `headgate_leases_total{domain="shop",event="released"`) {
		t.Errorf("no lease was released over TLS: %v", err)
	}
}

// TestIstioOwner: an Envoy that has the node id and the environment that Istio gives a
// sidecar owns its leases by the default of --istio: when it dies, they end long before they
// would expire.
func TestIstioOwner(t *testing.T) {
	rules := filepath.Join(t.TempDir(), "shop.yaml")
	write(t, rules, meshRules)
	h := testenv.StartHeadgate(t, program, "--rules", rules, "--owner-grace", "1s", "--lease-ttl", "10m")
	code, filter, errOut := testenv.RunProgram(t, program, nil, "envoy", rules, "--istio")
	_, owner, ok := strings.Cut(filter, "x-headgate-owner, value: ")
	owner, _, _ = strings.Cut(owner, "}\n")
	if code != 0 || !ok {
		t.Fatalf("no owner in the EnvoyFilter: %s%s", filter, errOut)
	}
	t.Setenv("INSTANCE_IP", "10.1.2.3")
	t.Setenv("POD_NAME", "shop-5d9c")
	t.Setenv("POD_NAMESPACE", "front")
	envoy, address := startMeshEnvoy(t, rules, []string{"--address", h.GRPC, "--services", h.Services, "--owner", owner,
		"--owner-grace", "1s"},
		testenv.WithEnvoyArgs("--service-node", "sidecar~10.1.2.3~shop-5d9c.front~front.svc.cluster.local"))
	event := func(name string) string { return leases(t, h, name) }
	testenv.Eventually(t, patience, "a lease is released", func() string { // and the access log is connected
		if _, err := get(address + "/slow"); err != nil {
			return err.Error()
		}
		if n := event("released"); n == "0" {
			return "none"
		}
		return ""
	})
	stuck := make(chan struct{})
	go func() { // in flight when Envoy dies: it hangs in the application
		defer close(stuck)
		client := http.Client{Timeout: time.Minute}
		if resp, err := client.Get(address + "/slow?hang=1"); err == nil {
			_ = resp.Body.Close()
		}
	}()
	testenv.Eventually(t, patience, "a request is in flight", func() string {
		acquired, released := event("acquired"), event("released")
		if acquired == released {
			return acquired + " acquired and released"
		}
		return ""
	})
	time.Sleep(time.Second) // an interval of the access log
	envoy.Kill()
	<-stuck
	testenv.Eventually(t, patience, "the lease of the dead Envoy is reaped", func() string {
		if n := event("reaped"); n != "1" {
			return "reaped: " + n
		}
		return ""
	})
}
