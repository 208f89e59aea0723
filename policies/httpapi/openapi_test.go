package httpapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/policies"
)

// A document is what the tests need of the OpenAPI document.
type document struct {
	Paths      map[string]map[string]operation
	Components struct {
		Responses map[string]response
		Schemas   map[string]struct {
			MaxLength  int
			MaxBytes   int `json:"x-maxBytes"`
			Properties map[string]struct {
				MaxItems, MaxLength int
				Maximum             int64
				Enum                []string
			}
		}
	}

	compiler *jsonschema.Compiler
}

type operation struct {
	OperationID string
	Parameters  []struct {
		Name, In string
		Example  any
	}
	RequestBody *struct{ Content map[string]media }
	Responses   map[string]response
	Security    []map[string][]string
}

type response struct {
	Ref     string `json:"$ref"`
	Headers map[string]struct{ Required bool }
	Content map[string]media
}

type media struct {
	Schema struct {
		Ref string `json:"$ref"`
	}
	Example  json.RawMessage
	Examples map[string]struct{ Value json.RawMessage }
}

func readDocument(t testing.TB) *document {
	t.Helper()
	d := new(document)
	check(t, json.Unmarshal(openAPI, d))
	whole, err := jsonschema.UnmarshalJSON(bytes.NewReader(openAPI))
	check(t, err)
	d.compiler = jsonschema.NewCompiler()
	d.compiler.DefaultDraft(jsonschema.Draft2020)
	d.compiler.AssertFormat()
	check(t, d.compiler.AddResource("openapi.json", whole))
	return d
}

// fits checks a value against a schema of the document.
func (d *document) fits(t testing.TB, what, ref string, value []byte) {
	t.Helper()
	schema, err := d.compiler.Compile("openapi.json" + ref)
	check(t, err)
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(value))
	check(t, err)
	if err := schema.Validate(v); err != nil {
		t.Errorf("%s: %s does not fit %s: %v", what, value, ref, err)
	}
}

// answerFits checks an answer against what the operation says about its status.
func (d *document) answerFits(t testing.TB, op operation, a answer) {
	t.Helper()
	r, ok := op.Responses[fmt.Sprint(a.code)]
	if name, isRef := strings.CutPrefix(r.Ref, "#/components/responses/"); isRef {
		r = d.Components.Responses[name]
	}
	if !ok {
		t.Errorf("%s answers with %d, which is not documented: %s", op.OperationID, a.code, a.body)
		return
	}
	for name, h := range r.Headers {
		if h.Required && a.header.Get(name) == "" {
			t.Errorf("%s: an answer with %d has no %s", op.OperationID, a.code, name)
		}
	}
	kind := a.header.Get("Content-Type")
	m, ok := r.Content[kind]
	if ok != (kind != "") {
		t.Errorf("%s answers with %q, which is not documented", op.OperationID, kind)
	} else if m.Schema.Ref != "" {
		d.fits(t, op.OperationID, m.Schema.Ref, []byte(a.body))
	}
}

// TestDocumentHasAllRoutes, and no others, with the parameters that they know.
func TestDocumentHasAllRoutes(t *testing.T) {
	s := newServer(t)
	documented, ids := map[string]string{}, map[string]bool{}
	for path, item := range s.doc.Paths {
		for method, op := range item {
			var query []string
			for _, p := range op.Parameters {
				if p.In == "query" {
					query = append(query, p.Name)
				}
			}
			documented[strings.ToUpper(method)+" "+path] = fmt.Sprint(query)
			if ids[op.OperationID] || op.OperationID == "" || len(op.Security) == 0 {
				t.Errorf("%s %s: operationId %q, security %v", method, path, op.OperationID, op.Security)
			}
			ids[op.OperationID] = true
		}
	}
	routes := map[string]string{}
	for _, r := range new(Handlers).routes() {
		routes[r.Method+" "+r.Path] = fmt.Sprint(r.Query)
	}
	if !maps.Equal(routes, documented) {
		t.Errorf("the routes are\n%v\nand the documented ones\n%v", routes, documented)
	}
	if served := s.do(t, "GET", "/admin/openapi.json", "").is(t, 200); served.body != string(openAPI) {
		t.Error("the document that is served is another")
	}
}

// TestExamplesFitTheirSchemas sends every example of a request, and checks every example of an answer against its
// schema.
func TestExamplesFitTheirSchemas(t *testing.T) {
	s := newServer(t)
	sent := 0
	for _, path := range slices.Sorted(maps.Keys(s.doc.Paths)) {
		for _, method := range []string{"get", "post", "put", "delete"} {
			op, ok := s.doc.Paths[path][method]
			if !ok {
				continue
			}
			for code, r := range op.Responses {
				for _, m := range r.Content {
					if m.Example != nil {
						s.doc.fits(t, op.OperationID+" "+code, m.Schema.Ref, m.Example)
					}
				}
			}
			s.put(t, "user:alice")
			target, query := path, url.Values{}
			for _, p := range op.Parameters {
				switch {
				case p.In == "path":
					target = strings.ReplaceAll(target, "{"+p.Name+"}", url.PathEscape(fmt.Sprint(p.Example)))
				case p.Example != nil:
					query.Set(p.Name, fmt.Sprint(p.Example))
				}
			}
			bodies := map[string]struct{ Value json.RawMessage }{"": {}}
			if op.RequestBody != nil {
				bodies = op.RequestBody.Content["application/json"].Examples
			}
			for _, b := range bodies {
				if a := s.do(t, strings.ToUpper(method), target+"?"+query.Encode(), string(b.Value)); a.code >= 300 {
					t.Errorf("%s: the example %s is answered with %d %s", op.OperationID, b.Value, a.code, a.body)
				}
				if b.Value != nil {
					s.doc.fits(t, op.OperationID, op.RequestBody.Content["application/json"].Schema.Ref, b.Value)
				}
				sent++
			}
		}
	}
	if sent != 8 {
		t.Errorf("%d requests were sent, want 8", sent)
	}
}

// TestBoundsOfTheDocument are those of the code.
func TestBoundsOfTheDocument(t *testing.T) {
	s := readDocument(t).Components.Schemas
	for _, c := range []struct{ got, want int64 }{
		{int64(s["Key"].MaxLength), maxKey}, {int64(s["Key"].MaxBytes), maxKey},
		{int64(s["KeyPart"].MaxLength), policies.MaxKey},
		{int64(s["Policy"].Properties["policyKey"].MaxLength), policies.MaxKey},
		{int64(s["Policy"].Properties["changedBy"].MaxLength), policies.MaxChangedBy},
		{int64(s["PolicyList"].Properties["policies"].MaxItems), maxPage},
		{s["NewPolicy"].Properties["capacity"].Maximum, limit.MaxUnits},
		{s["NewPolicy"].Properties["windowSeconds"].Maximum, int64(limit.MaxWindow.Seconds())},
	} {
		if c.got != c.want {
			t.Errorf("the document has %d, want %d", c.got, c.want)
		}
	}
	types := slices.Sorted(slices.Values(policies.Types()))
	if got := s["NewPolicy"].Properties["type"].Enum; !slices.Equal(got, types) {
		t.Errorf("the document has the types %v, want %v", got, types)
	}
}
