package httpapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/headgate-rls/headgate/slots"
	"github.com/headgate-rls/headgate/slots/plan"
)

// A document is what the tests need of the OpenAPI document.
type document struct {
	OpenAPI    string
	Paths      map[string]map[string]operation
	Components struct{ Responses map[string]response }

	compiler *jsonschema.Compiler
}

type operation struct {
	OperationID string
	Parameters  []parameter
	RequestBody *struct{ Content map[string]media }
	Responses   map[string]response
	Security    []map[string][]string
}

type parameter struct {
	Name, In string
	Example  any
}

type response struct {
	Ref     string `json:"$ref"`
	Headers map[string]any
	Content map[string]media
}

type media struct {
	Schema struct {
		Ref string `json:"$ref"`
	}
	Example  json.RawMessage
	Examples map[string]struct{ Value json.RawMessage }
}

func readDocument(t *testing.T) *document {
	t.Helper()
	d := new(document)
	if err := json.Unmarshal(openAPI, d); err != nil {
		t.Fatal(err)
	}
	whole, err := jsonschema.UnmarshalJSON(bytes.NewReader(openAPI))
	if err != nil {
		t.Fatal(err)
	}
	d.compiler = jsonschema.NewCompiler()
	d.compiler.DefaultDraft(jsonschema.Draft2020)
	d.compiler.AssertFormat()
	if err := d.compiler.AddResource("openapi.json", whole); err != nil {
		t.Fatal(err)
	}
	return d
}

// fits checks a value against a schema of the document.
func (d *document) fits(t *testing.T, what, ref string, value []byte) {
	t.Helper()
	schema, err := d.compiler.Compile("openapi.json" + ref)
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(value))
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	if err := schema.Validate(v); err != nil {
		t.Errorf("%s: %s does not fit %s: %v", what, value, ref, err)
	}
}

// answerFits checks the answer against what the operation says about its status.
func (d *document) answerFits(t *testing.T, op operation, a answer) {
	t.Helper()
	r, ok := op.Responses[fmt.Sprint(a.code)]
	if name, isRef := strings.CutPrefix(r.Ref, "#/components/responses/"); isRef {
		r = d.Components.Responses[name]
	}
	if !ok {
		t.Errorf("%s answers with %d, which is not documented: %s", op.OperationID, a.code, a.body)
		return
	}
	kind, _, _ := strings.Cut(a.header.Get("Content-Type"), ";")
	m, ok := r.Content[kind]
	if len(r.Content) == 0 && kind == "" && a.body == "" {
		return
	}
	if !ok {
		t.Errorf("%s answers with %q, which is not documented", op.OperationID, kind)
	} else if m.Schema.Ref != "" {
		d.fits(t, op.OperationID, m.Schema.Ref, []byte(a.body))
	}
}

// TestDocumentHasAllRoutes, and no others, with the parameters that they know.
func TestDocumentHasAllRoutes(t *testing.T) {
	d := readDocument(t)
	documented := map[string]string{}
	ids := map[string]bool{}
	for path, item := range d.Paths {
		for method, op := range item {
			var query []string
			for _, p := range op.Parameters {
				if p.In == "query" {
					query = append(query, p.Name)
				}
			}
			documented[strings.ToUpper(method)+" "+path] = fmt.Sprint(query)
			if ids[op.OperationID] || op.OperationID == "" {
				t.Errorf("%s %s: the operationId %q is there twice", method, path, op.OperationID)
			}
			ids[op.OperationID] = true
			if guarded := len(op.Security) > 0; guarded != strings.HasPrefix(path, "/admin/") {
				t.Errorf("%s %s: security is %v", method, path, op.Security)
			}
		}
	}
	h, err := New(Config{Scheduler: &scripted{}})
	if err != nil {
		t.Fatal(err)
	}
	routes := map[string]string{}
	for _, r := range append(h.apiRoutes(), h.adminRoutes()...) {
		routes[r.Method+" "+r.Path] = fmt.Sprint(r.Query)
	}
	if !maps.Equal(routes, documented) {
		t.Errorf("the routes are\n%v\nand the documented ones\n%v", routes, documented)
	}
	if served := withDefault(t).do(t, "GET", "/api/v1/openapi.json", "").is(t, 200); served.body != string(openAPI) {
		t.Error("the document that is served is another")
	}
}

// TestExamplesFitTheDocument sends every example of a request and checks the answer against
// the document, and every example of an answer against its schema.
func TestExamplesFitTheDocument(t *testing.T) {
	d := readDocument(t)
	s := withDefault(t)
	s.do(t, "POST", "/api/v1/slots", `{"eventId":"pay-123","requestedTime":"2025-06-01T12:00:00Z"}`).is(t, 200)
	sent := 0
	for _, path := range slices.Sorted(maps.Keys(d.Paths)) {
		for method, op := range d.Paths[path] {
			for code, r := range op.Responses {
				for _, m := range r.Content {
					if m.Example != nil {
						d.fits(t, op.OperationID+" "+code, m.Schema.Ref, m.Example)
					}
				}
			}
			for _, body := range examplesOf(op) {
				a := s.do(t, strings.ToUpper(method), withExamples(path, op), string(body), "Authorization", "Bearer "+adminToken)
				if a.code != 200 && a.code != 204 {
					t.Errorf("%s: the example %s is answered with %d %s", op.OperationID, body, a.code, a.body)
				}
				if len(body) > 0 {
					d.fits(t, op.OperationID, op.RequestBody.Content["application/json"].Schema.Ref, body)
				}
				d.answerFits(t, op, a)
				sent++
			}
		}
	}
	if sent < len(d.Paths) {
		t.Errorf("only %d requests were sent", sent)
	}
}

// examplesOf returns the bodies to send; one that is empty if there are none.
func examplesOf(op operation) [][]byte {
	if op.RequestBody == nil {
		return [][]byte{nil}
	}
	var bodies [][]byte
	for _, e := range op.RequestBody.Content["application/json"].Examples {
		bodies = append(bodies, e.Value)
	}
	return bodies
}

// withExamples fills in the examples of parameters.
func withExamples(path string, op operation) string {
	query := url.Values{}
	for _, p := range op.Parameters {
		switch {
		case p.In == "path":
			path = strings.ReplaceAll(path, "{"+p.Name+"}", url.PathEscape(fmt.Sprint(p.Example)))
		case p.Example != nil:
			query.Set(p.Name, fmt.Sprint(p.Example))
		}
	}
	if len(query) == 0 {
		return path
	}
	return path + "?" + query.Encode()
}

// TestFailuresAreDocumented: every operation that asks the Scheduler documents
// what becomes of its failures.
func TestFailuresAreDocumented(t *testing.T) {
	d := readDocument(t)
	for path, item := range d.Paths {
		for method, op := range item {
			documented := func(code int) bool { _, ok := op.Responses[fmt.Sprint(code)]; return ok }
			asks := documented(http.StatusInternalServerError) != documented(http.StatusServiceUnavailable)
			body := op.RequestBody != nil
			if asks || !documented(400) || documented(401) != strings.HasPrefix(path, "/admin/") ||
				documented(413) != body || documented(415) != body || documented(408) != body {
				t.Errorf("%s %s documents %v", method, path, slices.Sorted(maps.Keys(op.Responses)))
			}
		}
	}
}

// TestBoundsOfTheDocument are those of the code.
func TestBoundsOfTheDocument(t *testing.T) {
	var d struct {
		Components struct {
			Schemas map[string]struct {
				MaxLength  int
				MaxBytes   int `json:"x-maxBytes"`
				Properties map[string]struct {
					MaxItems int
					Maximum  int64
				}
			}
		}
	}
	if err := json.Unmarshal(openAPI, &d); err != nil {
		t.Fatal(err)
	}
	s := d.Components.Schemas
	for _, c := range []struct{ got, want int64 }{
		{int64(s["EventId"].MaxLength), slots.MaxEventID}, {int64(s["EventId"].MaxBytes), slots.MaxEventID},
		{int64(s["ConfigName"].MaxLength), slots.MaxConfigName}, {int64(s["ConfigName"].MaxBytes), slots.MaxConfigName},
		{int64(s["BatchRequest"].Properties["events"].MaxItems), slots.MaxBatch},
		{int64(s["SlotList"].Properties["slots"].MaxItems), slots.MaxBatch},
		{s["ConfigRequest"].Properties["maxPerWindow"].Maximum, plan.MaxPerWindow},
		{int64(s["Windows"].Properties["windows"].MaxItems), maxWindows},
	} {
		if c.got != c.want {
			t.Errorf("the document has %d, want %d", c.got, c.want)
		}
	}
}
