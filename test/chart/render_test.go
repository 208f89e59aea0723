// Package chart checks charts/headgate: what helm renders, headgate with the rendered
// settings and rules, and an API server that takes it all.
package chart

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/headgate-rls/headgate/test/testenv"
)

var update = flag.Bool("update", false, "write the golden files")

const (
	chartDir  = "../../charts/headgate"
	namespace = "limits"
	release   = "hg"
)

var program string // headgate

// patience is how long anything may take on a busy machine.
const patience = 30 * time.Second

func TestMain(m *testing.M) {
	testenv.Main(m, func(root, dir string) (err error) {
		program, err = testenv.BuildHeadgate(root, dir)
		return err
	})
}

// features returns the values files of the chart, one for each feature, by name.
func features(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(chartDir, "ci", "*-values.yaml"))
	if err != nil || len(files) < 10 {
		t.Fatalf("%d values files: %v", len(files), err)
	}
	byName := map[string]string{}
	for _, file := range files {
		byName[strings.TrimSuffix(filepath.Base(file), "-values.yaml")] = file
	}
	return byName
}

// helm runs helm, which sees nothing of the user's own set-up.
func helm(t *testing.T, args ...string) (code int, out, errOut string) {
	t.Helper()
	path := testenv.Require(t, testenv.Helm)
	chart, err := filepath.Abs(chartDir)
	if err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	for i, arg := range args {
		switch {
		case arg == "CHART":
			args[i] = chart
		case strings.HasPrefix(arg, chartDir):
			args[i] = filepath.Join(chart, strings.TrimPrefix(arg, chartDir))
		}
	}
	env := []string{"HELM_CACHE_HOME=" + home, "HELM_CONFIG_HOME=" + home, "HELM_DATA_HOME=" + home,
		"KUBECONFIG=" + filepath.Join(home, "none")}
	return testenv.RunProgram(t, path, env, args...)
}

// render returns what helm renders from a values file and further arguments.
func render(t *testing.T, values string, args ...string) string {
	t.Helper()
	code, out, errOut := helm(t,
		append([]string{"template", release, "CHART", "--namespace", namespace, "--values", values}, args...)...)
	if code != 0 || errOut != "" {
		t.Fatalf("helm template: exit code %d\n%s", code, errOut)
	}
	return out
}

// An object is a Kubernetes object.
type object = map[string]any

// objects reads rendered documents.
func objects(t *testing.T, text string) (all []object) {
	t.Helper()
	d := yaml.NewDecoder(strings.NewReader(text))
	for {
		var o object
		err := d.Decode(&o)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		if o != nil {
			all = append(all, o)
		}
	}
}

// at returns what a path leads to, nil if nothing: names of fields, numbers of elements.
func at(v any, path ...any) any {
	for _, step := range path {
		switch step := step.(type) {
		case string:
			m, _ := v.(object)
			v = m[step]
		case int:
			l, _ := v.([]any)
			if step >= len(l) {
				return nil
			}
			v = l[step]
		}
	}
	return v
}

// TestRenderedChartMatchesGoldenFiles: each values file renders to its golden file, passes
// helm's lint and the strict types of Kubernetes, and its pods are restricted.
func TestRenderedChartMatchesGoldenFiles(t *testing.T) {
	testenv.UseClient(t, testenv.Helm)
	manifests := testenv.UseClient(t, testenv.Manifests)
	for name, values := range features(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := render(t, values)
			golden, err := filepath.Abs(filepath.Join("golden", name+".yaml"))
			if err != nil {
				t.Fatal(err)
			}
			if *update {
				if err := os.WriteFile(golden, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil || string(want) != text {
				t.Errorf("helm does not render what %s has (%v): look at the difference after\n"+
					"go test ./test/chart -run Rendered -update", golden, err)
			}
			if code, out, errOut := helm(t, "lint", "CHART", "--strict", "--values", values); code != 0 {
				t.Errorf("helm lint: %s%s", out, errOut)
			}
			if code, out, errOut := testenv.RunProgram(t, manifests, nil, "check", golden); code != 0 {
				t.Errorf("%s%s", out, errOut)
			}
		})
	}
}

// kubeconform holds files, or directories of them, to the schemas of Kubernetes, Istio and
// cert-manager.
func kubeconform(t *testing.T, files ...string) (code int, out string) {
	t.Helper()
	program := testenv.UseClient(t, testenv.Kubeconform)
	schemas := filepath.Join(filepath.Dir(program), "schemas", "{{.ResourceKind}}{{.KindSuffix}}.json")
	// The modules of the Prometheus operator have no schemas;
	// TestRenderedChartMatchesGoldenFiles decodes its objects.
	args := []string{"-strict", "-summary", "-skip", "PodMonitor,ServiceMonitor,PrometheusRule",
		"-schema-location", schemas}
	code, out, errOut := testenv.RunProgram(t, program, nil, append(args, files...)...)
	return code, out + errOut
}

// TestKubeconformAcceptsEveryObject: each object of the golden files fits its schema.
func TestKubeconformAcceptsEveryObject(t *testing.T) {
	golden, err := filepath.Abs("golden")
	if err != nil {
		t.Fatal(err)
	}
	code, out := kubeconform(t, golden)
	valid, skipped := 0, 0
	if _, summary, ok := strings.Cut(out, "Valid: "); ok {
		_, err = fmt.Sscanf(summary, "%d, Invalid: 0, Errors: 0, Skipped: %d", &valid, &skipped)
	}
	monitoring := 0
	for name := range features(t) {
		text := read(t, filepath.Join("golden", name+".yaml"))
		for _, kind := range []string{"PodMonitor", "ServiceMonitor", "PrometheusRule"} {
			monitoring += strings.Count(text, "\nkind: "+kind+"\n")
		}
	}
	if code != 0 || err != nil || valid < 80 || skipped != monitoring {
		t.Errorf("exit code %d, %d objects are valid, %d of %d have no schema: %v\n%s", code, valid, skipped,
			monitoring, err, out)
	}
	for _, c := range []struct{ file, old, new string }{
		{"memory", "minReadySeconds:", "minReadySecond:"},
		{"memory", "containerPort: 8081", "containerPort: eighty"},
		{"certmanager", "rotationPolicy: Always", "rotation: Always"},
		{"istio", "http2MaxRequests:", "http2MaxRequest:"},
		{"istio", "kind: EnvoyFilter", "kind: EnvoyFiltre"},
		{"sidecar-policy", "failurePolicy:", "failurePolice:"},
		{"pages", "parentRefs:", "parentRef:"},
		{"pages", "pathType: Prefix", "pathTyp: Prefix"},
	} {
		text := read(t, filepath.Join("golden", c.file+".yaml"))
		wrong := filepath.Join(t.TempDir(), "wrong.yaml")
		write(t, wrong, strings.Replace(text, c.old, c.new, 1))
		if code, out := kubeconform(t, wrong); code != 1 || !strings.Contains(text, c.old) {
			t.Errorf("%s: exit code %d\n%s", c.new, code, out)
		}
	}
}

// TestManifestsAreChecked: the check of manifests finds what is wrong.
func TestManifestsAreChecked(t *testing.T) {
	manifests := testenv.Require(t, testenv.Manifests)
	for _, c := range []struct{ file, old, new, want string }{
		{"memory", "minReadySeconds: 5", "minReadySecond: 5", `unknown field "spec.minReadySecond"`},
		{"memory", "containerPort: 8081", "containerPort: eighty", "cannot unmarshal string"},
		{"memory", "allowPrivilegeEscalation: false", "allowPrivilegeEscalation: true", "restricted Pod Security"},
		{"memory", "runAsNonRoot: true", "runAsNonRoot: false", "restricted Pod Security"},
		{"certmanager", "interval: 15s", "intervall: 15s", `unknown field "spec.podMetricsEndpoints[0].intervall"`},
		{"certmanager", "rotationPolicy: Always", "rotation: Always", `unknown field "spec.privateKey.rotation"`},
		{"istio", "http2MaxRequests", "http2MaxRequest", "http2MaxRequest"},
		{"istio", "kind: EnvoyFilter", "kind: EnvoyFiltre", "EnvoyFiltre"},
		{"pages", "interval: 30s", "intervall: 30s", `unknown field "spec.endpoints[0].intervall"`},
		{"pages", "parentRefs:", "parentRef:", `unknown field "spec.parentRef"`},
		{"pages", "pathType: Prefix", "pathTyp: Prefix", `unknown field "spec.rules[0].http.paths[0].pathTyp"`},
	} {
		text, err := os.ReadFile(filepath.Join("golden", c.file+".yaml"))
		if err != nil || !bytes.Contains(text, []byte(c.old)) {
			t.Fatalf("%s has no %q: %v", c.file, c.old, err)
		}
		broken := filepath.Join(t.TempDir(), "broken.yaml")
		if err := os.WriteFile(broken, bytes.ReplaceAll(text, []byte(c.old), []byte(c.new)), 0o600); err != nil {
			t.Fatal(err)
		}
		if code, out, _ := testenv.RunProgram(t, manifests, nil, "check", broken); code != 1 ||
			!strings.Contains(out, c.want) {
			t.Errorf("%s: exit code %d, %q, want %q", c.new, code, out, c.want)
		}
	}
}

// TestRefusedValuesSayWhy: what would not work, or not limit, does not render, and the
// message says why.
func TestRefusedValuesSayWhy(t *testing.T) {
	testenv.Require(t, testenv.Helm)
	for name, c := range map[string]struct{ base, set, want string }{
		"no rules":                {"", "image.tag=x", "no rules: set rules.files"},
		"a name that is not read": {"memory", `rules.files.shop\.yml~=x`, "is not a file name that ends in .yaml"},
		"memory of two":           {"memory", "replicas=2", "2 replicas would admit 2 times each limit"},
		"memory that grows":       {"memory", "autoscaling.enabled=true", "8 replicas would admit 8 times each limit"},
		"memory with parameters":  {"memory", `backend.url=memory://?max_keys=5,replicas=3`, "3 replicas"},
		"a password in the open": {"autoscaling", "backend.url=redis://app:secret@redis:6379/0",
			"backend.url has a login or a password"},
		"a password for a name": {"autoscaling", "backend.url=redis://secret@redis:6379", "backend.url has a login"},
		"a password as parameter": {"autoscaling", "backend.url=redis://r:1?password=x",
			"backend.url has a login or a password"},
		"a password of sentinels": {"autoscaling", "backend.url=redis+sentinel://r:1/m?sentinel_password=x", "or a password"},
		"a file of several":       {"autoscaling", "backend.url=sqlite:/data/h.db", "a file that replicas do not share"},
		"an unknown store":        {"autoscaling", "backend.url=reddis://r:1", "backend/url"},
		"policies in the open":    {"memory", "config.policies=postgres://u:p@h/d", "policies"},
		"a password of policies":  {"memory", "config.policies-password=x", "policies-password"},
		"fewer at most": {"autoscaling", "autoscaling.maxReplicas=2",
			"minReplicas is more than autoscaling.maxReplicas"},
		"nothing to scale by": {"autoscaling", "autoscaling.cpu=0,autoscaling.metrics=null", "nothing to scale by"},
		"percent of nothing": {"autoscaling", "resources.requests.cpu=null",
			"resources.requests.cpu, which is not set"},
		"two certificates":          {"tls", "tls.csiDriver=x", "set one of existingSecret"},
		"clients without server":    {"memory", "tls.clientCA=true", "needs a certificate of headgate's own"},
		"names without clients":     {"memory", "tls.clientNames={a}", "tls.clientNames needs tls.clientCA"},
		"slots behind client CA":    {"tls", "slots.existingSecret=s", "tls.clientCA closes the HTTP port"},
		"slots that nobody can ask": {"sidecar", "slots.existingSecret=s", "set sidecar.httpPort"},
		"an admin without a port":   {"sidecar", "admin.existingSecret=s", "set admin.port, or sidecar.httpPort"},
		"pages of a sidecar": {"sidecar-slots", "ingress.enabled=true,ingress.host=a",
			"ingress is for mode: deployment"},
		"a ServiceMonitor of a sidecar": {"sidecar-slots", "metrics.serviceMonitor.enabled=true",
			"metrics.serviceMonitor is for mode: deployment"},
		"one port for two":          {"sidecar-slots", "admin.port=6070", "6070 is the port of sidecar.metricsPort"},
		"a port that is taken":      {"memory", "admin.port=8080", "admin.port: 8080 is the port of HTTP"},
		"an Ingress to everything":  {"memory", "ingress.enabled=true,ingress.host=a", "ingress leads to the admin port"},
		"a route to everything":     {"memory", "httpRoute.enabled=true", "httpRoute leads to the admin port"},
		"an Ingress for all hosts":  {"pages", "ingress.host=", "ingress needs ingress.host"},
		"a route from nowhere":      {"pages", "httpRoute.parentRefs=null", "httpRoute needs httpRoute.parentRefs"},
		"scraped twice":             {"pages", "metrics.podMonitor.enabled=true", "would scrape each pod twice"},
		"a Service that is no type": {"memory", "service.type=ExternalName", "service/type"},
		"admin behind client CA":    {"tls", "admin.existingSecret=s", "tls.clientCA closes the HTTP port"},
		"the address of the admin":  {"memory", "config.admin=:9", "admin"},
		"TLS in a sidecar":          {"sidecar", "tls.existingSecret=s", "tls is for mode: deployment"},
		"a lease-ttl twice":         {"sidecar", "config.lease-ttl=1m", "lease-ttl is sidecar.leaseTTL"},
		"a socket elsewhere":        {"sidecar", "sidecar.socket=/tmp/x", "neither @name nor a path in /run/headgate"},
		"injection of a deployment": {"memory", "sidecar.inject=istio", "sidecar.inject is for mode: sidecar"},
		"one's own rules by name":   {"memory", "rules.configMaps={hg-headgate-rules}", "give yours another name"},
		"an owner of nothing":       {"memory", "rules.configMaps[0].name=a", "configMaps"},
		"a domain that is two": {"memory", "rules.configMaps[0].name=a,rules.configMaps[0].domains[0]=a*b",
			"configMaps"},

		"rules from two places":   {"memory", "xds.server=a:1", "rules come from one place"},
		"xds without a server":    {"memory", "config.xds-node-id=x", "xds-node-id needs xds.server"},
		"TLS without a server":    {"memory", "xds.existingSecret=x", "xds.existingSecret needs xds.server"},
		"a server without a port": {"xds", "xds.server=a", "xds/server"},
		"probes that need rules":  {"xds", "config.xds-health=rules", "restart pods again and again"},
		"a token in the open":     {"xds", "config.xds-header={a:b}", "xds-header"},

		"a label of the chart": {"memory", `pod.labels.app\.kubernetes\.io/name=evil`,
			"pod.labels: app.kubernetes.io/name is a label that the chart sets"},
		"the checksum of settings": {"memory", "pod.annotations.checksum/settings=x",
			"pod.annotations: checksum/settings is the chart's own"},
		"fewer than none":           {"memory", "replicas=-1", "minimum"},
		"more than can be":          {"memory", "drain.delaySeconds=999999", "maximum"},
		"a number too large":        {"autoscaling", "replicas=99999999999999999999", "/replicas"},
		"rules outside":             {"memory", `rules.files.\.\./x\.yaml=x`, "is not a file name that ends in .yaml"},
		"a name that is not one":    {"memory", "fullnameOverride=Bad_Name", "does not match pattern"},
		"a misspelt value":          {"memory", "replica=1", "replica"},
		"a misspelt nested value":   {"memory", "metrics.podMonitor.enable=true", "enable"},
		"a misspelt setting":        {"memory", "config.log-levle=warn", "log-levle"},
		"a word that is not one":    {"memory", "config.on-backend-error=alow", "on-backend-error"},
		"a type":                    {"memory", "config.access-logs=many", "access-logs"},
		"a duration without a unit": {"memory", "config.backend-timeout=5", "backend-timeout"},
		"the chart's own setting":   {"memory", "config.grpc=:9", "grpc"},
		"a secret in the open":      {"memory", "config.lease-secret=x", "lease-secret"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := []string{"template", release, "CHART", "--set", c.set}
			if c.base != "" {
				args = append(args, "--values", features(t)[c.base])
			}
			code, out, errOut := helm(t, args...)
			if code == 0 || out != "" || !strings.Contains(errOut, c.want) {
				t.Errorf("exit code %d, want a message with %q:\n%s", code, c.want, errOut)
			}
		})
	}
}

// TestNotesNameTheNextSteps: helm says what to do next, with the names of this release.
func TestNotesNameTheNextSteps(t *testing.T) {
	manifests := testenv.Require(t, testenv.Manifests)
	chart, err := filepath.Abs(chartDir)
	if err != nil {
		t.Fatal(err)
	}
	all := features(t)
	for name, want := range map[string][]string{
		"memory": {"hg-headgate.limits.svc:8081", "helm test -n limits hg",
			"--istio-service hg-headgate.limits.svc.cluster.local", "counters are gone when it ends"},
		"tls":           {"--address hg-headgate-headless.limits.svc.cluster.local:8081", "--tls-ca ca.crt"},
		"sidecar":       {"initContainers:", "restartPolicy: Always", "unix:@headgate-services"},
		"sidecar-istio": {"inject.istio.io/templates: sidecar,headgate", "hg-headgate-istio-template"},
		"xds": {"The control plane at envoy-gateway.envoy-gateway-system.svc:18001 sends the rules",
			"helm test -n limits hg"},
		"pages": {"https://limits.example.com/#token=", "kubectl get secret -n limits headgate-admin",
			"can change the limits of every client"},
		"sidecar-slots":  {"http://127.0.0.1:6071/api/v1/slots"},
		"sidecar-policy": {`headgate.io/inject: "true"`, "There are no metrics", "each pod counts for itself"},
	} {
		values := filepath.Join(chart, strings.TrimPrefix(all[name], chartDir))
		code, notes, errOut := testenv.RunProgram(t, manifests, nil, "notes", chart, release, namespace, values)
		if code != 0 {
			t.Fatalf("%s: exit code %d\n%s", name, code, errOut)
		}
		for _, part := range want {
			if !strings.Contains(notes, part) {
				t.Errorf("%s: no %q in\n%s", name, part, notes)
			}
		}
	}
}
