package repo

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/backends/dynamodb"
	"github.com/headgate-rls/headgate/backends/layers/breaker"
	"github.com/headgate-rls/headgate/backends/layers/denycache"
	"github.com/headgate-rls/headgate/backends/layers/fallback"
	"github.com/headgate-rls/headgate/backends/layers/observe"
	"github.com/headgate-rls/headgate/backends/layers/prefetch"
	"github.com/headgate-rls/headgate/backends/memory"
	"github.com/headgate-rls/headgate/backends/redis"
	"github.com/headgate-rls/headgate/backends/sqlstore"
	"github.com/headgate-rls/headgate/descriptors/xds"
	"github.com/headgate-rls/headgate/internal/app/config"
	"github.com/headgate-rls/headgate/internal/app/server"
	"github.com/headgate-rls/headgate/internal/app/tracing"
	"github.com/headgate-rls/headgate/internal/kit/background"
	"github.com/headgate-rls/headgate/internal/kit/metrics"
	"github.com/headgate-rls/headgate/internal/kit/settings"
	"github.com/headgate-rls/headgate/internal/wire/accesslog"
	"github.com/headgate-rls/headgate/internal/wire/unary"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/notify/gateway"
	"github.com/headgate-rls/headgate/notify/serve"
	"github.com/headgate-rls/headgate/policies"
	"github.com/headgate-rls/headgate/ratelimit"
	"github.com/headgate-rls/headgate/ratelimit/fleet"
	"github.com/headgate-rls/headgate/ratelimit/leases"
	"github.com/headgate-rls/headgate/slots"
	"github.com/headgate-rls/headgate/test/documented"
	"github.com/headgate-rls/headgate/test/former"
)

var update = flag.Bool("update", false, "write the generated parts of the documents")

// figured are the stores and layers that have figures. They are only asked for
// the names: nothing is opened.
var figured = []backends.Figured{
	new(memory.Backend), new(redis.Backend), new(sqlstore.Backend), new(dynamodb.Backend), new(breaker.Backend),
	new(denycache.Backend), new(prefetch.Backend), new(fallback.Backend),
}

func metricsTable() string {
	rows := slices.Concat(ratelimit.NewMetrics().Rows(), background.NewPanics().Rows(), observe.NewMetrics().Rows(),
		accesslog.NewMetrics().Rows(),
		server.Rows(), new(unary.Server).Rows(""), new(leases.Tracker).Rows(), ratelimit.NewCoverage().Rows(),
		fleet.New(fleet.Config{}).Rows())
	return tableOf(slices.Concat(rows, figures(), new(xds.Client).Rows(), new(policies.Set).Rows(),
		new(tracing.Tracing).Rows(), slots.NewMetrics().Rows(), slots.PoolRows(nil)))
}

// figures are the rows of all stores and layers.
func figures() (rows []metrics.Row) {
	for _, f := range figured {
		rows = append(rows, f.Figures()...)
	}
	return rows
}

// settingsTable makes the table of a program's settings.
func settingsTable(p settings.Program) func() string {
	return func() string { return documented.Settings(p) }
}

// generated are the parts of documents that the code writes.
var generated = map[string]map[string]func() string{
	"../../docs/reference.md": {"settings": settingsTable(config.Settings()), "metrics": metricsTable,
		"tracing": documented.Tracing},
	"../../docs/versions.md": {"versions": former.Table},
	"../../docs/notify.md": {
		"gateway settings": settingsTable(new(gateway.Settings).Program()),
		"sender settings":  settingsTable(new(serve.SenderSettings).Program()),
		"metrics":          notifyMetrics,
	},
	"../../docs/migrate.md": {"environment": documented.Environment, "differences": differences,
		"reference metrics": func() string { return documented.ReferenceMetrics(figures()) }},
}

// TestGeneratedDocuments: the tables of settings, metrics and variables in documents are
// what the code says.
func TestGeneratedDocuments(t *testing.T) {
	for file, parts := range generated {
		text := string(readFile(t, file))
		for part, make := range parts {
			changed, err := generate(text, part, make())
			if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			if changed != text && !*update {
				t.Errorf("the table of %s in %s is not what the code says: run go test ./test/repo -update", part, file)
			}
			text = changed
		}
		if !*update {
			continue
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

var schemaAlgorithms = regexp.MustCompile(`("algorithm": \{ "enum": \[)[^]]*`)

// TestSchemaNamesEveryAlgorithm: editors offer the algorithms that the program has.
func TestSchemaNamesEveryAlgorithm(t *testing.T) {
	const file = "../../descriptors/rulefile/rules.schema.json"
	var names []string
	for _, a := range limit.Algorithms() {
		names = append(names, strconv.Quote(a.String()))
	}
	text := string(readFile(t, file))
	if n := len(schemaAlgorithms.FindAllString(text, -1)); n != 1 {
		t.Fatalf("%s lists the algorithms in %d places, want 1", file, n)
	}
	changed := schemaAlgorithms.ReplaceAllString(text, "${1}"+strings.Join(names, ", "))
	switch {
	case changed == text:
	case !*update:
		t.Errorf("%s does not list the algorithms of the program: run go test ./test/repo -update", file)
	default:
		if err := os.WriteFile(file, []byte(changed), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// generate replaces a generated part of a document.
func generate(text, part, by string) (string, error) {
	begin, end := "<!-- generated: "+part+" -->\n", "<!-- end of "+part+" -->\n"
	before, rest, ok := strings.Cut(text, begin)
	_, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		return "", fmt.Errorf("no %q or no %q", begin, end)
	}
	return before + begin + "\n" + by + "\n" + end + after, nil
}

var (
	metricLiteral = regexp.MustCompile(`"(headgate_\w+)"`)
	metricMention = regexp.MustCompile("`(headgate_\\w*[a-z])[`{]")
	metricRow     = regexp.MustCompile("(?m)^\\| `(headgate_\\w+)` ")
	metricSuffix  = regexp.MustCompile(`_(bucket|count|sum)$`)
)

// TestMetricNames: a metric is named once in the code, in metrics.go beside what counts, and from there the
// documentation has it. Documents name no metric that does not exist.
func TestMetricNames(t *testing.T) {
	documented := map[string]bool{}
	for _, m := range metricRow.FindAllStringSubmatch(metricsTable()+notifyMetrics(), -1) {
		if documented[m[1]] {
			t.Errorf("two metrics are named %s", m[1])
		}
		documented[m[1]] = true
	}
	if len(documented) < 30 {
		t.Fatalf("only %d metrics are found", len(documented))
	}
	dir := root(t)
	files, err := goFiles(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		name, _ := filepath.Rel(dir, file)
		if strings.HasSuffix(name, "_test.go") || within(name, "test") {
			continue
		}
		for _, m := range metricLiteral.FindAllStringSubmatch(string(readFile(t, file)), -1) {
			for _, finding := range checkMetricName(filepath.ToSlash(name), m[1], documented) {
				t.Error(finding)
			}
		}
	}
	for _, file := range documents(t) {
		for _, m := range metricMention.FindAllStringSubmatch(string(readFile(t, file)), -1) {
			if !documented[m[1]] && !documented[metricSuffix.ReplaceAllString(m[1], "")] {
				t.Errorf("%s: there is no metric %s", file, m[1])
			}
		}
	}
}

// checkMetricName holds the name of a metric in a file to the rules.
func checkMetricName(file, metric string, documented map[string]bool) (found []string) {
	// refmetrics names those whose figures the reference has as well.
	if filepath.Base(file) != "metrics.go" && !within(file, "internal/app/refmetrics") {
		found = append(found, fmt.Sprintf("%s names the metric %s: rows of metrics belong in metrics.go beside what counts",
			file, metric))
	}
	if !documented[metric] {
		found = append(found,
			fmt.Sprintf("%s names the metric %s, which is in no table: add its rows to metricsTable in test/repo", file, metric))
	}
	return found
}

func TestMetricNameRules(t *testing.T) {
	known := map[string]bool{"headgate_x": true}
	for _, c := range []struct{ file, metric, want string }{
		{"slots/metrics.go", "headgate_x", ""},
		{"backends/layers/denycache/metrics.go", "headgate_x", ""},
		{"backends/redis/redis.go", "headgate_x", "metrics belong in"},
		{"slots/figures.go", "headgate_x", "metrics belong in"},
		{"backends/redis/metrics.go", "headgate_y", "in no table"},
	} {
		expect(t, c.file, checkMetricName(c.file, c.metric, known), c.want)
	}
	got, err := generate("a\n<!-- generated: x -->\n\nold\n\n<!-- end of x -->\nb\n", "x", "new\n")
	if want := "a\n<!-- generated: x -->\n\nnew\n\n<!-- end of x -->\nb\n"; got != want || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	if _, err := generate("a\n<!-- generated: x -->\n\nold\n", "x", "new\n"); err == nil {
		t.Error("a part without an end is replaced")
	}
}
