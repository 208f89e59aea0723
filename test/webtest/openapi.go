package webtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// A Document is what tests need of an OpenAPI document.
type Document struct {
	Paths      map[string]map[string]Operation // by path, then by method in lower case
	Components struct {
		Responses map[string]Response
		Schemas   map[string]Schema
	}

	compiler *jsonschema.Compiler
}

// An Operation is a method of a path.
type Operation struct {
	OperationID string
	Parameters  []Parameter
	RequestBody *struct{ Content map[string]Media }
	Responses   map[string]Response // by status
	Security    []map[string][]string
}

// A Parameter is in the "path" or the "query".
type Parameter struct {
	Name, In string
	Example  any
}

// A Response is what an operation says about one status.
type Response struct {
	Ref     string `json:"$ref"`
	Headers map[string]struct{ Required bool }
	Content map[string]Media
}

// Media is a body of one Content-Type.
type Media struct {
	Schema struct {
		Ref string `json:"$ref"`
	}
	Example  json.RawMessage
	Examples map[string]struct{ Value json.RawMessage }
}

// A Schema has the bounds of a value.
type Schema struct {
	MaxLength, MaxItems int
	MaxBytes            int `json:"x-maxBytes"`
	Maximum             int64
	Enum                []any
	Properties          map[string]Schema
}

// ReadDocument reads an OpenAPI document.
func ReadDocument(t testing.TB, text []byte) *Document {
	t.Helper()
	d := new(Document)
	if err := json.Unmarshal(text, d); err != nil {
		t.Fatal(err)
	}
	whole, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
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

// Validate compares a value with the schema that ref names, such as "#/components/schemas/Error".
func (d *Document) Validate(t testing.TB, ref string, value []byte) error {
	t.Helper()
	schema, err := d.compiler.Compile("openapi.json" + ref)
	if err != nil {
		t.Fatal(err)
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(value))
	if err != nil {
		return err
	}
	return schema.Validate(v)
}

// Fits checks that a value has the schema that ref names.
func (d *Document) Fits(t testing.TB, what, ref string, value []byte) {
	t.Helper()
	if err := d.Validate(t, ref, value); err != nil {
		t.Errorf("%s: %s does not fit %s: %v", what, value, ref, err)
	}
}

// AnswerFits checks an answer against what the operation says about its status.
func (d *Document) AnswerFits(t testing.TB, op Operation, a Answer) {
	t.Helper()
	r, ok := op.Responses[fmt.Sprint(a.Code)]
	if name, isRef := strings.CutPrefix(r.Ref, "#/components/responses/"); isRef {
		r = d.Components.Responses[name]
	}
	if !ok {
		t.Errorf("%s answers with %d, which is not documented: %s", op.OperationID, a.Code, a.Body)
		return
	}
	for name, h := range r.Headers {
		if h.Required && a.Header.Get(name) == "" {
			t.Errorf("%s: an answer with %d has no %s", op.OperationID, a.Code, name)
		}
	}
	kind := a.Header.Get("Content-Type")
	if strings.HasPrefix(kind, "text/") {
		kind, _, _ = strings.Cut(kind, ";")
	}
	if len(r.Content) == 0 && kind == "" && a.Body == "" {
		return
	}
	m, ok := r.Content[kind]
	if !ok {
		t.Errorf("%s answers with %q, which is not documented", op.OperationID, kind)
	} else if m.Schema.Ref != "" {
		d.Fits(t, op.OperationID, m.Schema.Ref, []byte(a.Body))
	}
}

// ExamplesFit checks the examples of requests and answers against their schemas.
func (d *Document) ExamplesFit(t testing.TB) {
	t.Helper()
	for _, item := range d.Paths {
		for _, op := range item {
			for code, r := range op.Responses {
				for _, m := range r.Content {
					if m.Example != nil {
						d.Fits(t, op.OperationID+" "+code, m.Schema.Ref, m.Example)
					}
				}
			}
			for _, body := range op.Bodies() {
				if body != nil {
					d.Fits(t, op.OperationID, op.RequestBody.Content["application/json"].Schema.Ref, body)
				}
			}
		}
	}
}

// Bodies are the examples of a request's body; one that is nil if there are none.
func (op Operation) Bodies() [][]byte {
	if op.RequestBody == nil {
		return [][]byte{nil}
	}
	var bodies [][]byte
	for _, e := range op.RequestBody.Content["application/json"].Examples {
		bodies = append(bodies, e.Value)
	}
	return bodies
}

// Target is the path and the query with the examples of parameters.
func (op Operation) Target(path string) string {
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

// Query are the names of the operation's parameters in the query.
func (op Operation) Query() (names []string) {
	for _, p := range op.Parameters {
		if p.In == "query" {
			names = append(names, p.Name)
		}
	}
	return names
}

// Routes returns the query parameters of every operation, by "METHOD path". Each operation must
// have an operationId of its own.
func (d *Document) Routes(t testing.TB) map[string]string {
	t.Helper()
	routes, ids := map[string]string{}, map[string]bool{}
	for path, item := range d.Paths {
		for method, op := range item {
			if ids[op.OperationID] || op.OperationID == "" {
				t.Errorf("%s %s: the operationId %q is empty or not the only one", method, path, op.OperationID)
			}
			ids[op.OperationID] = true
			routes[strings.ToUpper(method)+" "+path] = fmt.Sprint(op.Query())
		}
	}
	return routes
}
