package files_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/descriptors/files"
	"github.com/headgate-rls/headgate/descriptors/rulefile"
)

const configMap = `apiVersion: v1
kind: ConfigMap
metadata: {name: limits}
data:
  a.yaml: |
    domain: a
    descriptors:
      - key: k
        rate_limit: {unit: minute, requests_per_unit: 1}
  b.yml: |
    domain: b
    descriptors:
      - key: k
        rate_limit: {unit: minute, requests_per_units: 1}
  README: not rules
`

const deployment = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: app}\nspec: {replicas: 1}\n"

// load reads files of a directory, and returns what is said of their rules.
func load(t *testing.T, paths []string, from map[string]string) (*descriptors.Set, string) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range from {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for i := range paths {
		paths[i] = filepath.Join(dir, paths[i])
	}
	sources, err := files.ReadPaths(paths, files.Names{})
	if err != nil {
		t.Fatal(err)
	}
	set, problems := rulefile.Load(sources, rulefile.Options{})
	var said strings.Builder
	for _, p := range problems {
		said.WriteString(strings.TrimPrefix(p.String(), dir+"/") + "\n")
	}
	return set, said.String()
}

// Each entry of a ConfigMap's data is a file of rules, and errors name it.
func TestConfigMapsAreReadByTheirData(t *testing.T) {
	good := strings.Replace(configMap, "per_units", "per_unit", 1)
	for name, path := range map[string]string{"a file": "limits.yaml", "a directory": "."} {
		set, said := load(t, []string{path}, map[string]string{"limits.yaml": good})
		if set == nil || strings.Join(set.Domains(), " ") != "a b" || said != "" {
			t.Errorf("%s: %s", name, said)
		}
	}
	set, said := load(t, []string{"."}, map[string]string{"limits.yaml": configMap})
	if set != nil || !strings.Contains(said, `limits.yaml/b.yml:4:`) || !strings.Contains(said, "requests_per_unit") {
		t.Errorf("an error in an entry: %s", said)
	}
	set, said = load(t, []string{"."}, map[string]string{"limits.yaml": deployment + "---\n" + good})
	if set == nil || len(set.Domains()) != 2 {
		t.Errorf("two manifests in one file: %s", said)
	}
}

// Manifests without rules are an error where nothing else has rules, and a warning beside files that have.
func TestManifestsWithoutRules(t *testing.T) {
	empty := "apiVersion: v1\nkind: ConfigMap\ndata: {README: x}\n"
	for text, want := range map[string]string{empty: "is a ConfigMap of Kubernetes, and its data has no entry",
		deployment: `is a manifest of Kubernetes of kind "Deployment"`} {
		set, said := load(t, []string{"x.yaml"}, map[string]string{"x.yaml": text})
		if set != nil || strings.Count(said, "\n") != 1 || !strings.HasPrefix(said, "x.yaml:2:7: the file "+want) {
			t.Errorf("alone: %s", said)
		}
		set, said = load(t, []string{"."}, map[string]string{"x.yaml": text,
			"y.yaml": strings.Replace(configMap, "per_units", "per_unit", 1)})
		if set == nil || !strings.HasPrefix(said, "x.yaml:2:7: warning: the file "+want) {
			t.Errorf("beside others: %s", said)
		}
	}
}
