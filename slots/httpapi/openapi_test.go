package httpapi

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/headgate-rls/headgate/slots"
	"github.com/headgate-rls/headgate/slots/plan"
	"github.com/headgate-rls/headgate/test/webtest"
)

// TestDocumentHasAllRoutes, and no others, with the parameters that they know.
func TestDocumentHasAllRoutes(t *testing.T) {
	d := webtest.ReadDocument(t, openAPI)
	for path, item := range d.Paths {
		for method, op := range item {
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
	if documented := d.Routes(t); !maps.Equal(routes, documented) {
		t.Errorf("the routes are\n%v\nand the documented ones\n%v", routes, documented)
	}
	if served := withDefault(t).do(t, "GET", "/api/v1/openapi.json", "").Is(t, 200); served.Body != string(openAPI) {
		t.Error("the document that is served is another")
	}
}

// TestExamplesFitTheDocument sends every example of a request and checks the answer against
// the document, and every example of an answer against its schema.
func TestExamplesFitTheDocument(t *testing.T) {
	d := webtest.ReadDocument(t, openAPI)
	d.ExamplesFit(t)
	s := withDefault(t)
	s.do(t, "POST", "/api/v1/slots", `{"eventId":"pay-123","requestedTime":"2025-06-01T12:00:00Z"}`).Is(t, 200)
	sent := 0
	for _, path := range slices.Sorted(maps.Keys(d.Paths)) {
		for method, op := range d.Paths[path] {
			for _, body := range op.Bodies() {
				a := s.admin(t, strings.ToUpper(method), op.Target(path), string(body))
				if a.Code != 200 && a.Code != 204 {
					t.Errorf("%s: the example %s is answered with %d %s", op.OperationID, body, a.Code, a.Body)
				}
				d.AnswerFits(t, op, a)
				sent++
			}
		}
	}
	if sent < len(d.Paths) {
		t.Errorf("only %d requests were sent", sent)
	}
}

// TestFailuresAreDocumented: every operation that asks the Scheduler documents
// what becomes of its failures.
func TestFailuresAreDocumented(t *testing.T) {
	d := webtest.ReadDocument(t, openAPI)
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
	s := webtest.ReadDocument(t, openAPI).Components.Schemas
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
