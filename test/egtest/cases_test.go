//go:build egtest

package egtest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/test/testenv"
)

// A scenario is a case of Envoy Gateway's own end-to-end tests.
type scenario struct {
	name  string // that of the test there
	host  string // of its route
	more  []string
	rules string // of its policy
	lua   string
	// also returns more resources for a route. merge says how the policy goes together with
	// one of the Gateway.
	also  func(route string) string
	merge string
	// pause follows each request, where Envoy reports costs after the response: nobody
	// learns when the report has been counted.
	pause time.Duration
	steps []step
}

func (c *scenario) routes() []string { return append([]string{c.host}, c.more...) }

// A step is requests in a row that are answered alike.
type step struct {
	times  int
	ask    request // to the scenario's route, unless it says another one
	status int
	limit  string // X-RateLimit-Limit; empty: not looked at, "none": must not be there
}

const perHour = "3, 3;w=3600"

func header(name, value string) request { return request{header: map[string]string{name: value}} }

// four requests of which three are admitted.
func threeOf(r request) []step { return []step{{3, r, 200, perHour}, {1, r, 429, perHour}} }

func free(r request) []step { return []step{{5, r, 200, ""}} }

func all(lists ...[]step) []step {
	var steps []step
	for _, l := range lists {
		steps = append(steps, l...)
	}
	return steps
}

const threePerHour = "limit: {requests: 3, unit: Hour}"

// scenarios are the cases of test/e2e/tests/ratelimit.go in Envoy Gateway that this lab
// can express. Costs come from metadata and not from numbers, which Envoy Gateway does
// not read from files.
var scenarios = []scenario{
	{name: "RateLimitCIDRMatch", host: "cidr",
		rules: "- clientSelectors: [{sourceCIDR: {value: 0.0.0.0/0}}]\n  " + threePerHour, steps: threeOf(request{})},
	{name: "RateLimitCIDRMatch, each address", host: "cidr-distinct",
		rules: "- clientSelectors: [{sourceCIDR: {type: Distinct, value: 0.0.0.0/0}}]\n  " + threePerHour,
		steps: threeOf(request{})},
	{name: "RateLimitCIDRInvertMatchAlwaysEnforce", host: "cidr-invert",
		rules: "- clientSelectors: [{sourceCIDR: {value: 192.0.2.0/24, invert: true}}]\n  " + threePerHour,
		steps: threeOf(request{})},
	{name: "RateLimitCIDRInvertAlwaysExempt", host: "cidr-exempt",
		rules: "- clientSelectors: [{sourceCIDR: {value: 0.0.0.0/0, invert: true}}]\n  " + threePerHour,
		steps: free(request{})},
	{name: "RateLimitHeaderMatch", host: "headers",
		rules: "- clientSelectors: [{headers: [{name: x-user-id, type: Exact, value: one}, {name: x-user-id, type: Exact, " +
			"value: one}]}]\n  " + threePerHour,
		steps: all(threeOf(header("x-user-id", "one")), free(header("x-user-id", "two")), free(request{}))},
	{name: "RateLimitHeaderMatch, each value", host: "headers-distinct",
		rules: "- clientSelectors: [{headers: [{name: x-user-id, type: Distinct}]}]\n  " + threePerHour,
		steps: all(threeOf(header("x-user-id", "one")), threeOf(header("x-user-id", "two")), free(request{}))},
	{name: "RateLimitMethodMatch", host: "methods",
		rules: "- clientSelectors: [{methods: [{value: GET}, {value: PUT}]}]\n  " + threePerHour,
		steps: all([]step{{2, request{}, 200, perHour}, {1, request{method: "PUT"}, 200, perHour},
			{1, request{}, 429, perHour}}, free(request{method: "POST"}))},
	{name: "RateLimitPathMatch", host: "paths",
		rules: "- clientSelectors: [{path: {type: PathPrefix, value: /limited}}]\n  " + threePerHour,
		steps: all(threeOf(request{path: "/limited/a"}), free(request{path: "/free"}))},
	{name: "GlobalRateLimitHeaderInvertMatch", host: "headers-invert",
		rules: "- clientSelectors: [{headers: [{name: x-user-id, type: Exact, value: one, invert: true}]}]\n  " +
			threePerHour,
		steps: all(threeOf(header("x-user-id", "two")), free(header("x-user-id", "one")))},
	{name: "RateLimitHeadersDisabled", host: "no-headers",
		rules: "- clientSelectors: [{headers: [{name: x-user-id, type: Exact, value: one}]}]\n  xRateLimitHeaders: " +
			"\"Off\"\n  " + threePerHour,
		steps: []step{{3, header("x-user-id", "one"), 200, "none"}, {1, header("x-user-id", "one"), 429, "none"}}},
	{name: "RateLimitBasedJwtClaims", host: "jwt", also: authenticated,
		rules: "- clientSelectors: [{headers: [{name: x-claim-name, type: Exact, value: John Doe}]}]\n  " + threePerHour,
		steps: all(threeOf(bearer("John Doe")), free(bearer("Jane Roe")), []step{{1, request{}, 401, "none"}})},
	{name: "RateLimitMultipleListeners", host: "listeners",
		rules: "- clientSelectors: [{sourceCIDR: {value: 0.0.0.0/0}}]\n  " + threePerHour,
		steps: all(threeOf(request{}), threeOf(request{port: otherPort}))},
	{name: "RateLimitHeadersAndCIDRMatch", host: "headers-cidr",
		rules: "- clientSelectors: [{headers: [{name: x-user-id, type: Exact, value: one}, {name: x-org, type: Exact, " +
			"value: acme}], sourceCIDR: {value: 0.0.0.0/0}}]\n  " + threePerHour,
		steps: all(threeOf(request{header: map[string]string{"x-user-id": "one", "x-org": "acme"}}),
			free(header("x-user-id", "one")), free(request{}))},
	{name: "UsageRateLimit", host: "usage",
		rules: "- clientSelectors: [{headers: [{name: x-user-id, type: Exact, value: one}]}]\n  limit: {requests: 21, " +
			"unit: Hour}\n" +
			"  cost:\n    request: {from: Metadata, metadata: {namespace: io.test, key: zero}}\n    response: {from: " +
			"Metadata, metadata: {namespace: io.test, key: cost}}",
		lua: costs, pause: 300 * time.Millisecond,
		steps: []step{{3, header("x-user-id", "one"), 200, "21, 21;w=3600"},
			{2, header("x-user-id", "one"), 429, "21, 21;w=3600"},
			{2, header("x-user-id", "two"), 200, ""}}},
	{name: "RateLimitGlobalSharedCidrMatch", host: "shared-cidr", more: []string{"shared-cidr-2"},
		rules: "- clientSelectors: [{sourceCIDR: {value: 0.0.0.0/0}}]\n  shared: true\n  " + threePerHour,
		steps: []step{{2, request{}, 200, ""}, {1, request{host: "shared-cidr-2"}, 200, ""},
			{1, request{host: "shared-cidr-2"}, 429, ""}, {1, request{}, 429, ""}}},
	{name: "RateLimitGlobalSharedGatewayHeaderMatch, on two routes", host: "shared-header",
		more: []string{"shared-header-2"},
		rules: "- clientSelectors: [{headers: [{name: x-user-id, type: Exact, value: one}]}]\n  shared: true\n  " +
			threePerHour,
		steps: all([]step{{2, header("x-user-id", "one"), 200, ""},
			{1, request{host: "shared-header-2", header: map[string]string{"x-user-id": "one"}}, 200, ""},
			{1, request{host: "shared-header-2", header: map[string]string{"x-user-id": "one"}}, 429, ""}},
			free(header("x-user-id", "two")))},
	{name: "RateLimitGlobalMerge", host: "merge", more: []string{"merge-2"}, also: ofTheGateway, merge: "StrategicMerge",
		rules: "- clientSelectors: [{headers: [{name: x-user-id, type: Exact, value: one}]}]\n  shared: true\n  " +
			threePerHour,
		steps: all([]step{{2, header("x-user-id", "one"), 200, ""},
			{1, request{host: "merge-2", header: map[string]string{"x-user-id": "one"}}, 200, ""},
			{1, header("x-user-id", "one"), 429, ""},
			{2, header("x-user-id", "two"), 200, ""},
			{1, request{host: "merge-2", header: map[string]string{"x-user-id": "two"}}, 200, ""},
			{1, request{host: "merge-2", header: map[string]string{"x-user-id": "two"}}, 429, ""}}, free(request{}))},
	{name: "RateLimitGlobalShadowMode", host: "shadow",
		rules: "- clientSelectors: [{headers: [{name: x-user-id, type: Exact, value: one}]}]\n  shadowMode: true\n  " +
			threePerHour,
		steps: []step{{6, header("x-user-id", "one"), 200, perHour}}},
	{name: "RateLimitQueryParameters", host: "query",
		rules: "- clientSelectors: [{queryParams: [{name: user, type: Exact, value: a}]}]\n  " + threePerHour,
		steps: all(threeOf(request{path: "/x?user=a"}), free(request{path: "/x?user=b"}), free(request{}))},
	{name: "GlobalSharedWithCost", host: "shared-cost", more: []string{"shared-cost-2"},
		rules: "- clientSelectors: [{headers: [{name: x-user-id, type: Exact, value: one}]}]\n  shared: true\n  limit: " +
			"{requests: 21, unit: Hour}\n" +
			"  cost:\n    request: {from: Metadata, metadata: {namespace: io.test, key: ten}}",
		lua: costs,
		steps: []step{{1, header("x-user-id", "one"), 200, ""},
			{1, request{host: "shared-cost-2", header: map[string]string{"x-user-id": "one"}}, 200, ""},
			{2, header("x-user-id", "one"), 429, ""}}},
	{name: "several rules, and a limit of zero", host: "several",
		rules: "- clientSelectors: [{headers: [{name: x-user-id, type: Distinct}]}]\n  " + threePerHour + "\n" +
			"- clientSelectors: [{headers: [{name: x-banned, type: Exact, value: \"yes\"}]}]\n  limit: {requests: 0, unit: Day}",
		steps: all(threeOf(header("x-user-id", "one")), []step{{1, header("x-banned", "yes"), 429, ""}}, free(request{}))},
}

// ofTheGateway returns a policy of the whole Gateway, for the first route that asks. Routes
// whose own policy does not merge have nothing of it.
func ofTheGateway(route string) string {
	if route != "merge" {
		return ""
	}
	rules := "- clientSelectors: [{headers: [{name: x-user-id, type: Exact, value: two}]}]\n" +
		"  shared: true\n  " + threePerHour
	return strings.ReplaceAll(policy("gateway", []string{"eg"}, "", rules), "kind: HTTPRoute", "kind: Gateway")
}

// costs sets what a request and its response cost.
const costs = `function envoy_on_request(h)
  h:streamInfo():dynamicMetadata():set("io.test", "zero", 0)
  h:streamInfo():dynamicMetadata():set("io.test", "ten", 10)
end
function envoy_on_response(h)
  h:streamInfo():dynamicMetadata():set("io.test", "cost", 10)
end`

// headgate does what Envoy Gateway's own tests want of its rate limit service.
func TestEnvoyGateway(t *testing.T) {
	start(t, program, scenarios)
	play(t, scenarios)
}

// The same cases against envoyproxy/ratelimit, which shows that they are right.
func TestEnvoyGatewayWithTheReference(t *testing.T) {
	start(t, testenv.Built(t, "RATELIMIT_REFERENCE", "ratelimit-reference", "service_cmd"), scenarios)
	play(t, scenarios)
}

func play(t *testing.T, cases []scenario) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			l := &lab{t: t}
			n := 0
			for _, s := range c.steps {
				for range s.times {
					n++
					r := s.ask
					if r.host == "" {
						r.host = c.host
					}
					a := l.ask(r)
					time.Sleep(c.pause)
					limit := a.limit
					if limit == "" {
						limit = "none"
					}
					if a.status != s.status || s.limit != "" && limit != s.limit {
						t.Errorf("request %d, %s: %+v, want %d and the limit %q", n, describe(r), a, s.status, s.limit)
					}
				}
			}
		})
	}
}

func describe(r request) string {
	return fmt.Sprintf("%s %s:%d/%s %v", r.method, r.host, r.port, r.path, r.header)
}
