package httpapi

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/policies"
	"github.com/headgate-rls/headgate/policies/table"
	"github.com/headgate-rls/headgate/test/webtest"
)

// TestDocumentHasAllRoutes, and no others, with the parameters that they know.
func TestDocumentHasAllRoutes(t *testing.T) {
	s := newServer(t)
	for path, item := range s.doc.Paths {
		for method, op := range item {
			if len(op.Security) == 0 {
				t.Errorf("%s %s needs no token", method, path)
			}
		}
	}
	routes := map[string]string{}
	for _, r := range new(Handlers).routes() {
		routes[r.Method+" "+r.Path] = fmt.Sprint(r.Query)
	}
	if documented := s.doc.Routes(t); !maps.Equal(routes, documented) {
		t.Errorf("the routes are\n%v\nand the documented ones\n%v", routes, documented)
	}
}

// TestExamplesFitTheirSchemas, and every example of a request succeeds.
func TestExamplesFitTheirSchemas(t *testing.T) {
	s := newServer(t)
	s.doc.ExamplesFit(t)
	sent := 0
	for _, path := range slices.Sorted(maps.Keys(s.doc.Paths)) {
		for _, method := range []string{"get", "post", "put", "delete"} {
			op, ok := s.doc.Paths[path][method]
			if !ok {
				continue
			}
			s.put(t, "user:alice")
			for _, body := range op.Bodies() {
				if a := s.do(t, strings.ToUpper(method), op.Target(path), string(body)); a.Code >= 300 {
					t.Errorf("%s: the example %s is answered with %d %s", op.OperationID, body, a.Code, a.Body)
				}
				sent++
			}
		}
	}
	if sent != 11 {
		t.Errorf("%d requests were sent, want 11", sent)
	}
}

// TestBoundsOfTheDocument are those of the code.
func TestBoundsOfTheDocument(t *testing.T) {
	s := webtest.ReadDocument(t, openAPI).Components.Schemas
	for _, c := range []struct{ got, want int64 }{
		{int64(s["Key"].MaxLength), maxKey}, {int64(s["Key"].MaxBytes), maxKey},
		{int64(s["KeyPart"].MaxLength), policies.MaxKey},
		{int64(s["Policy"].Properties["policyKey"].MaxLength), policies.MaxKey},
		{int64(s["Policy"].Properties["changedBy"].MaxLength), table.MaxChangedBy},
		{int64(s["PolicyList"].Properties["policies"].MaxItems), maxPage},
		{int64(s["Change"].Properties["policyKey"].MaxLength), policies.MaxKey},
		{int64(s["Change"].Properties["changedBy"].MaxLength), table.MaxChangedBy},
		{int64(s["History"].Properties["changes"].MaxItems), maxPage},
		{s["RuleLimit"].Maximum, limit.MaxUnits}, {s["RuleBurst"].Maximum, limit.MaxUnits},
		{s["OlderCapacity"].Maximum, limit.MaxUnits},
		{s["OlderWindowSeconds"].Maximum, int64(limit.MaxWindow.Seconds())},
	} {
		if c.got != c.want {
			t.Errorf("the document has %d, want %d", c.got, c.want)
		}
	}
	if kept := fmt.Sprintf("newest %d changes of each key are kept, as far as they are among the newest %d ",
		table.HistoryOfKey, table.HistoryOfAll); !strings.Contains(string(openAPI), kept) {
		t.Errorf("the document does not say that the %s", kept)
	}
	var types, algorithms []any
	for _, name := range slices.Sorted(slices.Values(policies.Types())) {
		types = append(types, name)
	}
	for _, a := range limit.Algorithms() {
		algorithms = append(algorithms, a.String())
	}
	for name, want := range map[string][]any{"OlderType": types, "RuleAlgorithm": algorithms} {
		if got := s[name].Enum; !slices.Equal(got, want) {
			t.Errorf("the document has %v for %s, want %v", got, name, want)
		}
	}
}
