package httpapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// schemaOf returns a schema of the document.
func schemaOf(t *testing.T, name string) *jsonschema.Schema {
	t.Helper()
	whole, err := jsonschema.UnmarshalJSON(bytes.NewReader(document))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.AssertFormat()
	if err := c.AddResource("openapi.json", whole); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("openapi.json#/components/schemas/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func valid(t *testing.T, schema, body string) error {
	t.Helper()
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(body))
	if err != nil {
		return err
	}
	return schemaOf(t, schema).Validate(v)
}

// checkDocumented holds an answer to the document's schema of its kind.
func checkDocumented(t *testing.T, a answer) {
	t.Helper()
	schema := "Error"
	switch {
	case a.status == 200 && strings.Contains(a.body, `"status"`):
		schema = "Queued"
	case a.status == 200:
		schema = "Saved"
	}
	if err := valid(t, schema, a.body); err != nil {
		t.Errorf("%s is not as documented: %v", a.body, err)
	}
	documented := map[string]bool{}
	for _, item := range parsed(t).Paths {
		for _, op := range item {
			for status := range op.Responses {
				documented[status] = true
			}
		}
	}
	if !documented[fmt.Sprint(a.status)] {
		t.Errorf("the status %d is not documented", a.status)
	}
}

type openAPIDocument struct {
	Paths map[string]map[string]struct{ Responses map[string]any }
}

func parsed(t *testing.T) (d openAPIDocument) {
	t.Helper()
	if err := json.Unmarshal(document, &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// TestDocumentHasAllRoutes, and no others.
func TestDocumentHasAllRoutes(t *testing.T) {
	documented, routes := map[string]bool{}, map[string]bool{}
	for path, item := range parsed(t).Paths {
		for method := range item {
			documented[strings.ToUpper(method)+" "+path] = true
		}
	}
	for _, r := range new(handlers).routes() {
		routes[r.method+" "+r.path] = true
	}
	if !maps.Equal(documented, routes) {
		t.Errorf("the routes are %v and the documented ones %v", routes, documented)
	}
	f := start(t, nil)
	if a := f.do(t, "GET", "/openapi.json", nil); a.body != string(document) || a.header.Get("Content-Type") != "application/json" {
		t.Errorf("the document that is served is another: %+v", a)
	}
}

// TestSchemasOfRequests: what the handlers accept and refuse, the schemas do, too, but for the
// fields' other names, which the document only mentions.
func TestSchemasOfRequests(t *testing.T) {
	f := start(t, nil)
	for _, c := range []struct{ path, schema, body string }{
		{configPath, "Config", goodConfig},
		{configPath, "Config", `{"userId":"u","rateLimit":0}`},
		{configPath, "Config", `{"userId":"","rateLimit":0,"timeWindow":1}`},
		{configPath, "Config", `{"userId":"a\u0085","rateLimit":0,"timeWindow":1}`},
		{configPath, "Config", `{"userId":"u","rateLimit":-1,"timeWindow":1}`},
		{configPath, "Config", `{"userId":"u","rateLimit":2147483647,"timeWindow":5256000}`},
		{configPath, "Config", `{"userId":"u","rateLimit":2147483648,"timeWindow":5256000}`},
		{configPath, "Config", `{"userId":"u","rateLimit":1,"timeWindow":0}`},
		{configPath, "Config", `{"userId":"u","rateLimit":1,"timeWindow":5256001}`},
		{configPath, "Config", `{"userId":"u","rateLimit":1,"timeWindow":1,"more":1}`},
		{sendPath, "Message", goodSend},
		{sendPath, "Message", `{"userId":"u","message":"x\n"}`},
		{sendPath, "Message", `{"userId":"u","message":""}`},
		{sendPath, "Message", `{"userId":"u","message":"a\u0000"}`},
		{sendPath, "Message", `{"userId":"u"}`},
	} {
		a := f.do(t, "POST", c.path, strings.NewReader(c.body))
		if err := valid(t, c.schema, c.body); (err == nil) != (a.status == 200) {
			t.Errorf("%s is answered with %d %s, but the document says: %v", c.body, a.status, a.body, err)
		}
	}
}
