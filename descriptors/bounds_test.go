package descriptors_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/limit"
)

// many returns n values.
func many[T any](n int, make func(i int) T) (out []T) {
	for i := range n {
		out = append(out, make(i))
	}
	return out
}

// reports reports whether an error says what it should, and where.
func reports(got []descriptors.Problem, want string) bool {
	return slices.ContainsFunc(got, func(p descriptors.Problem) bool {
		return !p.Warning && strings.Contains(p.Message, want) && (p.Line == 7 || strings.Contains(want, "missing"))
	})
}

// TestBuildChecksEachBound: a good rule is built, and with one value out of
// bounds it is refused, for that value.
func TestBuildChecksEachBound(t *testing.T) {
	type rule = descriptors.RuleSpec
	long := func(n int) string { return strings.Repeat("x", n) }
	deep := func(n int) (v any) {
		for range n {
			v = []any{v}
		}
		return v
	}
	numbered := func(i int) string { return fmt.Sprint("x-", i) }
	for _, tc := range []struct {
		want   string
		change func(r *rule)
	}{
		{"", func(*rule) {}},
		{"key has 1025 bytes", func(r *rule) { r.Key = long(1025) }},
		{"key is not valid UTF-8", func(r *rule) { r.Key = "\xff" }},
		{"the rule's key is empty", func(r *rule) { r.Key = "" }},
		{"value has 4097 bytes", func(r *rule) { r.Value = long(4097) }},
		{"share_threshold needs a *", func(r *rule) { r.ShareThreshold = true }},
		{"contradict each other", func(r *rule) { r.Value, r.ShareThreshold, r.CountByValue = "*", true, true }},
		{"on_backend_error has the unknown value 9", func(r *rule) { r.OnBackendError = 9 }},
		{"on_overload has the unknown value 4", func(r *rule) { r.OnOverload = descriptors.FailLocal }},
		{"charge has the unknown value 3", func(r *rule) { r.Charge = 3 }},
		{"metadata NaN is not a finite number", func(r *rule) { r.Metadata = map[string]any{"a": math.NaN()} }},
		{"metadata has a value of type int", func(r *rule) { r.Metadata = map[string]any{"a": []any{1}} }},
		{"metadata text has 65537 bytes", func(r *rule) { r.Metadata = map[string]any{"a": long(1<<16 + 1)} }},
		{"metadata key is not valid UTF-8", func(r *rule) { r.Metadata = map[string]any{"\xff": nil} }},
		{"", func(r *rule) { r.Metadata = map[string]any{"a": deep(31)} }},
		{"metadata is nested deeper than 32", func(r *rule) { r.Metadata = map[string]any{"a": deep(32)} }},
		{"metadata has more than 10000 values", func(r *rule) { r.Metadata = map[string]any{"a": make([]any, 10_000)} }},

		{"content has 65537 bytes", func(r *rule) { r.Response.Content = long(1<<16 + 1) }},
		{"at most 32 headers, not 33", func(r *rule) {
			r.Response.Headers = many(33, func(i int) descriptors.Header { return descriptors.Header{Name: numbered(i)} })
		}},
		{"must have 1 to 128 characters", func(r *rule) { r.Response.Headers[0].Name = long(129) }},
		{"is given twice", func(r *rule) { r.Response.Headers[1].Name = "X-B" }},
		{"header x-b has 4097 bytes", func(r *rule) { r.Response.Headers[0].Value = long(4097) }},
		{"must have no control characters", func(r *rule) { r.Response.Headers[0].Value = "a\nb" }},

		{"name has 129 bytes", func(r *rule) { r.Limits[0].Name = long(129) }},
		{"must be of visible ASCII", func(r *rule) { r.Limits[0].Name = `"` }},
		{`two limits of the rule are called "a"`, func(r *rule) { r.Limits[1].Name = "a" }},
		{"a rule has at most 1024 limits, not 1025", func(r *rule) {
			r.Limits = many(1025, func(i int) descriptors.LimitSpec {
				return descriptors.LimitSpec{Name: numbered(i), Figures: r.Limits[0].Figures}
			})
		}},
		{"", func(r *rule) { r.Limits[0].Alone = true }},
		{"called by its algorithm alone", func(r *rule) { r.Limits[1].Alone = true }},
		{"must be the only one of its rule", func(r *rule) { r.Limits[1].Unlimited = true }},
		{"a limit that is unlimited has no figures", func(r *rule) {
			r.Concurrency, r.Limits = nil, r.Limits[:1]
			r.Limits[0].Unlimited = true
		}},
		{"concurrency and unlimited", func(r *rule) { r.Limits = []descriptors.LimitSpec{{Unlimited: true}} }},
		{"unknown algorithm 99", func(r *rule) { r.Limits[0].Figures.Algorithm = 99 }},
		{"limits do not have the algorithm concurrency", func(r *rule) { r.Limits[0].Figures.Algorithm = limit.Concurrency }},
		{"limit -1 is outside", func(r *rule) { r.Limits[0].Figures.Max = -1 }},
		{"window 1µs is outside", func(r *rule) { r.Limits[0].Figures.Window = time.Microsecond }},
		{"local_share 1 is outside", func(r *rule) { r.Limits[0].Share = 1 }},
		{"local_share 11 is more than", func(r *rule) { r.Limits[0].Share = 11 }},
		{`the limit "a" replaces itself`, func(r *rule) { r.Limits[0].Replaces = []descriptors.Replaced{{Name: "a"}} }},
		{`the rule replaces its own limit "a"`, func(r *rule) { r.Limits[1].Replaces = []descriptors.Replaced{{Name: "a"}} }},
		{"must name a limit", func(r *rule) { r.Limits[0].Replaces = []descriptors.Replaced{{}} }},
		{"name has 129 bytes", func(r *rule) { r.Limits[0].Replaces = []descriptors.Replaced{{Name: long(129)}} }},
		{"a limit replaces at most 1024 others", func(r *rule) { r.Limits[0].Replaces = make([]descriptors.Replaced, 1025) }},

		{"lease_ttl 0s is outside", func(r *rule) { r.Concurrency.LeaseTTL = 0 }},
		{"reject_hold 2h is longer", func(r *rule) { *r.Concurrency.Hold = 2 * time.Hour }},
		{"reject_hold -1ns is longer", func(r *rule) { *r.Concurrency.Hold = -1 }},
		{"reject_hold and release: hits contradict each other", func(r *rule) { r.Concurrency.ByHits = true }},
		{"concurrency is empty", func(r *rule) { r.Concurrency.Tiers = nil }},
		{"a rule has at most 32 tiers", func(r *rule) {
			r.Concurrency.Tiers = many(33, func(i int) descriptors.TierSpec {
				return descriptors.TierSpec{Tier: descriptors.Tier{Threshold: int64(i), Status: 429}}
			})
		}},
		{"threshold -1 is outside", func(r *rule) { r.Concurrency.Tiers[0].Threshold = -1 }},
		{"threshold 1048577 is outside", func(r *rule) { r.Concurrency.Tiers[1].Threshold = 1<<20 + 1 }},
		{"two tiers have the threshold 5", func(r *rule) { r.Concurrency.Tiers[1].Threshold = 5 }},
		{`two tiers are called "t"`, func(r *rule) { r.Concurrency.Tiers[1].Name = "t" }},
		{"must be of visible ASCII", func(r *rule) { r.Concurrency.Tiers[1].Name = "ü" }},
		{"statusCode must be 400 to 599, not 200", func(r *rule) { r.Concurrency.Tiers[1].Status = 200 }},
		{"statusCode 600 is outside", func(r *rule) { r.Concurrency.Tiers[1].Status = 600 }},
		{"statusCode -1 is outside", func(r *rule) { r.Concurrency.Tiers[1].Status = -1 }},
		{"only delays", func(r *rule) { r.Concurrency.Tiers[0].Threshold = 50 }},
		{"reject_hold needs a tier that refuses", func(r *rule) { r.Concurrency.Tiers = r.Concurrency.Tiers[:1] }},
		{"delay 10m0.001s is not whole milliseconds",
			func(r *rule) { r.Concurrency.Tiers[0].Delay = 10*time.Minute + time.Millisecond }},
		{"delay 1µs is not whole milliseconds", func(r *rule) { r.Concurrency.Tiers[0].Delay = time.Microsecond }},
		{"delay -1ms is not whole milliseconds", func(r *rule) { r.Concurrency.Tiers[0].Delay = -time.Millisecond }},
		{"content needs a statusCode", func(r *rule) { r.Concurrency.Tiers[0].Content = "a" }},
		{"headers needs a statusCode", func(r *rule) {
			r.Concurrency.Tiers[0].Headers = []descriptors.Header{{Name: "x-a"}}
		}},
		{"content has 65537 bytes", func(r *rule) { r.Concurrency.Tiers[1].Content = long(1<<16 + 1) }},
		{`header ":path" is a pseudo header`, func(r *rule) {
			r.Concurrency.Tiers[1].Headers = []descriptors.Header{{Name: ":path"}}
		}},
		{"a rule is missing", func(r *rule) { r.Rules = []*rule{nil} }},
		{"rules are nested deeper than 256", func(r *rule) { r.Rules = []*rule{r} }},
	} {
		hold := time.Second
		r := &rule{Key: "k", Value: "v", Body: descriptors.Body{
			Place: descriptors.Place{File: "db", Line: 7},
			Response: &descriptors.Response{Content: "no",
				Headers: []descriptors.Header{{Name: "x-b"}, {Name: "X-A", Value: "1"}}},
			Limits: []descriptors.LimitSpec{
				{Name: "a", Share: 2, Figures: limit.Spec{Algorithm: limit.FixedWindow, Max: 10, Window: time.Hour}},
				{Name: "b", Figures: limit.Spec{Algorithm: limit.TokenBucket, Max: 10, Window: time.Second}},
			},
			Concurrency: &descriptors.ConcurrencySpec{LeaseTTL: time.Hour, Hold: &hold, Tiers: []descriptors.TierSpec{
				{Tier: descriptors.Tier{Threshold: 5, Delay: time.Second, Name: "t"}},
				{Tier: descriptors.Tier{Threshold: 9, Status: 429, Content: "busy"}},
			}},
		}}
		tc.change(r)
		var problems descriptors.Problems
		set := descriptors.Build(&descriptors.Spec{Domains: []*descriptors.DomainSpec{{Name: "d", Rules: []*rule{r}}}},
			&problems)
		got := problems.Sorted()
		if tc.want == "" {
			if set == nil || len(got) > 0 {
				t.Errorf("a good rule is refused: %v", got)
			}
		} else if set != nil || !reports(got, tc.want) {
			t.Errorf("want %s, got %.300v", tc.want, got)
		}
	}
}

// TestBuildChecksResources is TestBuildChecksEachBound for what only resources
// have.
func TestBuildChecksResources(t *testing.T) {
	type resource = descriptors.ResourceSpec
	type criteria = map[string]descriptors.Criterion
	long := func(n int) string { return strings.Repeat("x", n) }
	manyCriteria := func(n int) criteria {
		out := criteria{}
		for i := range n {
			out[fmt.Sprint("x-", i)] = descriptors.Criterion{Value: "1"}
		}
		return out
	}
	for _, tc := range []struct {
		want   string
		change func(r *resource)
	}{
		{"", func(r *resource) {}},
		{`unknown method "A B"`, func(r *resource) { r.Method = "A B" }},
		{"method has 129 bytes", func(r *resource) { r.Method = long(129) }},
		{"path has 1025 bytes", func(r *resource) { r.Path = "/" + long(1024) }},
		{"must start with a slash", func(r *resource) { r.Path = "a" }},
		{"1 to 1000 bytes, not 1001", func(r *resource) { r.Path = "~" + long(1001) }},
		{"error parsing regexp", func(r *resource) { r.Path = "~(" }},
		{"it has no path", func(r *resource) { r.SOAP = true }},
		{"only a SOAP resource has an operation", func(r *resource) { r.Operation = "pay" }},
		{"SOAP requests are POST, not GET", func(r *resource) { r.SOAP, r.Path, r.Method = true, "", "get" }},
		{"operation has 1025 bytes", func(r *resource) { r.SOAP, r.Path, r.Operation = true, "", long(1025) }},
		{"the last part of the SOAPAction", func(r *resource) { r.SOAP, r.Path, r.Operation = true, "", "a/b" }},
		{"hash length 65 is outside", func(r *resource) { r.HashLength = 65 }},
		{"name has 129 bytes", func(r *resource) { r.Name = long(129) }},
		{"soapAction has 4097 bytes", func(r *resource) { r.Matcher.SOAPAction = long(4097) }},
		{"binding is not valid UTF-8", func(r *resource) { r.Matcher.Binding = "\xff" }},
		{"more than 32 criteria", func(r *resource) { r.Matcher.RequestHeaders = manyCriteria(33) }},
		{"more than 32 criteria", func(r *resource) { r.Matcher.QueryParams = manyCriteria(33) }},
		{"allOf has more than 32 entries", func(r *resource) { r.Matcher.AllOf = make([]descriptors.Condition, 33) }},
		{"name of a query parameter must have 1 to 128", func(r *resource) { r.Matcher.QueryParams = criteria{"": {}} }},
		{"name of a header must have 1 to 128", func(r *resource) { r.Matcher.RequestHeaders = criteria{long(129): {}} }},
		{"matched by the resource's path", func(r *resource) { r.Matcher.RequestHeaders = criteria{":path": {}} }},
		{`header "x-a" is given twice`, func(r *resource) { r.Matcher.RequestHeaders = criteria{"x-a": {}, "X-A": {}} }},
		{"the path has no parameter {di}", func(r *resource) { r.Matcher.PathParams = criteria{"di": {}} }},
		{"query parameter q has 4097 bytes",
			func(r *resource) { r.Matcher.QueryParams = criteria{"q": {Value: long(4097)}} }},
		{"query parameter q has 1001 bytes", func(r *resource) {
			r.Matcher.QueryParams = criteria{"q": {Operator: "Matches", Value: long(1001)}}
		}},
		{"error parsing regexp", func(r *resource) {
			r.Matcher.QueryParams = criteria{"q": {Operator: "Matches", Value: "("}}
		}},
		{"Exists takes no value", func(r *resource) {
			r.Matcher.QueryParams = criteria{"q": {Operator: "Exists", Value: "1"}}
		}},
		{"contains the empty text always",
			func(r *resource) { r.Matcher.QueryParams = criteria{"q": {Operator: "Contains"}} }},
		{`operator "Like" is unknown`, func(r *resource) { r.Matcher.QueryParams = criteria{"q": {Operator: "Like"}} }},
		{"expression has 4097 bytes",
			func(r *resource) { r.Matcher.AnyOf = []descriptors.Condition{{Expression: long(4097)}} }},
		{"is not understood", func(r *resource) { r.Matcher.AnyOf = []descriptors.Condition{{Expression: "${}"}} }},
		{"request's body can never be matched", func(r *resource) {
			r.Matcher.AnyOf = []descriptors.Condition{{Expression: "${context.request.formParams.a}"}}
		}},
	} {
		r := &resource{Path: "/a/{id}", Body: descriptors.Body{Place: descriptors.Place{File: "db", Line: 7}}}
		tc.change(r)
		var problems descriptors.Problems
		set := descriptors.Build(
			&descriptors.Spec{Domains: []*descriptors.DomainSpec{{Name: "d", Resources: []*resource{r}}}}, &problems)
		got := problems.Sorted()
		if tc.want == "" {
			if set == nil || len(got) > 0 {
				t.Errorf("a good resource is refused: %v", got)
			}
		} else if set != nil || !reports(got, tc.want) {
			t.Errorf("want %s, got %.300v", tc.want, got)
		}
	}
}
