package httpapi

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/headgate-rls/headgate/test/webtest"
)

const schemas = "#/components/schemas/"

// expectError checks an answer with an error, whose message has the text.
func expectError(t *testing.T, a webtest.Answer, status int, text string) {
	t.Helper()
	checkDocumented(t, a.Is(t, status).Says(t, text))
}

// checkDocumented compares an answer with the document's schema of its kind.
func checkDocumented(t *testing.T, a webtest.Answer) {
	t.Helper()
	d := webtest.ReadDocument(t, document)
	schema := "Error"
	switch {
	case a.Code == 200 && strings.Contains(a.Body, `"status"`):
		schema = "Queued"
	case a.Code == 200:
		schema = "Saved"
	}
	d.Fits(t, "an answer", schemas+schema, []byte(a.Body))
	for _, item := range d.Paths {
		for _, op := range item {
			if _, ok := op.Responses[fmt.Sprint(a.Code)]; ok {
				return
			}
		}
	}
	t.Errorf("the status %d is not documented", a.Code)
}

// TestDocumentHasAllRoutes, and no others.
func TestDocumentHasAllRoutes(t *testing.T) {
	routes := map[string]string{}
	for _, r := range new(handlers).routes() {
		routes[r.method+" "+r.path] = "[]"
	}
	if documented := webtest.ReadDocument(t, document).Routes(t); !maps.Equal(documented, routes) {
		t.Errorf("the routes are %v and the documented ones %v", routes, documented)
	}
	f := start(t, nil)
	if a := f.do(t, "GET", "/openapi.json", nil); a.Body != string(document) ||
		a.Header.Get("Content-Type") != "application/json" {
		t.Errorf("the document that is served is another: %+v", a)
	}
}

// TestSchemasOfRequests: what the handlers accept and refuse, the schemas do, too, but for the
// fields' other names, which the document only mentions.
func TestSchemasOfRequests(t *testing.T) {
	f, d := start(t, nil), webtest.ReadDocument(t, document)
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
		if err := d.Validate(t, schemas+c.schema, []byte(c.body)); (err == nil) != (a.Code == 200) {
			t.Errorf("%s is answered with %d %s, but the document says: %v", c.body, a.Code, a.Body, err)
		}
	}
}
