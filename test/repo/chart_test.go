package repo

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/headgate-rls/headgate/internal/app/config"
	"github.com/headgate-rls/headgate/test/documented"
)

// chartSettings are the settings that the chart makes itself, each with the value to
// set instead; empty means none. Its value config takes all others.
var chartSettings = map[string]string{
	"config": "", "example": "", "socket-mode": "", "debug": "", "http": "", "services": "",
	"rules":         "rules.files",
	"candidate":     "rules.candidate",
	"merge-domains": "rules.mergeDomains",
	"xds":           "xds.server",
	"xds-tls":       "xds.existingSecret", "xds-tls-cert": "xds.existingSecret", "xds-tls-key": "xds.existingSecret",
	"xds-tls-ca":         "xds.existingSecret",
	"xds-header":         "pod.extraEnv", // it can be a secret
	"backend-per-second": "pod.extraEnv",
	"backend":            "backend.url",
	"grpc":               "sidecar.socket",
	"metrics":            "sidecar.metricsPort",
	"replicas":           "replicas",
	"drain-delay":        "drain.delaySeconds", "drain-timeout": "drain.timeoutSeconds",
	"grpc-tls-cert": "tls.existingSecret", "grpc-tls-key": "tls.existingSecret",
	"grpc-client-ca": "tls.clientCA", "grpc-client-san": "tls.clientNames",
	"lease-secret": "leaseSecret.existingSecret",
	"admin":        "admin.port",
	"admin-token":  "admin.existingSecret",
	"slots":        "slots.existingSecret", "slots-username": "slots.existingSecret",
	"slots-password": "slots.existingSecret",
	"policies":       "policies.existingSecret", "policies-username": "policies.existingSecret",
	"policies-password": "policies.existingSecret",
}

const chartDir = "../../charts/headgate"

// TestNoSecretOfTheChartIsInTheOpen: config, which a ConfigMap shows, takes no setting that is a secret or a URL with
// one.
func TestNoSecretOfTheChartIsInTheOpen(t *testing.T) {
	rows := config.Settings().Rows
	for i := range rows {
		s := &rows[i]
		if _, own := chartSettings[s.Name]; !own && s.HasSecret() {
			t.Errorf("the chart's config takes %s, which has a secret: name a value with existingSecret for it", s.Name)
		}
	}
}

// TestChartSchema: the part of the chart's schema about config is what the table of
// settings says, so that a misspelt setting fails before anything is installed.
func TestChartSchema(t *testing.T) {
	file := filepath.Join(chartDir, "values.schema.json")
	var schema map[string]any
	if err := json.Unmarshal(readFile(t, file), &schema); err != nil {
		t.Fatal(err)
	}
	properties, err := documented.Schema(config.Settings(), slices.Collect(maps.Keys(chartSettings)))
	if err != nil {
		t.Fatal(err)
	}
	schema["properties"].(map[string]any)["config"] = map[string]any{
		"type": "object", "additionalProperties": false, "properties": properties,
	}
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(schema); err != nil {
		t.Fatal(err)
	}
	renew(t, file, b.String())
}

// renew holds a file to its generated text, or writes it.
func renew(t *testing.T, file, want string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != want {
		t.Errorf("%s is not what it is made of (%v): run go test ./test/repo -update", file, err)
	}
}

// A chartValue is a value of the chart that is set on its own.
type chartValue struct {
	path, comment, byDefault string
}

// chartValues lists the values of values.yaml: a mapping that has entries is not a value
// but its entries are.
func chartValues(t *testing.T) []chartValue {
	t.Helper()
	var doc yaml.Node
	if err := yaml.Unmarshal(readFile(t, filepath.Join(chartDir, "values.yaml")), &doc); err != nil {
		t.Fatal(err)
	}
	var all []chartValue
	var walk func(prefix string, m *yaml.Node)
	walk = func(prefix string, m *yaml.Node) {
		for i := 0; i+1 < len(m.Content); i += 2 {
			key, value := m.Content[i], m.Content[i+1]
			path := prefix + key.Value
			if value.Kind == yaml.MappingNode && len(value.Content) > 0 && key.HeadComment == "" {
				walk(path+".", value)
				continue
			}
			value.HeadComment, value.LineComment, value.FootComment = "", "", ""
			var v any
			if err := value.Decode(&v); err != nil {
				t.Fatal(err)
			}
			text, err := json.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			comment := strings.Join(strings.Fields(strings.ReplaceAll(key.HeadComment, "#", "")), " ")
			all = append(all, chartValue{path, comment, string(text)})
		}
	}
	walk("", doc.Content[0])
	if len(all) < 50 {
		t.Fatalf("only %d values are found", len(all))
	}
	return all
}

// TestChartREADME: the chart's README lists every value with its comment.
func TestChartREADME(t *testing.T) {
	cell := func(s string) string { return strings.ReplaceAll(s, "|", `\|`) }
	var values, own strings.Builder
	values.WriteString("| value | default | meaning |\n|---|---|---|\n")
	for _, v := range chartValues(t) {
		if v.comment == "" {
			t.Errorf("values.yaml: %s has no comment", v.path)
		}
		fmt.Fprintf(&values, "| `%s` | `%s` | %s |\n", v.path, cell(v.byDefault), cell(v.comment))
	}
	own.WriteString("| setting | set instead |\n|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(chartSettings)) {
		instead := "nothing: the chart decides"
		if value := chartSettings[name]; value != "" {
			instead = "`" + value + "`"
		}
		fmt.Fprintf(&own, "| `%s` | %s |\n", name, instead)
	}
	file := filepath.Join(chartDir, "README.md")
	text := string(readFile(t, file))
	for part, by := range map[string]string{"values": values.String(), "own settings": own.String()} {
		changed, err := generate(text, part, by)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		text = changed
	}
	renew(t, file, text)
}

// TestChartValuesAreKnown: values.yaml, the schema and the templates have the same values.
func TestChartValuesAreKnown(t *testing.T) {
	var schema map[string]any
	if err := json.Unmarshal(readFile(t, filepath.Join(chartDir, "values.schema.json")), &schema); err != nil {
		t.Fatal(err)
	}
	templates := chartTemplates(t)
	known := map[string]bool{}
	for _, v := range chartValues(t) {
		known[v.path] = true
		if finding := schemaLacks(schema, v.path); finding != "" {
			t.Error(finding)
		}
		if v.path != "global" && !usesValue(templates, v.path) {
			t.Errorf("no template uses %s", v.path)
		}
	}
	for _, path := range schemaPaths(schema, "") {
		if !known[path] && !slices.ContainsFunc(slices.Collect(maps.Keys(known)),
			func(k string) bool { return strings.HasPrefix(path, k+".") }) {
			t.Errorf("values.schema.json has %s, and values.yaml does not", path)
		}
	}
	for setting, value := range chartSettings {
		if value != "" && !known[value] {
			t.Errorf("%s is to be set by %s, which is no value", setting, value)
		}
	}
}

func chartTemplates(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, pattern := range []string{"templates/*", "templates/tests/*"} {
		files, err := filepath.Glob(filepath.Join(chartDir, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if filepath.Ext(file) != "" {
				all.Write(readFile(t, file))
			}
		}
	}
	return all.String()
}

// usesValue reports whether templates name a value, or hand on the mapping that it is in.
func usesValue(templates, path string) bool {
	whole := func(p string) bool {
		return regexp.MustCompile(`\.Values\.` + regexp.QuoteMeta(p) + `([^.\w]|$)`).MatchString(templates)
	}
	if whole(path) {
		return true
	}
	parent, _, nested := cutLast(path)
	return nested && whole(parent)
}

func cutLast(path string) (before, after string, found bool) {
	i := strings.LastIndex(path, ".")
	if i < 0 {
		return "", path, false
	}
	return path[:i], path[i+1:], true
}

// schemaLacks says what the schema does not know of a value, and where it would pass a
// misspelt one.
func schemaLacks(schema map[string]any, path string) string {
	at := schema
	for _, name := range strings.Split(path, ".") {
		if at["additionalProperties"] != false {
			return "values.schema.json passes a misspelt neighbour of " + path
		}
		properties, _ := at["properties"].(map[string]any)
		next, ok := properties[name].(map[string]any)
		if !ok {
			return "values.schema.json does not know " + path
		}
		at = next
	}
	return ""
}

// schemaPaths lists what the schema knows, down to what has no properties.
func schemaPaths(schema map[string]any, prefix string) (all []string) {
	properties, _ := schema["properties"].(map[string]any)
	for name, p := range properties {
		path := prefix + name
		below := schemaPaths(p.(map[string]any), path+".")
		if below == nil {
			below = []string{path}
		}
		all = append(all, below...)
	}
	return all
}
