package chart

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate-rls/headgate/test/testenv"
)

// meshFilters are ways to call `headgate envoy --istio`.
var meshFilters = map[string][]string{
	"service": {"--istio-service", "headgate.infra.svc.cluster.local", "--namespace", "shop", "--selector", "app=shop"},
	"address": {"--address", "headgate-headless.infra.svc.cluster.local:8081", "--services", "headgate-headless.infra.svc.cluster.local:8082"},
	"sidecar": {"--address", "unix:@headgate", "--services", "unix:@headgate-services", "--namespace", "shop"},
	"refuses": {"--deny-without-answer", "--owner", "me", "--name", "other"},
}

// meshFilter is what `headgate envoy --istio` prints, in a file.
func meshFilter(t *testing.T, flags []string) string {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "rules.yaml"), meshRules)
	code, out, errOut := testenv.RunProgram(t, program, nil, append([]string{"envoy", filepath.Join(dir, "rules.yaml"), "--istio"}, flags...)...)
	if code != 0 {
		t.Fatalf("headgate envoy --istio %v: %s", flags, errOut)
	}
	file := filepath.Join(dir, "filter.yaml")
	write(t, file, out)
	return file
}

// TestIstioctl: istioctl finds nothing wrong with what headgate prints for Istio, not even a
// field of Envoy's that it does not know, nor with what the chart makes for a mesh.
func TestIstioctl(t *testing.T) {
	istioctl := testenv.UseClient(t, testenv.Istioctl)
	golden, err := filepath.Abs("golden/istio.yaml")
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{"the chart": golden}
	for name, flags := range meshFilters {
		files[name] = meshFilter(t, flags)
	}
	for name, file := range files {
		for _, command := range [][]string{{"validate", "-f", file}, {"analyze", "--use-kube=false", "--failure-threshold", "Warning", file}} {
			code, out, errOut := testenv.RunProgram(t, istioctl, nil, command...)
			if text := out + errOut; code != 0 || strings.Contains(text, "arning") || strings.Contains(text, "rror") {
				t.Errorf("%s: istioctl %v: exit code %d\n%s", name, command, code, text)
			}
		}
	}
	// istioctl does find what is wrong.
	text := read(t, meshFilter(t, meshFilters["sidecar"]))
	for old, new := range map[string]string{
		"operation: INSERT_BEFORE": "operation: INSERT_BEFOR",
		"configPatches:":           "configPatch:",
		"failure_mode_deny:":       "failure_mode_denies:",
	} {
		file := filepath.Join(t.TempDir(), "wrong.yaml")
		wrong := strings.Replace(text, old, new, 1)
		write(t, file, wrong)
		code, out, errOut := testenv.RunProgram(t, istioctl, nil, "validate", "-f", file)
		if wrong == text || code == 0 && !strings.Contains(out+errOut, "arning") {
			t.Errorf("istioctl does not find %s: exit code %d\n%s%s", new, code, out, errOut)
		}
	}
}
