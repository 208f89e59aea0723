package chart

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/headgate-rls/headgate/test/testenv"
)

// TestInstalledChartUpgradesAndLeavesNothing: a real API server takes each feature's
// objects, and holds its pods to restricted Pod Security. An upgrade changes what it
// should, a rollback undoes it, and nothing is left after helm uninstall.
func TestInstalledChartUpgradesAndLeavesNothing(t *testing.T) {
	k := testenv.StartKubernetes(t)
	makeNamespace(t, k, namespace)
	for _, crd := range customResources {
		defineResource(t, k, crd.group, crd.version, crd.kind)
	}
	for name, values := range features(t) {
		t.Run(name, func(t *testing.T) {
			inCluster(t, k, 0, "install", release, "CHART", "--namespace", namespace, "--values", values)
			for _, o := range objects(t, read(t, filepath.Join("golden", name+".yaml"))) {
				if _, wrong := k.Create(collection(t, o)+"?dryRun=All", o); !strings.Contains(wrong, "AlreadyExists") &&
					wrong != "" {
					t.Errorf("%v %v: %s", o["kind"], at(o, "metadata", "name"), wrong)
				}
				admitPod(t, k, o)
			}
			inCluster(t, k, 0, "uninstall", release, "--namespace", namespace)
			if left := labelled(t, k); len(left) > 0 {
				t.Errorf("helm uninstall leaves %v", left)
			}
		})
	}
	t.Run("upgrade and rollback", func(t *testing.T) { upgrades(t, k) })
	for _, name := range []string{"sidecar-policy", "sidecar-slots"} {
		t.Run("policy of "+name, func(t *testing.T) { policyInjects(t, k, name) })
	}
	t.Run("strictness", func(t *testing.T) {
		for _, o := range objects(t, strings.ReplaceAll(read(t, "golden/memory.yaml"), "minReadySeconds", "minReadySecond")) {
			if _, wrong := k.Create(collection(t, o)+"?dryRun=All", o); o["kind"] == "Deployment" && !strings.Contains(wrong,
				`unknown field \"spec.minReadySecond\"`) {
				t.Errorf("a misspelt field: %q", wrong)
			}
		}
	})
}

// inCluster runs helm on the API server. Nobody there runs the Job of a hook.
func inCluster(t *testing.T, k *testenv.Kubernetes, want int, args ...string) string {
	t.Helper()
	args = append(args, "--no-hooks")
	code, out, errOut := helm(t, append(args, "--kubeconfig", k.Kubeconfig)...)
	if code != want {
		t.Fatalf("helm %v: exit code %d\n%s%s", args, code, out, errOut)
	}
	return out
}

// upgrades changes rules alone, then settings, and goes back.
func upgrades(t *testing.T, k *testenv.Kubernetes) {
	values := features(t)["memory"]
	state := func() (rules, settings, checksum string) {
		var data struct{ Data map[string]string }
		k.Get("/api/v1/namespaces/"+namespace+"/configmaps/hg-headgate-rules", &data)
		rules = data.Data["shop.yaml"]
		k.Get("/api/v1/namespaces/"+namespace+"/configmaps/hg-headgate-settings", &data)
		var d object
		k.Get("/apis/apps/v1/namespaces/"+namespace+"/deployments/hg-headgate", &d)
		checksum, _ = at(d, "spec", "template", "metadata", "annotations", "checksum/settings").(string)
		return rules, data.Data["settings.yaml"], checksum
	}
	inCluster(t, k, 0, "install", release, "CHART", "--namespace", namespace, "--values", values)
	rules1, settings1, checksum1 := state()

	inCluster(t, k, 0, "upgrade", release, "CHART", "--namespace", namespace, "--values", values, "--set-string",
		`rules.files.shop\.yaml=domain: other`)
	if rules, settings, checksum := state(); rules == rules1 || settings != settings1 || checksum != checksum1 {
		t.Errorf("new rules: rules %q, checksum %s; want new rules and the same pods", rules, checksum)
	}
	inCluster(t, k, 0, "upgrade", release, "CHART", "--namespace", namespace, "--values", values, "--set",
		"config.log-level=debug")
	if rules, settings, checksum := state(); rules != rules1 || settings == settings1 || checksum == checksum1 {
		t.Errorf("new settings: %q, checksum %s; want new pods", settings, checksum)
	}
	// What does not render changes nothing.
	inCluster(t, k, 1, "upgrade", release, "CHART", "--namespace", namespace, "--values", values, "--set", "replicas=2")
	inCluster(t, k, 0, "rollback", release, "1", "--namespace", namespace)
	if rules, settings, checksum := state(); rules != rules1 || settings != settings1 || checksum != checksum1 {
		t.Errorf("after the rollback: %q %q %s", rules, settings, checksum)
	}
	inCluster(t, k, 0, "uninstall", release, "--namespace", namespace)
}

// policyInjects: the API server puts headgate into the pods that have the label, once, with
// its volumes, and into no others.
func policyInjects(t *testing.T, k *testenv.Kubernetes, name string) {
	testenv.Eventually(t, patience, "the policy of another installation is gone", func() string {
		made, wrong := k.Create("/api/v1/namespaces/"+namespace+"/pods?dryRun=All", application("true"))
		if wrong == "" && len(asList(at(made, "spec", "initContainers"))) > 0 {
			return "a pod gets an init container"
		}
		return wrong
	})
	inCluster(t, k, 0, "install", release, "CHART", "--namespace", namespace, "--values", features(t)[name],
		"--set", "sidecar.inject=policy")
	defer inCluster(t, k, 0, "uninstall", release, "--namespace", namespace)
	want, volumes := sidecarContainer(t, name)
	injected := 0
	var made object
	testenv.Eventually(t, patience, "the policy is in force", func() (wrong string) {
		if made, wrong = k.Create("/api/v1/namespaces/"+namespace+"/pods?dryRun=All", application("true")); wrong != "" {
			return wrong
		}
		if injected = len(asList(at(made, "spec", "initContainers"))); injected == 0 {
			return "the pod has no init container"
		}
		return ""
	})
	c, _ := at(made, "spec", "initContainers", 0).(object)
	if injected != 1 || c["name"] != "headgate" || c["restartPolicy"] != "Always" ||
		fmt.Sprint(c["args"]) != fmt.Sprint(want["args"]) {
		t.Errorf("%d init containers, the first is %v", injected, c)
	}
	for _, field := range []string{"image", "securityContext", "resources", "env", "ports", "volumeMounts"} {
		if !covers(c[field], want[field]) {
			t.Errorf("%s: %v, want %v", field, c[field], want[field])
		}
	}
	if got := asList(at(made, "spec", "volumes")); len(got) != len(volumes)+1 {
		t.Errorf("%d volumes, want the pod's own and %d", len(got), len(volumes))
	}
	for name, pod := range map[string]object{"no label": application(""), "with headgate": withHeadgate(t, made)} {
		again, wrong := k.Create("/api/v1/namespaces/"+namespace+"/pods?dryRun=All", pod)
		before := len(asList(at(pod, "spec", "initContainers")))
		if wrong != "" || len(asList(at(again, "spec", "initContainers"))) != before {
			t.Errorf("%s: the policy changes a pod that it should not: %s %v", name, wrong, at(again, "spec", "initContainers"))
		}
	}
}

// application is a pod of somebody's, with or without the label.
func application(inject string) object {
	labels := object{"app": "shop"}
	if inject != "" {
		labels["headgate.io/inject"] = inject
	}
	return object{
		"apiVersion": "v1", "kind": "Pod", "metadata": object{"name": "shop", "labels": labels},
		"spec": object{
			"securityContext": object{"runAsNonRoot": true, "runAsUser": 1000,
				"seccompProfile": object{"type": "RuntimeDefault"}},
			"containers": []any{object{"name": "shop", "image": "shop:1", "securityContext": object{
				"allowPrivilegeEscalation": false, "capabilities": object{"drop": []any{"ALL"}}}}},
			"volumes": []any{object{"name": "own", "emptyDir": object{}}},
		},
	}
}

// withHeadgate is the pod with the container already there.
func withHeadgate(t *testing.T, made object) object {
	pod := application("true")
	spec := pod["spec"].(object)
	spec["initContainers"], spec["volumes"] = at(made, "spec", "initContainers"), at(made, "spec", "volumes")
	return pod
}

// covers reports whether got has all that want has: an API server adds defaults.
func covers(got, want any) bool {
	switch want := want.(type) {
	case object:
		g, ok := got.(object)
		for key, value := range want {
			ok = ok && covers(g[key], value)
		}
		return ok
	case []any:
		g, ok := got.([]any)
		ok = ok && len(g) == len(want)
		for i := range want {
			ok = ok && covers(g[i], want[i])
		}
		return ok
	}
	return fmt.Sprint(got) == fmt.Sprint(want)
}

// admitPod has the API server evaluate the pod of a workload, as a controller would make it.
func admitPod(t *testing.T, k *testenv.Kubernetes, o object) {
	t.Helper()
	pod := object{"apiVersion": "v1", "kind": "Pod", "metadata": object{"name": "admitted"}}
	switch o["kind"] {
	case "Deployment", "Job":
		pod["spec"] = at(o, "spec", "template", "spec")
	case "ConfigMap":
		text, ok := at(o, "data", "headgate").(string)
		if !ok {
			return
		}
		var template object // of Istio's injector, which a pod gets
		if err := yaml.Unmarshal([]byte(text), &template); err != nil {
			t.Fatal(err)
		}
		pod = application("")
		spec := pod["spec"].(object)
		spec["initContainers"], spec["volumes"] = at(template, "spec", "initContainers"), at(template, "spec", "volumes")
	default:
		return
	}
	if spec := pod["spec"].(object); spec["priorityClassName"] != nil {
		delete(spec, "priorityClassName") // the admission of priorities makes that a quota's matter
	}
	if _, wrong := k.Create("/api/v1/namespaces/"+namespace+"/pods?dryRun=All", pod); wrong != "" {
		t.Errorf("the pod of %v: %s", at(o, "metadata", "name"), wrong)
	}
}

// makeNamespace makes a namespace that admits restricted pods only.
func makeNamespace(t *testing.T, k *testenv.Kubernetes, name string) {
	t.Helper()
	_, wrong := k.Create("/api/v1/namespaces", object{"apiVersion": "v1", "kind": "Namespace", "metadata": object{
		"name": name, "labels": object{"pod-security.kubernetes.io/enforce": "restricted"}}})
	if wrong != "" {
		t.Fatal(wrong)
	}
}

// customResources are those that the chart can make. What is in them is checked by their
// Go types, in TestRenderedChartMatchesGoldenFiles: here they take anything.
var customResources = []struct{ group, version, kind string }{
	{"monitoring.coreos.com", "v1", "PodMonitor"},
	{"monitoring.coreos.com", "v1", "ServiceMonitor"},
	{"monitoring.coreos.com", "v1", "PrometheusRule"},
	{"gateway.networking.k8s.io", "v1", "HTTPRoute"},
	{"cert-manager.io", "v1", "Certificate"},
	{"networking.istio.io", "v1", "DestinationRule"},
	{"networking.istio.io", "v1alpha3", "EnvoyFilter"},
}

func defineResource(t *testing.T, k *testenv.Kubernetes, group, version, kind string) {
	t.Helper()
	plural := strings.ToLower(kind) + "s"
	define(t, k, object{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		// What is not the Gateway API's own must say so.
		"metadata": object{"name": plural + "." + group,
			"annotations": object{"api-approved.kubernetes.io": "unapproved, of a test"}},
		"spec": object{
			"group": group, "scope": "Namespaced", "names": object{"kind": kind, "plural": plural},
			"versions": []any{object{"name": version, "served": true, "storage": true, "schema": object{
				"openAPIV3Schema": object{"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}},
		},
	})
}

// define makes a CustomResourceDefinition, and waits until the API server serves it.
func define(t *testing.T, k *testenv.Kubernetes, crd object) {
	t.Helper()
	const path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	if _, wrong := k.Create(path, crd); wrong != "" {
		t.Fatal(wrong)
	}
	name := at(crd, "metadata", "name").(string)
	testenv.Eventually(t, patience, name+" is served", func() string {
		var made object
		k.Get(path+"/"+name, &made)
		for _, c := range asList(at(made, "status", "conditions")) {
			if at(c, "type") == "Established" && at(c, "status") == "True" {
				return ""
			}
		}
		return "not established"
	})
}

// collections are where objects are made, by kind.
var collections = map[string]string{
	"ConfigMap": "configmaps", "Service": "services", "ServiceAccount": "serviceaccounts", "Pod": "pods",
	"Deployment": "deployments", "Job": "jobs", "PodDisruptionBudget": "poddisruptionbudgets",
	"HorizontalPodAutoscaler": "horizontalpodautoscalers",
	"NetworkPolicy":           "networkpolicies", "Certificate": "certificates", "PodMonitor": "podmonitors",
	"ServiceMonitor": "servicemonitors", "PrometheusRule": "prometheusrules",
	"Ingress": "ingresses", "HTTPRoute": "httproutes",
	"DestinationRule": "destinationrules", "EnvoyFilter": "envoyfilters",
	"MutatingAdmissionPolicy":        "mutatingadmissionpolicies",
	"MutatingAdmissionPolicyBinding": "mutatingadmissionpolicybindings",
}

func collection(t *testing.T, o object) string {
	t.Helper()
	kind, version := o["kind"].(string), o["apiVersion"].(string)
	plural := collections[kind]
	if plural == "" {
		t.Fatalf("the test does not know the collection of %s", kind)
	}
	root := "/apis/" + version
	if version == "v1" {
		root = "/api/v1"
	}
	if strings.HasPrefix(kind, "Mutating") {
		return root + "/" + plural
	}
	return root + "/namespaces/" + namespace + "/" + plural
}

// labelled lists what has a label of the chart, by kind and name.
func labelled(t *testing.T, k *testenv.Kubernetes) (all []string) {
	t.Helper()
	for kind := range collections {
		o := object{"kind": kind, "apiVersion": "v1"}
		for group, kinds := range map[string]string{
			"apps/v1": "Deployment", "batch/v1": "Job", "policy/v1": "PodDisruptionBudget",
			"autoscaling/v2": "HorizontalPodAutoscaler", "networking.k8s.io/v1": "NetworkPolicy Ingress",
			"gateway.networking.k8s.io/v1": "HTTPRoute",
			"cert-manager.io/v1":           "Certificate",
			"monitoring.coreos.com/v1":     "PodMonitor ServiceMonitor PrometheusRule",
			"networking.istio.io/v1":       "DestinationRule", "networking.istio.io/v1alpha3": "EnvoyFilter",
			"admissionregistration.k8s.io/v1": "MutatingAdmissionPolicy MutatingAdmissionPolicyBinding",
		} {
			if containsWord(kinds, kind) {
				o["apiVersion"] = group
			}
		}
		var list struct{ Items []json.RawMessage }
		k.Get(collection(t, o)+"?labelSelector=app.kubernetes.io/instance="+release, &list)
		for _, item := range list.Items {
			var m object
			if err := json.Unmarshal(item, &m); err != nil {
				t.Fatal(err)
			}
			all = append(all, fmt.Sprint(kind, " ", at(m, "metadata", "name")))
		}
	}
	return all
}

func containsWord(words, word string) bool { return strings.Contains(" "+words+" ", " "+word+" ") }
