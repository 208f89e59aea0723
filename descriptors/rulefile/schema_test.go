package rulefile

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// TestSchemaAcceptsWhatLoads: resources put together at random.
func TestSchemaAcceptsWhatLoads(t *testing.T) {
	schema := compiledSchema(t)
	heads := []string{"domain: d", "plugin: rest", "plugin: soap", "domain: d\nplugin: rest\nwsdlFile: a",
		"domain: d\nhashLength: 3"}
	fields := []string{
		"method: GET", "method: '*'", "method:", "path: /a", "path: '*'", "path: ''", "path:", "path: '/{a}/*'", "path: '/*'",
		"path: '~a b'",
		"operation: pay", "operation:", "operation: '*'", "soapAction: 'urn:a'", "binding: b", "binding:",
		"match: {}", "match:", "match: {headers: {a: 1, b: true}}", "match: {query: }", "requestHeaders: {a: {value: x}}",
		"queryParams: {a: {operator: Exists}}", "queryParams: {'a b': ''}", "formParams:",
		"match: {formParams: , requestBody: }", "requestBody:",
		"allOf: []", "anyOf:", "allOf: [{expression: '${context.request.queryParams.a b}', value: 1}]", "pathParams: {a: b}",
		"concurrency: [{threshold: 1, response: {statusCode: 429, content: , headers: }}]",
		"concurrency: [{threshold: 0x10, name: , response: {delay: 1m}}]",
		"concurrency: [{threshold: 1, response: {delay: 1.5s, statusCode: 500}}]",
		"concurrency: [{threshold: 1, response: {delay: {exact: 0}}}]",
		"lease_ttl: 1m", "reject_hold: 0s", "reject_hold: 1s", "release: hits", "release: lease",
		"rate_limit: {unit: second, requests_per_unit: 1}", "rate_limit: {unlimited: true}",
		"limits: [{algorithm: fixed_window, rate: 1/s, counter: entries}]",
		"limits: [{algorithm: fixed_window, rate: 1/s, counter: value}]", "shadow_mode: true", "quota_mode: false",
		"metadata: {}", "metadata:",
		"on_backend_error: deny", "charge: each", "overflow: saturate", "overflow: debt", "max_debt: 7",
		"response: {content: a}", "response: {statusCode: 200}", "response:",
		"by: remote_address", "by: [header.a, jwt.sub, query.q]", "by: []", "by: [other]", "max_keys: 7",
		"except: {network: 10.0.0.0/8}", "except: {network: ['::1', 10.0.0.1]}", "except: {}", "except:",
	}
	r := rand.New(rand.NewPCG(3, 5))
	accepted := 0
	for range 4000 {
		chosen := map[string]string{}
		for range 1 + r.IntN(4) {
			f := fields[r.IntN(len(fields))]
			name, _, _ := strings.Cut(f, ":")
			chosen[name] = f
		}
		text := heads[r.IntN(len(heads))] + "\nresources:\n- " + strings.Join(slices.Sorted(maps.Values(chosen)),
			"\n  ") + "\n"
		if set, _ := Load([]Source{{Name: "f", Data: []byte(text)}}, Options{}); set == nil {
			continue
		}
		accepted++
		var v any
		if err := yaml.Unmarshal([]byte(text), &v); err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(v); err != nil {
			t.Fatalf("%s%v", text, err)
		}
	}
	if accepted < 400 {
		t.Error("only", accepted, "of the files load")
	}
}
