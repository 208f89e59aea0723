package httpapi

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/test/webtest"
)

// TestDocumentHasAllRoutes, and no others, with the parameters that they know.
func TestDocumentHasAllRoutes(t *testing.T) {
	doc := webtest.ReadDocument(t, openAPI)
	for path, item := range doc.Paths {
		for method, op := range item {
			if len(op.Security) == 0 {
				t.Errorf("%s %s needs no token", method, path)
			}
		}
	}
	routes := map[string]string{"GET /admin/openapi.json": "[]"}
	for _, r := range new(Handlers).routes() {
		routes[r.Method+" "+r.Path] = fmt.Sprint(r.Query)
	}
	if documented := doc.Routes(t); !maps.Equal(routes, documented) {
		t.Errorf("the routes are\n%v\nand the documented ones\n%v", routes, documented)
	}
}

// TestExamplesFitTheirSchemas, and every example of a request succeeds.
func TestExamplesFitTheirSchemas(t *testing.T) {
	s := newServer(t, "memory://")
	s.doc.ExamplesFit(t)
	for _, path := range slices.Sorted(maps.Keys(s.doc.Paths)) {
		for method, op := range s.doc.Paths[path] {
			s.take(t, "shop|user=alice", 1)
			target := strings.ReplaceAll(op.Target(path), "example%7Cclient", "shop%7Cuser") // as the rules of the tests
			if a := s.do(t, strings.ToUpper(method), target, ""); a.Code >= 300 {
				t.Errorf("%s: %s is answered with %d %s", op.OperationID, target, a.Code, a.Body)
			}
		}
	}
}

// TestBoundsOfTheDocument are those of the code.
func TestBoundsOfTheDocument(t *testing.T) {
	s := webtest.ReadDocument(t, openAPI).Components.Schemas
	if key := s["CounterKey"]; key.MaxLength != maxKey || key.MaxBytes != maxKey {
		t.Errorf("the document has keys of %d characters and %d bytes, want %d", key.MaxLength, key.MaxBytes, maxKey)
	}
	var names []any
	for _, a := range limit.AllAlgorithms() {
		names = append(names, algorithmName(a))
	}
	for _, name := range s["Algorithm"].Enum {
		if !slices.Contains(names, name) {
			t.Errorf("the document has the algorithm %v, which there is not", name)
		}
	}
	if len(s["Algorithm"].Enum) != len(names) {
		t.Errorf("the document has %v, want %v", s["Algorithm"].Enum, names)
	}
}
