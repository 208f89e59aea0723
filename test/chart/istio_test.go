package chart

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/headgate-rls/headgate/test/testenv"
)

// meshFilters are ways to call `headgate envoy --istio`.
var meshFilters = map[string][]string{
	"service": {"--istio-service", "headgate.infra.svc.cluster.local", "--namespace", "shop", "--selector", "app=shop"},
	"address": {"--address", "headgate-headless.infra.svc.cluster.local:8081", "--services",
		"headgate-headless.infra.svc.cluster.local:8082"},
	"sidecar": {"--address", "unix:@headgate", "--services", "unix:@headgate-services", "--namespace", "shop"},
	"refuses": {"--deny-without-answer", "--owner", "me", "--name", "other"},
}

// meshFilter is what `headgate envoy --istio` prints, in a file.
func meshFilter(t *testing.T, flags []string) string {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "rules.yaml"), meshRules)
	code, out, errOut := testenv.RunProgram(t, program, nil,
		append([]string{"envoy", filepath.Join(dir, "rules.yaml"), "--istio"}, flags...)...)
	if code != 0 {
		t.Fatalf("headgate envoy --istio %v: %s", flags, errOut)
	}
	file := filepath.Join(dir, "filter.yaml")
	write(t, file, out)
	return file
}

// toldOfAll are warnings that istioctl has about every EnvoyFilter that puts a filter before the
// router: that the API is Envoy's, and that another EnvoyFilter may have moved what it is put
// before. The router is always there.
var toldOfAll = regexp.MustCompile(`(?m)^.*(has warnings: $|exposes internal implementation details|\[IST0151\]).*\n`)

// findings is what istioctl says about a file, but for what it says of every EnvoyFilter.
func findings(t *testing.T, istioctl string, command ...string) (code int, text string) {
	t.Helper()
	code, out, errOut := testenv.RunProgram(t, istioctl, nil, command...)
	return code, toldOfAll.ReplaceAllString(out+errOut, "")
}

// TestIstioctlFindsNothingWrong: istioctl finds nothing wrong with what headgate prints for
// Istio, not even a field of Envoy's that it does not know, nor with what the chart makes
// for a mesh.
func TestIstioctlFindsNothingWrong(t *testing.T) {
	istioctl := testenv.UseClient(t, testenv.Istioctl)
	var mesh []object // istioctl does not know the appProtocol of Services that istiod does
	for _, o := range objects(t, read(t, "golden/istio.yaml")) {
		if o["kind"] != "Service" {
			mesh = append(mesh, o)
		}
	}
	chart := filepath.Join(t.TempDir(), "chart.yaml")
	write(t, chart, string(toYAML(t, "", mesh)))
	files := map[string]string{"the chart": chart}
	for name, flags := range meshFilters {
		files[name] = meshFilter(t, flags)
	}
	for name, file := range files {
		for _, command := range [][]string{{"validate", "-f", file}, {"analyze", "--use-kube=false", file}} {
			code, text := findings(t, istioctl, command...)
			if code != 0 || strings.Contains(text, "arning") || strings.Contains(text, "rror") ||
				strings.Contains(text, "\t* ") {
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
		code, found := findings(t, istioctl, "validate", "-f", file)
		if wrong == text || code == 0 && !strings.Contains(found, "\t* ") {
			t.Errorf("istioctl does not find %s: exit code %d\n%s", new, code, found)
		}
	}
}
