package descriptors_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/descriptors/rulefile"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/test/random"
)

func read(t testing.TB, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// asks returns the descriptor for "GET /path?query name=value name=value".
func asks(request string) []descriptors.Entry {
	f := strings.Fields(request)
	es := []descriptors.Entry{{"method", f[0]}, {"path", f[1]}}
	return append(es, entries(strings.Join(f[2:], " "))...)
}

// resourceFor returns the key of the resource for a request, "-" for none.
func resourceFor(s *descriptors.Set, request string) string {
	var m descriptors.Match
	s.Match("d", asks(request), &m)
	if m.Rule == nil {
		return "-"
	}
	return m.Rule.Resource
}

// resources writes a file: lines of what stands between the braces.
func resources(spec string) string {
	var b strings.Builder
	b.WriteString("domain: d\nresources:\n")
	for line := range strings.Lines(spec) {
		if line = strings.TrimSpace(line); line != "" {
			fmt.Fprintf(&b, "  - {%s, concurrency: [{threshold: 5, response: {statusCode: 429}}]}\n", line)
		}
	}
	return b.String()
}

type request struct{ request, want string }

func checkRequests(t *testing.T, rules string, requests []request) {
	t.Helper()
	s := mustLoad(t, rules)
	for _, r := range requests {
		if got := resourceFor(s, r.request); got != r.want {
			t.Errorf("%s: got %s, want %s", r.request, got, r.want)
		}
	}
}

// TestPrecedenceGoesFromExactToAny: exact > template > prefix > regex > *.
func TestPrecedenceGoesFromExactToAny(t *testing.T) {
	checkRequests(t, resources(`
		path: '*'
		path: '~^/api/users/.*'
		path: '~^/api/'
		path: '~[0-9]'
		path: '/api/*'
		path: '/api/{kind}/*'
		path: '/api/users/*'
		path: '/{a}/{b}/{c}'
		path: '/api/{kind}/{id}'
		path: '/api/users/{id}'
		path: '/api/{kind}/me'
		path: '/api/users/me'
		method: GET, path: '/api/users/{id}/orders'
		path: '/'
	`), []request{
		{"GET /api/users/me", "*:/api/users/me"},
		{"GET /api/users/7", "*:/api/users/{id}"},
		{"GET /api/shops/me", "*:/api/{kind}/me"},
		{"GET /api/shops/7", "*:/api/{kind}/{id}"},
		{"GET /a/b/c", "*:/{a}/{b}/{c}"},
		{"GET /api/users/7/orders", "GET:/api/users/{id}/orders"},
		{"POST /api/users/7/orders", "*:/api/users/*"},
		{"GET /api/shops/7/orders", "*:/api/{kind}/*"},
		{"GET /api/users", "*:/api/users/*"},
		{"GET /api", "*:/api/*"},
		{"GET /apis", "*:*"},
		{"GET /v1", "*:~[0-9]"},
		{"GET /", "*:/"},
		{"OPTIONS *", "*:*"},
		{"CONNECT host:443", "*:~[0-9]"},
	})
	checkRequests(t, resources("path: '/*'\npath: '/a/*'"), []request{
		{"GET /", "*:/*"}, {"GET /b", "*:/*"}, {"GET /a", "*:/a/*"}, {"OPTIONS *", "-"},
	})
	checkRequests(t, resources("path: '~^/v[0-9]+/'\npath: '~^/v1'\npath: '~(?i)/V'"), []request{
		{"GET /v1/", "*:~^/v1"}, {"GET /v1/x", "*:~^/v1"}, {"GET /v2/x", "*:~^/v[0-9]+/"}, {"GET /v2", "*:~(?i)/V"},
	})
}

// TestMoreSpecificResourceWins: what decides between resources with the same path.
func TestMoreSpecificResourceWins(t *testing.T) {
	s := mustLoad(t, resources(`
		path: /a
		method: GET, path: /a
		path: /a, queryParams: {x: '1'}
		method: GET, path: /a, queryParams: {y: '1'}
		path: /a, queryParams: {x: '1', y: '1'}
		path: /b, queryParams: {x: '1'}
		path: /b, queryParams: {y: '1'}
	`))
	number := func(request string) int {
		var m descriptors.Match
		s.Match("d", asks(request), &m)
		return m.Rule.ID + 1
	}
	for request, want := range map[string]int{
		"POST /a": 1, "GET /a": 2, "get /a": 2, "GET /a?x=1": 3, "GET /a?y=1": 4, "POST /a?y=1": 1, "GET /a?y=1&x=1": 5,
		"GET /b?x=1&y=1": 6, "GET /b?y=1&x=2": 7,
	} {
		if got := number(request); got != want {
			t.Errorf("%s: got %d, want %d", request, got, want)
		}
	}
}

// TestSpellingOfAPathEvadesNoRule: how a client writes a path does not lead around a rule.
func TestSpellingOfAPathEvadesNoRule(t *testing.T) {
	checkRequests(t, "paths: as_sent\n"+resources(`
		path: /api/users
		path: '/api/users/{id}', pathParams: {id: {value: a/b, operator: EqualTo}}
		path: '/files/{name}'
		path: /secret/*
		path: /a b%25
		path: '~^/raw/a%2Fb$'
		path: '~^/search/.+/(?-s:.+)$'
		path: /q, queryParams: {q: {value: ^a.*z$, operator: Matches}}
	`), []request{
		{"GET /api/users", "*:/api/users"},
		{"GET /api/users?x=/other", "*:/api/users"},
		{"GET /api/users#x", "*:/api/users"},
		{"GET /api/users/", "*:/api/users"},
		{"GET //api///users//", "*:/api/users"},
		{"GET /api/./users", "*:/api/users"},
		{"GET /x/../api/users", "*:/api/users"},
		{"GET /../../api/users", "*:/api/users"},
		{"GET /x/y/%2e%2E/.%2e/api/users", "*:/api/users"},
		{"GET /api/%75sers", "*:/api/users"},
		{"GET /api%2Fusers", "-"},       // one segment: an escaped slash separates nothing
		{"GET /api/%2575sers", "-"},     // decoded once
		{"GET /API/users", "-"},         // case counts
		{"GET /api/users/x/..%2f", "-"}, // "..", "/" is a name
		{"GET /api/users/a%2Fb", "*:/api/users/{id}:5ecaf390"},
		{"GET /files/a%2F..%2Fb", "*:/files/{name}"},
		{"GET /files/..", "-"},
		{"GET /secret/../files/x", "*:/files/{name}"},
		{"GET /files/../secret/x", "*:/secret/*"},
		{"GET /a%20b%25", "*:/a b%25"},
		{"GET /a%20b%", "*:/a b%25"}, // a percent sign without two hex digits is text
		{"GET /raw/a%2fb", "*:~^/raw/a%2Fb$"},
		{"GET /search/a%0Ab/c", "*:~^/search/.+/(?-s:.+)$"}, // a dot is any character
		{"GET /search/%0A/c%0a", "-"},                       // unless the rule says otherwise
		{"GET /q?q=a%0Az", "*:/q:4022907f"},
		{"GET /secret/" + strings.Repeat("x", 70<<10), "*:/secret/*"},
		{"GET /files/" + strings.Repeat("x", 70<<10), "*:/files/{name}"},
		{"GET /api/users?" + strings.Repeat("x", 70<<10), "*:/api/users"},
		{"GET /api/users" + strings.Repeat("/", 4000) + "?", "*:/api/users"},
	})
}

// TestAmbiguousSpellingsCountForTheRule: what some server takes for the path of a rule counts for it, unless the
// domain says as_sent. What is not ambiguous, and what matches a more specific rule as it was sent, stays.
func TestAmbiguousSpellingsCountForTheRule(t *testing.T) {
	rules := resources(`
		path: /api/pay
		path: '/files/{name}'
		path: '/orders/{id}/refund'
		path: /*
	`) + "  - {path: /public/*}\n"
	for _, r := range []request{
		{"GET /api%2fpay", "*:/api/pay"},
		{"GET /api%2Fpay?x=1", "*:/api/pay"},
		{"GET /api%252fpay", "*:/api/pay"},
		{"GET /api%25252fpay", "*:/api/pay"},
		{"GET /api/%2570ay", "*:/api/pay"},
		{"GET /api/pay;x=1", "*:/api/pay"},
		{"GET /api;a=b/pay;x", "*:/api/pay"},
		{"GET /api/pay%3bx=1", "*:/api/pay"},
		{"GET /x/..;/api/pay", "*:/api/pay"},
		{"GET /api/pay;x=%2F..%2Fz", "*:/api/pay"}, // Tomcat cuts parameters first
		{"GET /api;%2f..%2f../pay", "*:/api/pay"},
		{`GET /api/pay;\..\..\z`, "*:/api/pay"},
		{"GET /api/pay;%00/", "*:/api/pay"},
		{"GET /api%2Fpay;x=%2F..%2Fz", "*:/api/pay"},
		{"GET /api/pay%3Bx=%252F..%252Fz", "*:/api/pay"}, // behind a proxy that has decoded
		{"GET /x;%2F..%2Fapi/pay", "*:/api/pay"},         // decodes first
		{`GET /api\pay`, "*:/api/pay"},
		{"GET /api%5Cpay", "*:/api/pay"},
		{"GET /api/pay%00", "*:/api/pay"},
		{"GET /api/pay%00.html", "*:/api/pay"},
		{"GET /api/p%00ay", "*:/api/pay"},
		{"GET /api%c0%afpay", "*:/api/pay"},
		{"GET /api\xc0\xafpay", "*:/api/pay"},
		{"GET /x/%c0%ae%C0%AE/api/pay", "*:/api/pay"},
		{"GET /api%e0%80%afpay", "*:/api/pay"},
		{"GET /api%f0%80%80%afpay", "*:/api/pay"},
		{"GET /api/p%c1%a1y", "*:/api/pay"},
		{"GET /api%u002fpay", "*:/api/pay"},
		{"GET /public/..%2f..%2fapi%2fpay", "*:/api/pay"},
		{"GET /orders%2F7/refund", "*:/orders/{id}/refund"},

		{"GET /files/a%2Fb", "*:/files/{name}"}, // rather than /*
		{"GET /public/a%2Fb", "*:/public/*"},    // no rule but /* would have it
		{"GET /public/a%20b", "*:/public/*"},
		{"GET /files/%e4%b8%ad", "*:/files/{name}"},
		{"GET /api/pay%zz", "*:/*"},
		{"GET /api/pay%", "*:/*"},
		{"GET /api/p%c0", "*:/*"},
		{"GET /api%e0%a0%80pay", "*:/*"},
		{"GET %", "-"},
		{"GET /%u00", "*:/*"},
	} {
		if got := resourceFor(mustLoad(t, rules), r.request); got != r.want {
			t.Errorf("%s: got %s, want %s", r.request, got, r.want)
		}
		if got := resourceFor(mustLoad(t, "paths: as_sent\n"+rules), r.request); strings.Contains(r.want, "pay") &&
			got == r.want {
			t.Errorf("as sent, %s: got %s", r.request, got)
		}
	}
}

// TestSpellingsChooseNoLooserRule: of rules that a path may be meant for, and that are as specific, the tightest
// counts.
func TestSpellingsChooseNoLooserRule(t *testing.T) {
	set := mustLoad(t, `
domain: d
resources:
  - {path: /pay, limits: [{algorithm: fixed_window, rate: 10/min}]}
  - {path: /cheap, limits: [{algorithm: fixed_window, rate: 100/s}]}
  - {path: /trial, shadow_mode: true, limits: [{algorithm: fixed_window, rate: 1/h}]}
  - path: '/orders/{id}/pay'
    limits: [{algorithm: fixed_window, rate: 10/h}, {name: b, algorithm: fixed_window, rate: 9/s}]
  - {path: '/views/{id}/{of}', limits: [{algorithm: fixed_window, rate: 9/s}]}
`)
	for request, want := range map[string]string{
		"GET /pay;%2F..%2Fcheap":                    "*:/pay", // as Tomcat reads it
		"GET /cheap;%2F..%2Fpay":                    "*:/pay", // as others do
		"GET /pay;%2F..%2Ftrial":                    "*:/pay",
		"GET /trial;%2F..%2Fpay":                    "*:/pay",
		"GET /orders/..%2F..%2Fviews%2F1/pay":       "*:/orders/{id}/pay",
		"GET /views/x/..%2F..%2Forders%2F1%2Fpay":   "*:/orders/{id}/pay",
		"GET /orders/..%2F..%2Fviews%2F1%2Fpay/pay": "*:/orders/{id}/pay",
	} {
		if got := resourceFor(set, request); got != want {
			t.Errorf("%s: got %s, want %s", request, got, want)
		}
	}
}

func TestCriteriaMatchAsWritten(t *testing.T) {
	for _, tc := range []struct {
		criteria string
		yes, no  []string
	}{
		{"requestHeaders: {X-A: b}", []string{"header.x-a=b"},
			[]string{"", "header.x-a=", "header.x-a=B", "header.X-A=b", "x-a=b"}},
		{"requestHeaders: {X-A: {value: b, operator: NotEqualTo}}", []string{"", "header.x-a=c", "header.x-a="},
			[]string{"header.x-a=b"}},
		{"requestHeaders: {x-a: {value: b, operator: Contains}}", []string{"header.x-a=abc"}, []string{"", "header.x-a=ac"}},
		{"requestHeaders: {x-a: {value: b, operator: NotContains}}", []string{"", "header.x-a=ac"},
			[]string{"header.x-a=abc"}},
		{"requestHeaders: {x-a: {value: '^b+$', operator: Matches}}", []string{"header.x-a=bb"},
			[]string{"", "header.x-a=abb"}},
		{"requestHeaders: {x-a: {value: 'b', operator: NotMatches}}", []string{"", "header.x-a=ac"},
			[]string{"header.x-a=abc"}},
		{"requestHeaders: {x-a: {operator: Exists}}", []string{"header.x-a=b", "header.x-a="}, []string{"", "header.x-b="}},
		{"requestHeaders: {x-a: {operator: NotExists}}", []string{"", "header.x-b="},
			[]string{"header.x-a=b", "header.x-a="}},
		{"match: {headers: {x-a: b, x-b: c}}", []string{"header.x-b=c header.x-a=b other=x"},
			[]string{"header.x-a=b", "header.x-b=c"}},
		{"match: {headers: {x-a: b}}", []string{"header.x-a=b header.x-a=c"}, []string{"header.x-a=c header.x-a=b"}},
		{"binding: Port", []string{"soap_binding=Port"}, []string{"", "soap_binding=Port2"}},
		{"soapAction: 'urn:a'", []string{"soap_action=urn:a", `soap_action="urn:a"`},
			[]string{"", "soap_action=a", "soap_action=urn:A"}},
		{"allOf: [{expression: '${context.request.headers.X-A}', value: b}, {expression: '${context.request.headers.x-b}'," +
			" value: c}]",
			[]string{"header.x-a=b header.x-b=c"}, []string{"header.x-a=b", "header.x-b=c", ""}},
		{"anyOf: [{expression: '${context.request.headers.X-A}', value: b}, {expression: '${context.request.headers.x-b}'," +
			" value: c}]",
			[]string{"header.x-a=b", "header.x-b=c", "header.x-a=b header.x-b=c"}, []string{"", "header.x-a=c"}},
		{"requestHeaders: {x-c: d}, anyOf: [{expression: '${context.request.headers.X-A}', operator: Exists}]",
			[]string{"header.x-a=b header.x-c=d"}, []string{"header.x-a=b", "header.x-c=d"}},
	} {
		s := mustLoad(t, resources("path: /x, "+tc.criteria))
		for _, y := range tc.yes {
			if resourceFor(s, "GET /x "+y) == "-" {
				t.Errorf("%s: %q does not match", tc.criteria, y)
			}
		}
		for _, n := range tc.no {
			if resourceFor(s, "GET /x "+n) != "-" {
				t.Errorf("%s: %q matches", tc.criteria, n)
			}
		}
	}
}

func TestQueryAndPathParams(t *testing.T) {
	many := ""
	for i := range 3 * descriptors.FewParams {
		many += fmt.Sprintf("&p%d=%d", i, i)
	}
	for _, tc := range []struct {
		resource string
		yes, no  []string
	}{
		{"path: /x, match: {query: {page: '1'}}",
			[]string{"/x?page=1", "/x?a=b&page=1", "/x?page=1&page=2", "/x?p%61ge=%31", "/x?page=1#page=2", "/x?;page=2&page=1",
				"/x?page=%zz&page=1",
				"/x?page=1" + many, "/x?" + many + "&page=1", "/x?" + many + "&page=1&page=2"},
			[]string{"/x", "/x?", "/x?page", "/x?page=", "/x?page=2&page=1", "/x?Page=1", "/x#?page=1", "/x?page=1;",
				"/x?" + many,
				"/x?" + many + "&page=2&page=1"}},
		{"path: /x, queryParams: {'a b': 'c d'}", []string{"/x?a+b=c%20d", "/x?a%20b=c+d"}, []string{"/x?a+b=c"}},
		{"path: /x, queryParams: {page: {operator: Exists}}", []string{"/x?page", "/x?page=", "/x?&&page=1"},
			[]string{"/x?pages"}},
		{"path: '/u/{id}/{part}', pathParams: {id: {value: '^[0-9]+$', operator: Matches}, part: a b}",
			[]string{"/u/7/a%20b", "/u/7/a%20b/"}, []string{"/u/x/a%20b", "/u/7/a+b", "/u/7"}},
		{"path: '/u/{id}/*', match: {pathParams: {id: '7'}}", []string{"/u/7", "/u/7/a/b"}, []string{"/u/8/a", "/u"}},
		{"path: '/u/{id}', allOf: [{expression: '${context.request.pathParams.id}', value: '7', operator: NotEqualTo}, " +
			"{expression: '${context.request.queryParams.q}', value: '1'}]",
			[]string{"/u/8?q=1"}, []string{"/u/7?q=1", "/u/8"}},
	} {
		s := mustLoad(t, resources(tc.resource))
		for _, y := range tc.yes {
			if resourceFor(s, "GET "+y) == "-" {
				t.Errorf("%s: %.60s does not match", tc.resource, y)
			}
		}
		for _, n := range tc.no {
			if resourceFor(s, "GET "+n) != "-" {
				t.Errorf("%s: %.60s matches", tc.resource, n)
			}
		}
	}
}

// TestSOAP: SOAP actions select resources.
func TestSOAP(t *testing.T) {
	checkRequests(t, resources(`
		operation: getUserDetails
		operation: getUserDetails, soapAction: 'urn:v2:getUserDetails'
		soapAction: 'urn:odd/'
		method: post, operation: pay, binding: PayPort
		path: /ws
		path: '*'
	`), []request{
		{`POST /ws soap_action="urn:v1:getUserDetails"`, "POST:getUserDetails"},
		{`POST /ws soap_action="http://example.com/users/getUserDetails"`, "POST:getUserDetails"},
		{`POST /ws soap_action=http://example.com/users#getUserDetails`, "POST:getUserDetails"},
		{`POST /ws soap_action=getUserDetails`, "POST:getUserDetails"},
		{`POST /anywhere header.x=y soap_action=getUserDetails`, "POST:getUserDetails"},
		{`POST /ws soap_action="urn:v2:getUserDetails"`, "POST:getUserDetails:1dc772af"},
		{`POST /ws soap_action=urn:odd/`, "POST:*:2c415da0"},
		{`POST /ws soap_action=urn:pay soap_binding=PayPort`, "POST:pay:b6d0d505"},
		{`POST /ws soap_action=urn:pay`, "*:/ws"},
		{`POST /ws soap_action=`, "*:/ws"},
		{`GET /ws soap_action=getUserDetails`, "*:/ws"},
		{`POST /else`, "*:*"},
	})
	checkRequests(t, "domain: d\nplugin: soap\nresources: [{}, {operation: a}]\n", []request{
		{"POST /ws soap_action=b", "POST:*"}, {"POST /ws soap_action=x:a", "POST:a"}, {"POST /ws", "-"},
	})
}

// TestResourceCounters: all requests to a resource share a counter,
// which no descriptor can reach.
func TestResourceCounters(t *testing.T) {
	s := mustLoad(t,
		resources("method: GET, path: '/api/users/{id}'\nmethod: GET, path: '/api/users/{id}', queryParams: {a: b}")+
			"descriptors:\n  - {key: resource, rate_limit: {unit: second, requests_per_unit: 1}}\n"+
			"  - {key: 'counter:GET:/api/users/{id}', rate_limit: {unit: second, requests_per_unit: 1}}\n")
	groups := map[string]string{}
	for request, want := range map[string]string{
		"GET /api/users/1": "a", "GET /api/users/2?x=y": "a", "GET /api/users/1?a=b": "b",
	} {
		var m descriptors.Match
		s.Match("d", asks(request), &m)
		if other, ok := groups[want]; ok && other != m.Group {
			t.Errorf("%s: %s and %s", request, m.Group, other)
		}
		groups[want] = m.Group
	}
	if groups["a"] != "1:d27:counter:GET:/api/users/{id}" || groups["a"] == groups["b"] {
		t.Error(groups)
	}
	for _, e := range []descriptors.Entry{{"resource", "GET:/api/users/{id}"}, {"counter:GET:/api/users/{id}", ""}} {
		var m descriptors.Match
		s.Match("d", []descriptors.Entry{e}, &m)
		if m.Rule == nil || m.Group == groups["a"] {
			t.Error(m)
		}
	}
	if g := descriptors.ResourceGroup("d", strings.Repeat("x", 500)); len(g) > limit.MaxGroupLen {
		t.Error(len(g))
	}
}

// TestResourceOrDescriptor: a descriptor that starts with method and path is matched
// against resources, and any other against descriptors.
func TestResourceOrDescriptor(t *testing.T) {
	s := mustLoad(t, resources("path: /a")+"descriptors:\n  - {key: path, rate_limit: {unit: second, "+
		"requests_per_unit: 1}}\n"+
		"  - {key: method, rate_limit: {unit: second, requests_per_unit: 2}}\n")
	for descriptor, want := range map[string]string{
		"method=GET path=/a": "*:/a", "method=GET path=/b": "-", "path=/a": "path", "method=GET": "method",
		"path=/a method=GET": "-", "": "-",
	} {
		var m descriptors.Match
		s.Match("d", entries(descriptor), &m)
		got := "-"
		if m.Rule != nil {
			got = m.Rule.Path
		}
		if got != want || !m.Domain {
			t.Errorf("%s: got %s, want %s", descriptor, got, want)
		}
	}
	// Without resources, these entries are like any other.
	s = mustLoad(t, "domain: d\ndescriptors: [{key: method, descriptors: [{key: path, rate_limit: {unit: second, "+
		"requests_per_unit: 1}}]}]\n")
	if got := found(s, "d", "method=GET path=/a"); got != "method.path 1/1s" {
		t.Error(got)
	}
}

// TestResourceRules: what a resource has besides tiers, and an exemption.
func TestResourceRules(t *testing.T) {
	s := mustLoad(t, read(t, "rulefile/testdata/good/resources.yaml"))
	rules := s.Rules()
	var keys []string
	for i, r := range rules {
		if r.ID != i || r.Domain != "shop" {
			t.Error(i, r)
		}
		if r.Resource != "" {
			keys = append(keys, r.Resource)
		}
	}
	if len(keys) != 9 || !strings.HasPrefix(keys[0], "GET:/api/users/{id}:") ||
		len(keys[0]) != len("GET:/api/users/{id}:")+12 || keys[1] != "GET:/api/users" {
		t.Error(keys)
	}
	r := rules[2]
	if !r.Shadow || r.OnBackendError != descriptors.FailDeny || r.Charge != descriptors.ChargeEach ||
		r.Response.Content != "slow down" || r.Metadata["a"] != int64(1) ||
		r.Limits[0].KeyPart != "t#0" || r.Concurrency.Tiers[0].Name != "slow" {
		t.Errorf("%+v", r)
	}
	if file, line := r.Place(); file != "rules.yaml" || line != 4 {
		t.Error(file, line)
	}
	var m descriptors.Match
	s.Match("shop", asks("PUT /health"), &m)
	if m.Rule == nil || m.Rule.Concurrency != nil || len(m.Rule.Limits) > 0 || m.Group != "" ||
		s.MetricLabel(m.Rule, asks("PUT /health")) != "*:/health" {
		t.Errorf("%+v", m.Rule)
	}
}

// TestSameMatcherSameKey: however criteria are written, the key is the same.
func TestSameMatcherSameKey(t *testing.T) {
	keys := map[string]bool{}
	for _, spec := range []string{
		"match: {headers: {X-A: b}, query: {c: d}}", "requestHeaders: {x-a: b}, queryParams: {c: d}",
		"queryParams: {c: {value: d}}, match: {headers: {x-a: {operator: EqualTo, value: b}}}",
	} {
		keys[mustLoad(t, resources("path: /a, "+spec)).Rules()[0].Resource] = true
	}
	if len(keys) != 1 {
		t.Error(keys)
	}
	want, _ := descriptors.ResourceKey("", "/a", &descriptors.Matcher{RequestHeaders: map[string]descriptors.Criterion{
		"x-a": {Value: "b"}}, QueryParams: map[string]descriptors.Criterion{"c": {Value: "d"}}}, 0)
	if !keys[want] {
		t.Error(keys, want)
	}
	set := mustLoad(t, "hashLength: 20\n"+resources("path: /a, soapAction: a"))
	if got := set.Rules()[0].Resource; len(got) != len("*:/a:")+20 {
		t.Error(got)
	}
}

// TestCriteriaOnTheBodyAreRefused, wherever and however they are written:
// a descriptor never carries what they compare.
func TestCriteriaOnTheBodyAreRefused(t *testing.T) {
	for spec, what := range map[string]string{
		"formParams: {a: b}": "formParams", "formParams: {}": "formParams",
		"requestBody: {jsonPath: $.a, value: b}":                     "requestBody",
		"requestBody: 1":                                             "requestBody",
		"match: {formParams: {a: {value: b, operator: NotEqualTo}}}": "formParams",
		"match: {requestBody: {anyOf: [{xPath: //a, value: b}]}}":    "requestBody",
		"allOf: [{expression: '${context.request.body}', value: b, operator: NotEqualTo}]": "an expression over the " +
			"request's body",
		"anyOf: [{expression: '${context.request.formParams.a}', operator: NotExists}]": "an expression over the " +
			"request's body",
	} {
		set, problems := rulefile.Load([]rulefile.Source{{Name: "f", Data: []byte(resources("path: /a, " + spec))}},
			rulefile.Options{})
		if set != nil || len(problems) != 1 ||
			!strings.HasPrefix(problems[0].Message, what+" can never be matched: Envoy asks before") {
			t.Errorf("%s: %s", spec, lines(problems))
		}
		// A file for a server that reads bodies is not refused for it: the resource is skipped.
		limit := "concurrency: [{threshold: 5, response: {statusCode: 429}}]"
		foreign := "plugin: rest\nresources:\n- {path: /a, " + spec + ", " + limit + "}\n- {path: /*, " + limit + "}\n"
		set, problems = rulefile.Load([]rulefile.Source{{Name: "f", Data: []byte(foreign)}}, rulefile.Options{})
		if set == nil || len(set.Rules()) != 1 || len(problems) != 1 || !problems[0].Warning ||
			!strings.HasPrefix(problems[0].Message, "the resource is skipped, and limits nothing: "+what+" can never be") {
			t.Errorf("in a file with plugin: rest, %s: %s", spec, lines(problems))
		}
	}
	if set, problems := rulefile.Load([]rulefile.Source{{Name: "f",
		Data: []byte(resources("path: /a, formParams: null, requestBody: null"))}}, rulefile.Options{}); set == nil {
		t.Error("criteria that ask nothing are refused:", lines(problems))
	}
}

func TestImpliedDomain(t *testing.T) {
	rest, soap := read(t, "rulefile/testdata/good/imposter_rest.yaml"),
		read(t, "rulefile/testdata/good/imposter_soap.yaml")
	load := func(opt rulefile.Options, files ...string) (*descriptors.Set, string) {
		var sources []rulefile.Source
		for i, f := range files {
			sources = append(sources, rulefile.Source{Name: fmt.Sprintf("%d.yaml", i), Data: []byte(f)})
		}
		set, problems := rulefile.Load(sources, opt)
		return set, lines(problems)
	}
	set, got := load(rulefile.Options{}, rest, soap)
	if got != "" || fmt.Sprint(set.Domains()) != "[default]" || len(set.Rules()) != 3 {
		t.Error(got)
	}
	set, got = load(rulefile.Options{}, rest, "domain: shop\n"+soap)
	if got != "" || fmt.Sprint(set.Domains()) != "[default shop]" {
		t.Error(got)
	}
	other := "domain: default\ndescriptors: [{key: a, rate_limit: {unlimited: true}}]\n"
	if set, got = load(rulefile.Options{}, other, rest); set != nil ||
		got != "1.yaml:1:1: the file names no domain, and the default \"default\" is already in 0.yaml; name another, "+
			"or allow merging domains (--merge-domains) (at default)\n" {
		t.Error(got)
	}
	if set, got = load(rulefile.Options{}, rest, other); set != nil || !strings.Contains(got, "already in 0.yaml") {
		t.Error(got)
	}
	if set, got = load(rulefile.Options{MergeDomains: true}, other, rest); set == nil || got != "" ||
		len(set.Rules()) != 3 {
		t.Error(got)
	}
}

func TestResourceWarnings(t *testing.T) {
	for _, tc := range []struct{ name, rules, want string }{
		{"same requests", resources("path: '/a/{id}'\npath: '/a/{name}'"),
			"f:4:5: warning: the resource never applies: the earlier *:/a/{id} in f:3 matches the same requests (at " +
				"d/*:/a/{name})"},
		{"same path", resources("path: /a b\npath: /a%20b"),
			"f:4:5: warning: the resource never applies: the earlier *:/a b in f:3 matches the same requests (at d/*:/a%20b)"},
		{"neighbours",
			resources("path: '/a/{id}'\nmethod: GET, path: '/a/{id}'\npath: '/a/{id}/*'\npath: /a/id\npath: '~/a/{id}'"), ""},
		{"descriptors of requests", resources("path: /a") + "descriptors:\n  - key: method\n    descriptors:\n" +
			"      - {key: path, rate_limit: {unlimited: true}}\n      - {key: user, rate_limit: {unlimited: true}}\n",
			"f:7:9: warning: the rule never applies: the domain has resources, and descriptors that begin with method and " +
				"path are matched against those (at d/method/path)"},
		{"shadow without limit", "domain: d\nresources: [{path: /a, shadow_mode: true}]\n",
			"f:2:13: warning: no limit: all that matches passes and is not counted; if it should, write rate_limit: " +
				"{unlimited: true} (at d/*:/a)\n" +
				"f:2:37: warning: shadow_mode has no effect: the rule itself has no rate_limit, no limits and no concurrency " +
				"(at d/*:/a)"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			set, problems := rulefile.Load([]rulefile.Source{{Name: "f", Data: []byte(tc.rules)}}, rulefile.Options{})
			if set == nil {
				t.Error("refused")
			}
			if got := strings.TrimSpace(lines(problems)); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

// TestResourceBounds tries what would make matching slow.
func TestResourceBounds(t *testing.T) {
	write := func(n int, line string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, line+"\n", i)
		}
		return resources(b.String())
	}
	for _, tc := range []struct{ name, rules, want string }{
		{"alike", write(descriptors.MaxAlike+1, "path: /a, queryParams: {a: '%d'}"), "differ only in method and criteria"},
		{"alike templates", write(descriptors.MaxAlike+1, "path: '/a/{id}', queryParams: {a: '%d'}"),
			"differ only in method and criteria"},
		{"regexes", write(descriptors.MaxRegexes+1, "path: '~%d'"), "more than 1000 regular expressions"},
		{"headers", write(descriptors.MaxMatchedHeaders+1, "path: /a, requestHeaders: {x-%d: a}"), "57 different headers"},
		{"criteria", "domain: d\nresources: [{path: /a, queryParams: {" + strings.Repeat("a: b,", 32+1) + "}}]",
			"given twice"},
		{"expressions", resources("path: /a, allOf: [" +
			strings.Repeat("{expression: '${context.request.queryParams.a}', value: b},", 32+1) + "]"), "more than 32 entries"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			set, problems := rulefile.Load([]rulefile.Source{{Name: "f", Data: []byte(tc.rules)}}, rulefile.Options{})
			if set != nil || !strings.Contains(lines(problems), tc.want) {
				t.Errorf("%.200s", lines(problems))
			}
		})
	}
}

var percentEscape = regexp.MustCompile("%[0-9a-fA-F]{2}")

// naivePath returns the segments of a path, by net/url and one at a time.
func naivePath(path string) []string {
	var out []string
	for _, raw := range strings.Split(path, "/")[1:] {
		segment := percentEscape.ReplaceAllStringFunc(raw, func(s string) string {
			d, err := url.PathUnescape(s)
			if err != nil {
				return s
			}
			return d
		})
		switch segment {
		case "", ".":
		case "..":
			out = out[:max(0, len(out)-1)]
		default:
			out = append(out, segment)
		}
	}
	return out
}

// A naiveRule is a resource with nothing but a method and a path.
type naiveRule struct {
	method, path string
	order        int
}

// The kinds of paths, in the order in which they are tried.
const (
	naiveExact = iota
	naiveTemplate
	naivePrefix
	naiveRegex
	naiveAny
)

func (r naiveRule) rank() (int, []int) {
	switch {
	case r.path == "*":
		return naiveAny, nil
	case r.path[0] == '~':
		return naiveRegex, []int{-len(strings.TrimPrefix(r.path, "~^"))}
	}
	class := naiveExact
	if strings.Contains(r.path, "{") {
		class = naiveTemplate
	}
	if strings.HasSuffix(r.path, "/*") {
		class = naivePrefix
	}
	var literal []int // per segment: 0 literal, 1 parameter; what is longer comes first
	for _, s := range naivePath(strings.TrimSuffix(r.path, "/*")) {
		literal = append(literal, strings.Count(s[:1], "{"))
	}
	return class, append(literal, 2)
}

// matches looks at a path as it was sent and at its segments, which it leaves as they are.
func (r naiveRule) matches(method, path string, segments []string) bool {
	if r.method != "*" && r.method != method {
		return false
	}
	if r.path == "*" {
		return true
	}
	if path == "" || path[0] != '/' {
		return r.path[0] == '~' && strings.HasPrefix(path, r.path[2:])
	}
	if r.path[0] == '~' { // only ^ and letters are drawn
		escaped := make([]string, len(segments))
		for i := range segments {
			escaped[i] = escapesInPath.Replace(segments[i])
		}
		return strings.HasPrefix("/"+strings.Join(escaped, "/"), r.path[2:])
	}
	want := naivePath(strings.TrimSuffix(r.path, "/*"))
	if len(segments) < len(want) || len(segments) > len(want) && !strings.HasSuffix(r.path, "/*") {
		return false
	}
	for i := range want {
		if want[i][0] != '{' && want[i] != segments[i] {
			return false
		}
	}
	return true
}

var escapesInPath = strings.NewReplacer("/", "%2F", "%", "%25")

// naiveFind tries all rules and takes the best.
func naiveFind(rules []naiveRule, method, path string, segments []string) string {
	var found []naiveRule
	for _, r := range rules {
		if r.matches(method, path, segments) {
			found = append(found, r)
		}
	}
	if len(found) == 0 {
		return "-"
	}
	best := slices.MinFunc(found, func(a, b naiveRule) int {
		x, ranksX := a.rank()
		y, ranksY := b.rank()
		return cmp.Or(cmp.Compare(x, y), slices.Compare(ranksX, ranksY),
			cmp.Compare(strings.Count(a.method, "*"), strings.Count(b.method, "*")), cmp.Compare(a.order, b.order))
	})
	return best.method + ":" + best.path
}

// drawn has rules that were drawn, as headgate and as the naive matcher read them.
type drawn struct {
	set   *descriptors.Set
	rules []naiveRule
	text  string
}

// drawPath draws up to four segments of a path.
func drawPath(random func(n int) int, words ...string) string {
	var b strings.Builder
	for range random(5) {
		b.WriteString("/" + words[random(len(words))])
	}
	return b.String()
}

// drawRules draws rules, of which there may be none.
func drawRules(t testing.TB, random func(n int) int) drawn {
	segment := func(words ...string) string { return words[random(len(words))] }
	var d drawn
	var spec strings.Builder
	seen := map[string]bool{}
	for range 2 + random(14) {
		path := drawPath(random, "a", "b", "{x}")
		for i := 0; strings.Contains(path, "{x}"); i++ {
			path = strings.Replace(path, "{x}", fmt.Sprintf("{p%d}", i), 1)
		}
		switch random(6) {
		case 0:
			path += "/*"
		case 1:
			path = "~^" + drawPath(random, "a", "b")
		case 2:
			path = "*"
		}
		if path == "" {
			path = "/"
		}
		r := naiveRule{segment("GET", "POST", "*"), path, len(d.rules)}
		if seen[r.method+r.path] || path == "~^" {
			continue
		}
		seen[r.method+r.path] = true
		d.rules = append(d.rules, r)
		fmt.Fprintf(&spec, "method: '%s', path: '%s'\n", r.method, r.path)
	}
	if len(d.rules) > 0 {
		d.text = spec.String()
		d.set = mustLoad(t, "paths: as_sent\n"+resources(d.text))
	}
	return d
}

// compareWithNaive draws paths, and compares what they and another one match.
func (d drawn) compareWithNaive(t *testing.T, random func(n int) int, extra string) {
	if len(d.rules) == 0 {
		return
	}
	paths := []string{extra}
	for range 20 {
		paths = append(paths, []string{"", "/", ""}[random(3)]+drawPath(random, "a", "b", "%61", "%62", "c", "", ".", "..",
			"%2e", "%2E%2e", "a%2Fb", "%", "%25"))
	}
	tried := map[string]bool{}
	for _, path := range paths {
		if strings.ContainsAny(path, "?#") { // the naive matcher knows no query
			path = ""
		}
		if tried[path] {
			continue
		}
		tried[path] = true
		segments := naivePath(path) // of a long path it is most of the work
		for _, method := range []string{"GET", "POST", "PUT"} {
			var m descriptors.Match
			d.set.Match("d", []descriptors.Entry{{"method", method}, {"path", path}}, &m)
			got := "-"
			if m.Rule != nil {
				got = m.Rule.Resource
			}
			if want := naiveFind(d.rules, method, path, segments); got != want {
				t.Fatalf("%s %q: got %s, want %s in\n%s", method, path, got, want, d.text)
			}
		}
	}
}

func TestResourcesEqualNaive(t *testing.T) {
	for seed := range random.Seeds(t, 500) {
		r := rand.New(rand.NewPCG(seed, 11))
		drawRules(t, r.IntN).compareWithNaive(t, r.IntN, "")
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// FuzzResources: any text as path, query and header, and random paths, against a naive matcher, by one of a hundred
// sets of random rules. TestResourcesEqualNaive tries more sets: to read one takes longer than all else here.
func FuzzResources(f *testing.F) {
	r := random.Rand(f, 11)
	var sets [100]drawn
	for i := range sets {
		sets[i] = drawRules(f, r.IntN)
	}
	f.Add([]byte("some bytes to draw from 0123456789"), "/a/%2e%2e/b?c=d&e;f=%zz#g")
	f.Add([]byte{9, 4, 1, 2, 3, 0, 1, 2}, "//a/./b%2fc/%")
	f.Add([]byte{}, "*")
	for _, path := range hiddenPaths {
		f.Add([]byte{3, 4, 1, 2, 3, 0, 1, 2}, path)
	}
	set := mustLoad(f, "domain: d\nresources:\n  - {path: '/{a}/{b}/*', match: {pathParams: {a: {operator: Matches, "+
		"value: '^a'}}, query: {c: d, e: {operator: NotExists}}}}\n"+
		"  - {path: '~^/(a|b)', requestHeaders: {x: {operator: Contains, value: c}}}\n  - {operation: pay, soapAction: a}\n")
	f.Fuzz(func(t *testing.T, data []byte, text string) {
		i := 0
		draw := func(n int) int {
			if i++; i > len(data) {
				return 0
			}
			return int(data[i-1]) % n
		}
		sets[draw(len(sets))].compareWithNaive(t, draw, text)
		var m descriptors.Match
		set.Match("d", []descriptors.Entry{{"method", "POST"}, {"path", text}, {"header.x", text}, {"soap_action", text}}, &m)
		for _, cutParams := range []bool{false, true} {
			if normal := descriptors.NormalPath(text, cutParams); descriptors.NormalPath(normal,
				cutParams) != descriptors.NormalPath(normal, false) && !strings.Contains(strings.ToLower(text), "%3b") {
				t.Errorf("%q becomes %q, in which there still are parameters", text, normal)
			}
		}
		normal := descriptors.NormalPath(text, false)
		if strings.HasPrefix(text, "/") && !descriptors.IsNormalPath(strings.ReplaceAll(normal, "%", "")) &&
			!strings.Contains(normal, "/.") {
			t.Errorf("%q becomes %q, which is not normal", text, normal)
		}
	})
}

// TestRegexesMatchLikeRegexp: the short cut by a literal start changes nothing.
func TestRegexesMatchLikeRegexp(t *testing.T) {
	for _, pattern := range []string{
		"^/a*b", "^/(a|b)", "^(?i)/A", "(?i)^/A", "^/a{0}b", "(?m)^/b", `^\Q/a.b\E`, "^", "^/", "/a$", "^/a|/b", "^/a?b",
		"(^/a)b", `\A/ab`, "^^/ab", "^/ab+",
	} {
		s := mustLoad(t, resources("path: '~"+pattern+"'"))
		for _, path := range []string{"/", "/a", "/b", "/ab", "/abb", "/aab", "/A", "/a.b", "/axb", "/b/a", "/c/b",
			"x/b", "*"} {
			want := regexp.MustCompile(pattern).MatchString(path)
			if got := resourceFor(s, "GET "+path) != "-"; got != want {
				t.Errorf("%s on %s: got %v", pattern, path, got)
			}
		}
	}
}

// TestQueryEqualsNetURL: the first value of each parameter is net/url's.
func TestQueryEqualsNetURL(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		raw := make([]byte, r.IntN(40))
		for i := range raw {
			raw[i] = "ab=&&;+%6123"[r.IntN(12)]
		}
		values, _ := url.ParseQuery(string(raw))
		names := []string{"a", "b", "ab", "", "a b", "1"}
		get := descriptors.QueryOf(string(raw), names...)
		for _, name := range names {
			got, ok := get(name)
			if want := values.Get(name); got != want || ok != values.Has(name) {
				t.Fatalf("%q: %q is %q %v, want %q", raw, name, got, ok, want)
			}
		}
	}
}

// manyResources returns n resources of each kind, and requests for the last.
func manyResources(n int) (string, []string) {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "path: /exact/e%d\npath: '/template/t%d/{id}'\npath: '/prefix/p%d/*'\noperation: op%d\n", i, i, i, i)
	}
	last := n - 1
	return resources(b.String()), []string{
		fmt.Sprintf("GET /exact/e%d", last), fmt.Sprintf("GET /template/t%d/7", last),
		fmt.Sprintf("GET /prefix/p%d/x/y", last),
		fmt.Sprintf("POST /ws soap_action=urn:op%d", last), "GET /nothing/at/all", "GET /template/none/7",
	}
}

func TestResourceStepsDoNotGrow(t *testing.T) {
	steps := func(n int) []int {
		rules, requests := manyResources(n)
		set := mustLoad(t, rules)
		var out []int
		for _, r := range requests {
			out = append(out, set.StepsOfResources("d", asks(r)))
		}
		return out
	}
	few, many := steps(3), steps(2000)
	if !slices.Equal(few, many) {
		t.Errorf("few resources take %v steps, many %v", few, many)
	}
}

func TestResourceAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	s := mustLoad(t, resources("path: /a\npath: '/b/{id}', pathParams: {id: '7'}\npath: '/c/*', match: {headers: {x-a: "+
		"b}, query: {q: '1'}}\npath: '~^/v[0-9]'\noperation: pay"))
	for _, request := range []string{"GET /a?x=y", "GET /b/7", "GET /c/d/e?p=2&q=1 header.x-a=b", "GET /v1",
		"POST /ws soap_action=urn:pay", "GET /nothing"} {
		es := asks(request)
		var m descriptors.Match
		if got := testing.AllocsPerRun(200, func() { s.Match("d", es, &m) }); got > 0 {
			t.Errorf("%s: %v allocations", request, got)
		}
	}
}

func BenchmarkResources(b *testing.B) {
	for _, n := range []int{10, 10_000} {
		rules, requests := manyResources(n)
		set := mustLoad(b, rules)
		var ds [][]descriptors.Entry
		for _, r := range requests {
			ds = append(ds, asks(r))
		}
		b.Run(fmt.Sprintf("resources=%d", 4*n), func(b *testing.B) {
			b.ReportAllocs()
			var m descriptors.Match
			for i := 0; b.Loop(); i++ {
				set.Match("d", ds[i%len(ds)], &m)
			}
		})
	}
}

// A method is free text to HTTP, so that a misspelt one limits nothing.
func TestMisspeltMethodIsWarnedOf(t *testing.T) {
	for method, want := range map[string]string{"GTE": "did you mean GET?", "POTS": "did you mean POST?", "get": "",
		"PURGE": "", "PROPFIND": "", "LINK": "", "REPORT": "", "*": ""} {
		text := "domain: d\nresources:\n- {method: '" + method + "', path: /a, concurrency: [{threshold: 5, response: " +
			"{statusCode: 503}}]}\n"
		set, problems := rulefile.Load([]rulefile.Source{{Name: "x", Data: []byte(text)}}, rulefile.Options{})
		if set == nil || (len(problems) > 0) != (want != "") || want != "" && !strings.Contains(problems[0].String(), want) {
			t.Errorf("%s: %v, want %q", method, problems, want)
		}
	}
}
