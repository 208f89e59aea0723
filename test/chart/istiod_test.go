package chart

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate-rls/headgate/test/testenv"
)

// meshConfig is all that a namespace of a mesh has for the test: an application behind a sidecar
// that listens without redirection, as there are no network rules of a pod here, and the service
// that the sidecar asks. Its cluster has the name that a Service of Kubernetes gets.
const meshConfig = `apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: shop, namespace: %[1]s}
spec:
  workloadSelector: {labels: {app: shop}}
  ingress:
    - port: {number: %[2]d, protocol: HTTP, name: http}
      bind: 127.0.0.1
      captureMode: NONE
      defaultEndpoint: "127.0.0.1:%[3]d"
  egress:
    - {port: {number: %[4]d, protocol: HTTP_PROXY, name: out}, bind: 127.0.0.1, captureMode: NONE, hosts: ["limits/*"]}
`

// There is no TLS: an Envoy would wait for certificates, which nobody signs here.
const meshService = `apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: default, namespace: istio-system}
spec: {mtls: {mode: DISABLE}}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: hg-headgate, namespace: limits}
spec:
  hosts: [hg-headgate.limits.svc.cluster.local]
  location: MESH_INTERNAL
  resolution: STATIC
  ports:
    - {number: 8081, name: grpc, protocol: GRPC}
    - {number: 8082, name: grpc-services, protocol: GRPC}
  endpoints:
    - {address: 127.0.0.1, ports: {grpc: %s, grpc-services: %s}}
`

// TestIstiodAppliesTheEnvoyFilter: a real control plane of Istio applies the printed
// EnvoyFilter, and an Envoy with the bootstrap of Istio's agent obeys it: the rules limit,
// leases have the sidecar's owner and are released, and only the pods that the selector
// names ask. Envoy is not Istio's build, so the control plane sends none of the filters
// that only that has; and nobody signs certificates.
func TestIstiodAppliesTheEnvoyFilter(t *testing.T) {
	istiod := testenv.UseClient(t, testenv.Istiod)
	dir := t.TempDir()
	rules := filepath.Join(dir, "rules.yaml")
	write(t, rules, meshRules)
	socket := fmt.Sprintf("unix:@headgate-istiod-%d", testenv.FreePort(t))
	onTCP := testenv.StartHeadgate(t, program, "--rules", rules)
	onSocket := testenv.StartHeadgate(t, program, "--rules", rules, "--grpc", socket, "--services", socket+"-services")

	k := testenv.StartKubernetes(t)
	for _, crd := range objects(t, read(t, filepath.Join(filepath.Dir(istiod), "crds.yaml"))) {
		define(t, k, crd)
	}
	for _, name := range []string{"istio-system", namespace} {
		makeNamespace(t, k, name)
	}
	port := func(address string) string { return address[strings.LastIndex(address, ":")+1:] }
	apply(t, k, fmt.Sprintf(meshService, port(onTCP.GRPC), port(onTCP.Services)))
	for _, o := range objects(t, render(t, features(t)["istio"], "--set", "istio.tlsMode=DISABLE")) {
		if o["kind"] == "DestinationRule" {
			apply(t, k, string(toYAML(t, "", []object{o})))
		}
	}
	type way struct {
		flags    []string
		headgate *testenv.Headgate // that is asked; nil: none
		port     int
	}
	ways := map[string]*way{
		"service":  {flags: []string{"--istio-service", "hg-headgate.limits.svc.cluster.local"}, headgate: onTCP},
		"address":  {flags: []string{"--address", onTCP.GRPC, "--services", onTCP.Services}, headgate: onTCP},
		"sidecar":  {flags: []string{"--address", socket, "--services", socket + "-services"}, headgate: onSocket},
		"unlisted": {flags: []string{"--address", onTCP.GRPC, "--services", onTCP.Services, "--selector", "app=other"}},
	}
	for name, w := range ways {
		application := testenv.FreePort(t)
		serveApplication(t, application)
		w.port = testenv.FreePort(t)
		makeNamespace(t, k, name)
		apply(t, k, fmt.Sprintf(meshConfig, name, w.port, application, testenv.FreePort(t)))
		flags := append([]string{"--namespace", name, "--deny-without-answer", "--timeout", "5s"}, w.flags...)
		if w.headgate != nil {
			flags = append(flags, "--selector", "app=shop")
		}
		apply(t, k, read(t, meshFilter(t, flags)))
	}
	grpc := startIstiod(t, istiod, k.Kubeconfig)

	for name, w := range ways {
		t.Run(name, func(t *testing.T) {
			envoy := startProxy(t, filepath.Dir(istiod), name, grpc)
			before := ""
			if w.headgate != nil {
				before = leases(t, w.headgate, "released")
			}
			url := fmt.Sprintf("http://127.0.0.1:%d/slow", w.port)
			testenv.Eventually(t, patience, "the application answers through the sidecar", func() string {
				if code, err := get(url); code != http.StatusOK {
					return fmt.Sprint(code, err)
				}
				return ""
			})
			refused := atOnce(url, 8)
			if w.headgate == nil {
				if refused != 0 {
					t.Errorf("%d calls are refused by a sidecar that the selector does not name", refused)
				}
				return
			}
			// The rule lets one request in at a time; the application takes a tenth of a second.
			if refused == 0 {
				t.Errorf("8 calls at once, and none is refused\n%s", envoy.Admin("/config_dump?resource=dynamic_listeners"))
			}
			testenv.Eventually(t, patience, "leases are released", func() string {
				if now := leases(t, w.headgate, "released"); now == before {
					return now + " released"
				}
				return ""
			})
			clusters := envoy.Admin("/clusters")
			if name == "service" {
				const cluster = "outbound|8081||hg-headgate.limits.svc.cluster.local"
				if !strings.Contains(clusters, cluster+"::default_priority::max_requests::100000") { // the DestinationRule's
					t.Errorf("the cluster does not have what the chart's DestinationRule says:\n%s", clusters)
				}
			}
		})
	}
}

// apply makes the objects of a text.
func apply(t *testing.T, k *testenv.Kubernetes, text string) {
	t.Helper()
	for _, o := range objects(t, text) {
		plural := strings.ToLower(o["kind"].(string)) + "s"
		if strings.HasSuffix(plural, "ys") {
			plural = strings.TrimSuffix(plural, "ys") + "ies"
		}
		path := fmt.Sprintf("/apis/%v/namespaces/%v/%s", o["apiVersion"], at(o, "metadata", "namespace"), plural)
		if _, wrong := k.Create(path, o); wrong != "" {
			t.Fatalf("%v: %s", o["kind"], wrong)
		}
	}
}

// startIstiod runs the control plane on an API server, and returns its address.
func startIstiod(t *testing.T, path, kubeconfig string) string {
	t.Helper()
	free := func() string { return fmt.Sprintf("127.0.0.1:%d", testenv.FreePort(t)) }
	grpc, web := free(), free()
	mesh := filepath.Join(t.TempDir(), "mesh.yaml")
	write(t, mesh, "enableAutoMtls: false\n")
	p := testenv.StartProgram(t, path, []string{
		"ENABLE_CA_SERVER=false", "POD_NAMESPACE=istio-system", "POD_NAME=istiod",
		"PILOT_ENABLE_METADATA_EXCHANGE=false", "PILOT_ENABLE_ALPN_FILTER=false", // filters of Istio's Envoy
	}, "discovery", "--kubeconfig", kubeconfig, "--meshConfig", mesh,
		"--grpcAddr", grpc, "--httpAddr", web, "--httpsAddr=", "--secureGRPCAddr=", "--monitoringAddr", free(),
		"--ctrlz_port", "0")
	testenv.Eventually(t, patience, "istiod is ready", func() string {
		if p.Exited() {
			t.Fatalf("istiod has ended:\n%s", p.Log())
		}
		code, err := get("http://" + web + "/ready")
		if code != http.StatusOK {
			return fmt.Sprint(code, err)
		}
		return ""
	})
	return grpc
}

// startProxy runs Envoy as the sidecar of a pod, with what the injector puts into its environment.
func startProxy(t *testing.T, tools, namespace, istiod string) *testenv.Envoy {
	t.Helper()
	for name, value := range map[string]string{
		"POD_NAME": "shop-5d9c", "POD_NAMESPACE": namespace, "INSTANCE_IP": "10.1.2.3",
		"ISTIO_META_NAMESPACE": namespace, "ISTIO_META_INTERCEPTION_MODE": "NONE", "ISTIO_META_CLUSTER_ID": "Kubernetes",
		"ISTIO_METAJSON_LABELS": `{"app": "shop"}`,
	} {
		t.Setenv(name, value)
	}
	code, bootstrap, errOut := testenv.RunProgram(t, filepath.Join(tools, "bootstrap"), nil,
		filepath.Join(tools, "envoy_bootstrap.json"), istiod)
	if code != 0 {
		t.Fatal(errOut)
	}
	return testenv.StartEnvoy(t, "1.40.0", bootstrap)
}

// leases returns how many leases had an event, as the metric says it.
func leases(t *testing.T, h *testenv.Headgate, event string) string {
	t.Helper()
	page, err := h.Fetch("/metrics")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, "headgate_leases_total{") && strings.Contains(line, `event="`+event+`"`) {
			return strings.TrimSpace(line[strings.LastIndex(line, " ")+1:])
		}
	}
	return "0"
}

// atOnce calls a URL n times at once, and tells how often the answer is 429.
func atOnce(url string, n int) (refused int) {
	codes := make(chan int)
	for range n {
		go func() {
			code, _ := get(url)
			codes <- code
		}()
	}
	for range n {
		if <-codes == http.StatusTooManyRequests {
			refused++
		}
	}
	return refused
}
