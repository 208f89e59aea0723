package chart

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// board is the source of the dashboard.
type board struct {
	UID, Title string
	Rows       []struct {
		Title  string
		Panels []panel
	}
}

type panel struct {
	Title, About, Kind, Unit string
	Width                    int
	Thresholds               []float64
	Queries                  []query
}

type query struct{ Expr, Legend string }

// chosen is what S stands for.
const chosen = `namespace=~"$namespace",job=~"$job"`

// expression is the query as Grafana has it.
func (q query) expression() string {
	return strings.NewReplacer("{S}", "{"+chosen+"}", "{S,", "{"+chosen+",").Replace(q.Expr)
}

func readBoard(t *testing.T) (b board) {
	t.Helper()
	d := yaml.NewDecoder(strings.NewReader(read(t, filepath.Join(chartDir, "files/dashboard/board.yaml"))))
	d.KnownFields(true)
	if err := d.Decode(&b); err != nil {
		t.Fatal(err)
	}
	return b
}

// TestBoardIsWhatItsSourceSays: dashboard.json is what its source says.
func TestBoardIsWhatItsSourceSays(t *testing.T) {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(readBoard(t).dashboard()); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(chartDir, "files/dashboard.json")
	if *update {
		if err := os.WriteFile(file, text.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if read(t, file) != text.String() {
		t.Errorf("%s is not what its source says: run go test ./test/chart -run Board -update", file)
	}
}

// choices are the variables that a person can choose by: values of a label of some series.
var choices = []struct{ label, series string }{
	{"namespace", "headgate_build_info"},
	{"job", `headgate_build_info{namespace=~"$namespace"}`},
	{"domain", "headgate_decisions_total{" + chosen + "}"},
	{"rule", "headgate_decisions_total{" + chosen + `,domain=~"$domain"}`},
}

var source = object{"type": "prometheus", "uid": "${datasource}"}

// dashboard is the model that Grafana imports: 24 columns, panels in rows.
func (b board) dashboard() object {
	var panels []any
	id, y := 0, 0
	next := func() int { id++; return id }
	for _, row := range b.Rows {
		panels = append(panels, object{"id": next(), "type": "row", "title": row.Title, "collapsed": false, "panels": []any{},
			"gridPos": object{"x": 0, "y": y, "w": 24, "h": 1}})
		y++
		x := 0
		for _, p := range row.Panels {
			width := p.Width
			if width == 0 {
				width = 8
			}
			if x+width > 24 {
				x, y = 0, y+panelHeight
			}
			panels = append(panels, p.model(next(), object{"x": x, "y": y, "w": width, "h": panelHeight}))
			x += width
		}
		y += panelHeight
	}
	variables := []any{object{"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"}}
	for _, v := range choices {
		query := fmt.Sprintf("label_values(%s, %s)", v.series, v.label)
		variables = append(variables, object{"name": v.label, "type": "query", "datasource": source,
			"query":      object{"query": query, "refId": v.label},
			"includeAll": true, "allValue": ".*", "multi": true, "refresh": 2, "sort": 1,
			"current": object{"text": []any{"All"}, "value": []any{"$__all"}}})
	}
	return object{
		"uid": b.UID, "title": b.Title, "tags": []any{"headgate"}, "schemaVersion": 39, "version": 1, "editable": true,
		"graphTooltip": 1,
		"refresh":      "30s", "time": object{"from": "now-1h", "to": "now"}, "timezone": "browser",
		"templating": object{"list": variables}, "panels": panels,
		"annotations": object{
			"list": []any{object{"name": "New rules", "datasource": source, "enable": true, "iconColor": "blue",
				"expr": newRules, "titleFormat": "New rules"}}},
	}
}

const panelHeight = 8

// newRules marks when rules were put in force.
const newRules = "changes(headgate_rules_generation{" + chosen + "}[$__interval]) > 0"

func (p panel) model(id int, position object) object {
	kind := p.Kind
	if kind == "" {
		kind = "timeseries"
	}
	var targets []any
	for i, q := range p.Queries {
		format := "time_series"
		switch kind {
		case "table":
			format = "table"
		case "heatmap":
			format = "heatmap"
		}
		targets = append(targets, object{"refId": string(rune('A' + i)), "datasource": source, "expr": q.expression(),
			"legendFormat": q.Legend,
			"format":       format, "instant": kind == "table", "range": kind != "table"})
	}
	defaults := object{"unit": p.Unit, "min": 0}
	if len(p.Thresholds) > 0 {
		steps := []any{object{"color": "green", "value": nil}}
		for i, at := range p.Thresholds {
			steps = append(steps, object{"color": []string{"orange", "red"}[min(i, 1)], "value": at})
		}
		defaults["thresholds"] = object{"mode": "absolute", "steps": steps}
	}
	return object{"id": id, "type": kind, "title": p.Title, "description": p.About, "datasource": source,
		"gridPos":     position,
		"fieldConfig": object{"defaults": defaults, "overrides": []any{}}, "options": object{}, "targets": targets}
}
