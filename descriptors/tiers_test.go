package descriptors_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/descriptors/rulefile"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/test/golden"
)

// tiersOf returns the concurrency of the first rule with one.
func tiersOf(t *testing.T, rules string) *descriptors.Concurrency {
	t.Helper()
	for _, r := range mustLoad(t, rules).Rules() {
		if r.Concurrency != nil {
			return r.Concurrency
		}
	}
	t.Fatal("no concurrency")
	return nil
}

// TestTiersAreInOrder, however they are written down: decisions take the last one whose threshold is passed.
func TestTiersAreInOrder(t *testing.T) {
	for thresholds, want := range map[string]string{"3 5 10": "[3 5 10]", "10 3 5": "[3 5 10]", "5 10 3": "[3 5 10]",
		"5": "[5]", "0": "[0]"} {
		var list []string
		for _, threshold := range strings.Fields(thresholds) {
			list = append(list, fmt.Sprintf("{threshold: %s, response: {statusCode: 429}}", threshold))
		}
		c := tiersOf(t, "domain: d\ndescriptors:\n  - {key: a, reject_hold: 1s, concurrency: ["+
			strings.Join(list, ",")+"]}\n")
		var got []int64
		for i := range c.Tiers {
			got = append(got, c.Tiers[i].Threshold)
		}
		if fmt.Sprint(got) != want {
			t.Errorf("%s: %v, want %s", thresholds, got, want)
		}
	}
}

// severalTiers is the source's example of several thresholds.
const severalTiers = `
plugin: rest
resources:
- path: /api/heavy-operation
  method: POST
  concurrency:
    - threshold: 2
      response:
        delay:
          exact: 1000
    - threshold: 5
      response:
        statusCode: 503
        headers:
          Retry-After: "30"
        content: "Service temporarily overloaded"
    - threshold: 10
      response:
        statusCode: 429
        content: "Rate limit exceeded"
  response:
    statusCode: 202
    content: "Operation queued"
`

func TestGoldenTiers(t *testing.T) {
	set, problems := rulefile.Load([]rulefile.Source{{Name: "f", Data: []byte(severalTiers)}}, rulefile.Options{})
	if got, want := lines(problems), "f:17:7: warning: the tier above 10 is never reached: requests are refused from 5 "+
		"on, and refused ones do not count; "+
		"reject_hold: 5s would count them for a while (at default/POST:/api/heavy-operation)\n"; got != want {
		t.Errorf("got  %swant %s", got, want)
	}
	r := set.Rules()[0]
	c := r.Concurrency
	if r.Resource != "POST:/api/heavy-operation" || r.Path != r.Resource || r.Domain != "default" || r.Response != nil {
		t.Errorf("%+v", r)
	}
	want := []descriptors.Tier{
		{Threshold: 2, Delay: time.Second},
		{Threshold: 5, Status: 503, Headers: []descriptors.Header{{"retry-after", "30"}},
			Content: "Service temporarily overloaded"},
		{Threshold: 10, Status: 429, Content: "Rate limit exceeded"},
	}
	if fmt.Sprint(c.Tiers) != fmt.Sprint(want) {
		t.Errorf("got %+v", c.Tiers)
	}
	if s := c.Limit.Spec(); s != (limit.Spec{Algorithm: limit.Concurrency, Max: 5, Window: 5 * time.Minute}) ||
		c.KeyPart != "c" {
		t.Errorf("%+v %+v", s, c)
	}
}

func TestLeaseFollowsTheRule(t *testing.T) {
	const refuse = ", concurrency: [{threshold: 5, response: {statusCode: 429}}]}\n"
	const delay = ", concurrency: [{threshold: 5, response: {delay: 1500ms}}]}\n"
	for _, tc := range []struct {
		rule      string
		opt       rulefile.Options
		max       int64
		ttl, hold time.Duration
		hits      bool
	}{
		{"{key: a" + refuse, rulefile.Options{}, 5, 300 * time.Second, 0, false},
		{"{key: a" + refuse, rulefile.Options{DefaultLeaseTTL: time.Minute}, 5, time.Minute, 0, false},
		{"{key: a, lease_ttl: 1h" + refuse, rulefile.Options{DefaultLeaseTTL: time.Minute}, 5, time.Hour, 0, false},
		{"{key: a, reject_hold: 2s" + refuse, rulefile.Options{}, 5, 300 * time.Second, 2 * time.Second, false},
		{"{key: a, release: lease" + refuse, rulefile.Options{}, 5, 300 * time.Second, 0, false},
		{"{key: a, release: hits" + refuse, rulefile.Options{}, 5, 300 * time.Second, 300 * time.Second, true},
		{"{key: a, release: hits, lease_ttl: 10s" + delay, rulefile.Options{}, limit.MaxInFlight, 10 * time.Second,
			10 * time.Second, true},
		{"{key: a" + delay, rulefile.Options{}, limit.MaxInFlight, 300 * time.Second, 0, false},
	} {
		set, problems := rulefile.Load(
			[]rulefile.Source{{Name: "f", Data: []byte("domain: d\ndescriptors:\n  - " + tc.rule)}}, tc.opt)
		if len(problems) > 0 {
			t.Fatal(lines(problems))
		}
		c := set.Rules()[0].Concurrency
		if c.LeaseTTL != tc.ttl || c.Hold != tc.hold || c.ByHits != tc.hits ||
			c.Limit.Spec() != (limit.Spec{Algorithm: limit.Concurrency, Max: tc.max, Window: tc.ttl, Hold: tc.hold}) {
			t.Errorf("%s: %+v %+v", tc.rule, c, c.Limit.Spec())
		}
	}
}

// TestConcurrencyOfDescriptors: tiers and limits of one rule share a group.
func TestConcurrencyOfDescriptors(t *testing.T) {
	s := mustLoad(t, `
domain: d
descriptors:
  - key: tenant
    concurrency: [{threshold: 50, response: {statusCode: 429}}]
    limits: [{algorithm: token_bucket, rate: 10/s}]
  - {key: user, concurrency: [{threshold: 5, response: {statusCode: 429}}]}
`)
	for descriptor, want := range map[string]string{"tenant=acme": "1:d6:tenant4:acme", "user=anna": "1:d4:user4:anna"} {
		var m descriptors.Match
		s.Match("d", entries(descriptor), &m)
		if m.Rule.Concurrency == nil || m.Group != want {
			t.Errorf("%s: %+v", descriptor, m)
		}
	}
	if r := s.Rules()[0]; len(r.Limits) != 1 || r.Limits[0].KeyPart == r.Concurrency.KeyPart {
		t.Errorf("%+v", r)
	}
}

func TestNeedsListWhatRulesRead(t *testing.T) {
	data := `
domain: shop
resources:
  - path: /a
    match: {headers: {X-Plan: gold, x-b: "1"}, query: {q: "1"}}
    concurrency:
      - {threshold: 1, response: {delay: 2s}}
      - {threshold: 2, response: {statusCode: 503, headers: {Retry-After: "1", x-why: a}}}
  - {path: /b, anyOf: [{expression: "${context.request.headers.X-Role}", operator: Exists}]}
  - {operation: pay, binding: PayPort}
descriptors:
  - key: tenant
    descriptors:
      - {key: user, release: hits, lease_ttl: 1h,
         concurrency: [{threshold: 2, response: {statusCode: 429, headers: {retry-after: "1"}}}]}
`
	set, problems := rulefile.Load([]rulefile.Source{
		{Name: "a", Data: []byte(data)},
		{Name: "b",
			Data: []byte("domain: plain\ndescriptors: [{key: a, rate_limit: {unit: second, requests_per_unit: 1}}]\n")},
		{Name: "c", Data: []byte("domain: action\nresources: [{path: /x, soapAction: 'urn:x', concurrency: [{threshold: 1, " +
			"response: {delay: 1ms}}]}]\n")},
	}, rulefile.Options{})
	if set == nil {
		t.Fatal(lines(problems))
	}
	for domain, want := range map[string]descriptors.Needs{
		"shop": {
			Resources: true, Headers: []string{"x-b", "x-plan", "x-role"}, SOAPAction: true, SOAPBinding: true,
		},
		"plain":   {},
		"unknown": {},
		"action":  {Resources: true, SOAPAction: true},
	} {
		if got := set.Needs(domain); fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
			t.Errorf("%s:\ngot  %+v\nwant %+v", domain, got, want)
		}
	}
}

func TestDumpResources(t *testing.T) {
	var b strings.Builder
	if err := mustLoad(t, read(t, "rulefile/testdata/good/resources.yaml")).Dump(&b); err != nil {
		t.Fatal(err)
	}
	golden.Check(t, "testdata/dump_resources.golden", b.String())
	rows := strings.Split(strings.TrimSpace(b.String()), "\n")
	if slices.ContainsFunc(rows, func(s string) bool { return !strings.HasPrefix(s, "shop.") }) {
		t.Error("a line without its rule")
	}
}
