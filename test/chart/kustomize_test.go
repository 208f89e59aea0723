package chart

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/headgate-rls/headgate/test/testenv"
)

const examples = "../../examples/kubernetes"

// TestKustomizeMakesWhatTheChartRenders: examples/kubernetes has what the chart renders,
// and `kubectl apply -k` makes the same objects of it.
func TestKustomizeMakesWhatTheChartRenders(t *testing.T) {
	manifests := testenv.UseClient(t, testenv.Manifests)
	testenv.Require(t, testenv.Helm)
	for _, dir := range []string{"", "redis"} {
		dir, err := filepath.Abs(filepath.Join(examples, dir))
		if err != nil {
			t.Fatal(err)
		}
		rendered := plain(objects(t, renderExample(t, dir)))
		rules, others := apart(rendered)
		file := filepath.Join(dir, "headgate.yaml")
		text := toYAML(t, "# Made from charts/headgate by go test ./test/chart -run Kustomize -update\n", others)
		if *update {
			if err := os.WriteFile(file, text, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if read(t, file) != string(text) {
			t.Errorf("%s is not what the chart renders: run go test ./test/chart -run Kustomize -update", file)
		}
		code, out, errOut := testenv.RunProgram(t, manifests, nil, "kustomize", dir)
		if code != 0 {
			t.Fatalf("kustomize %s: %s", dir, errOut)
		}
		builtRules, built := apart(withoutNamespace(t, objects(t, out)))
		if !reflect.DeepEqual(at(builtRules, "data"), at(rules, "data")) ||
			at(builtRules, "metadata", "namespace") != "headgate" {
			t.Errorf("%s: kustomize makes the rules %v, the chart %v", dir, builtRules, rules)
		}
		if len(built) != len(others) {
			t.Errorf("%s: kustomize makes %d objects, the chart %d", dir, len(built), len(others))
		}
		for _, o := range others {
			if !hasObject(built, o) {
				t.Errorf("%s: kustomize does not make the %v %v of the chart", dir, o["kind"], at(o, "metadata", "name"))
			}
		}
		builtFile := filepath.Join(t.TempDir(), "built.yaml")
		if err := os.WriteFile(builtFile, []byte(out), 0o600); err != nil {
			t.Fatal(err)
		}
		if code, out, errOut := testenv.RunProgram(t, manifests, nil, "check", builtFile); code != 0 {
			t.Errorf("%s%s", out, errOut)
		}
		if code, out := kubeconform(t, builtFile); code != 0 {
			t.Error(out)
		}
	}
}

// withoutNamespace takes the namespace out of what kustomize makes: a chart has none.
func withoutNamespace(t *testing.T, all []object) []object {
	t.Helper()
	if len(all) == 0 || all[0]["kind"] != "Namespace" || at(all[0], "metadata", "name") != "headgate" {
		t.Fatalf("kustomize does not begin with the namespace: %v", all)
	}
	return all[1:]
}

// TestKustomizeInstallsInOneCommand: an API server without anything takes all of examples/kubernetes, in the order in
// which `kubectl apply -k` sends it, and admits its pods. Where there is a kubectl, that runs, twice.
func TestKustomizeInstallsInOneCommand(t *testing.T) {
	manifests := testenv.Require(t, testenv.Manifests)
	k := testenv.StartKubernetes(t)
	t.Run("kubectl", func(t *testing.T) {
		kubectl, err := exec.LookPath("kubectl")
		if err != nil {
			t.Skip("not run: there is no kubectl on this system")
		}
		dir, err := filepath.Abs(examples)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			code, out, errOut := testenv.RunProgram(t, kubectl, []string{"HOME=" + t.TempDir()}, "--kubeconfig",
				k.Kubeconfig, "apply", "-k", dir)
			if code != 0 || !strings.Contains(out, "deployment.apps/headgate ") {
				t.Errorf("kubectl apply -k: exit code %d\n%s%s", code, out, errOut)
			}
		}
	})
	for _, dir := range []string{"", "redis"} {
		dir, err := filepath.Abs(filepath.Join(examples, dir))
		if err != nil {
			t.Fatal(err)
		}
		code, out, errOut := testenv.RunProgram(t, manifests, nil, "kustomize", dir)
		if code != 0 {
			t.Fatalf("kustomize %s: %s", dir, errOut)
		}
		for _, o := range objects(t, out) {
			path := "/api/v1/namespaces"
			if o["kind"] != "Namespace" {
				path = strings.Replace(collection(t, o), "/"+namespace+"/", "/headgate/", 1)
			}
			// All have the same names. What is there already was still validated.
			if _, wrong := k.Create(path, o); wrong != "" && !strings.Contains(wrong, "AlreadyExists") {
				t.Errorf("%s: %v %v: %s", dir, o["kind"], at(o, "metadata", "name"), wrong)
			}
			if o["kind"] == "Deployment" {
				pod := object{"apiVersion": "v1", "kind": "Pod", "metadata": object{"name": "admitted"},
					"spec": at(o, "spec", "template", "spec")}
				if _, wrong := k.Create("/api/v1/namespaces/headgate/pods?dryRun=All", pod); wrong != "" {
					t.Errorf("%s: its pod: %s", dir, wrong)
				}
			}
		}
	}
}

// renderExample is what the chart renders for the rules, and the values if there are any, of
// a directory of examples.
func renderExample(t *testing.T, dir string) string {
	t.Helper()
	args := []string{"template", "headgate", "CHART", "--namespace", "headgate", "--skip-tests",
		"--set", "rules.check=false",
		"--set-file", `rules.files.shop\.yaml=` + filepath.Join(dir, "rules", "shop.yaml")}
	if values := filepath.Join(dir, "values.yaml"); exists(values) {
		args = append(args, "--values", values)
	}
	code, out, errOut := helm(t, args...)
	if code != 0 {
		t.Fatalf("helm template: %s", errOut)
	}
	return out
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

// plain takes away what helm alone writes.
func plain(all []object) []object {
	for _, o := range all {
		for _, m := range []any{o["metadata"], at(o, "spec", "template", "metadata")} {
			if labels, ok := at(m, "labels").(object); ok {
				delete(labels, "helm.sh/chart")
				delete(labels, "app.kubernetes.io/managed-by")
			}
		}
	}
	return all
}

// apart takes the ConfigMap of rules out of the objects.
func apart(all []object) (rules object, others []object) {
	for _, o := range all {
		if name, _ := at(o, "metadata", "name").(string); o["kind"] == "ConfigMap" && strings.HasSuffix(name, "-rules") {
			rules = o
			continue
		}
		others = append(others, o)
	}
	return rules, others
}

func hasObject(all []object, want object) bool {
	for _, o := range all {
		if reflect.DeepEqual(o, want) {
			return true
		}
	}
	return false
}

func toYAML(t *testing.T, comment string, all []object) []byte {
	t.Helper()
	b := bytes.NewBufferString(comment)
	e := yaml.NewEncoder(b)
	e.SetIndent(2)
	for _, o := range all {
		if err := e.Encode(o); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}
