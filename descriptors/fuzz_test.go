package descriptors_test

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/test/random"
)

// draws makes Specs out of bytes: good values and bad ones.
type draws struct {
	data []byte
	left int // rules that may still be made
}

// n returns a number below most; 0 when there are no bytes left.
func (d *draws) n(most int) int {
	if len(d.data) == 0 {
		return 0
	}
	v := int(d.data[0])
	d.data = d.data[1:]
	return v % most
}

func (d *draws) bool() bool { return d.n(2) == 1 }

// of returns one of values.
func of[T any](d *draws, values ...T) T { return values[d.n(len(values))] }

var longPath = "/" + strings.Repeat("p", 1024)

var texts = []string{
	"a", "b", "ab*", "x", "", "a b", "\xff", "ü", "\n", "\"", "\x00", "*", strings.Repeat("k", 1024),
	strings.Repeat("k", 1025),
	strings.Repeat("v", 4097), strings.Repeat("c", 1<<16+1), "name",
}

// text is good most of the time.
func (d *draws) text() string { return of(d, texts...) }

func (d *draws) integer() int64 {
	return of[int64](d, 1, 2, 5, 100, 0, -1, math.MaxInt64, math.MinInt64, 1<<20, 1<<20+1, 1<<40, 1<<40+1, 429,
		503, 200, 600)
}

func (d *draws) duration() time.Duration {
	return of[time.Duration](d, time.Second, time.Minute, time.Hour, time.Millisecond, 0, -1, time.Microsecond,
		time.Nanosecond, math.MaxInt64, math.MinInt64,
		limit.MaxWindow, limit.MaxWindow+1, 10*time.Minute+time.Millisecond)
}

// list makes up to two values, or a few more than bound.
func list[T any](d *draws, bound int, make func() T) (out []T) {
	n := d.n(4)
	if n == 3 && d.n(4) == 3 {
		n = bound + d.n(3)
	}
	for range n {
		out = append(out, make())
	}
	return out
}

func (d *draws) place() descriptors.Place {
	return of(d, descriptors.Place{}, descriptors.Place{File: "f", Line: 3, Col: 4}, descriptors.Place{Line: -1})
}

func (d *draws) fields() descriptors.Fields {
	return of(d, nil, descriptors.Fields{{Name: "name", Line: 5, Col: 6}, {}})
}

func (d *draws) headers() []descriptors.Header {
	return list(d, 32, func() descriptors.Header {
		return descriptors.Header{Name: of(d, "x-a", "X-A", "host", ":path", "", "a b", d.text()), Value: d.text()}
	})
}

func (d *draws) metadata(depth int) any {
	switch d.n(9) {
	case 0:
		return of[any](d, nil, any(int64(1)), map[string]any{"a": "b"}, 7, strings.Repeat("c", 1<<16+1), math.NaN())
	case 1:
		return d.integer()
	case 2:
		return of(d, 1.5, math.NaN(), math.Inf(1))
	case 3:
		return d.text()
	case 4:
		return list(d, 10_000, func() any { return d.metadata(depth + 1) })
	case 6:
		deep := any(true)
		for range of(d, 3, 31, 32, 40) {
			deep = []any{deep}
		}
		return deep
	}
	return map[string]any{d.text(): d.metadata(depth + 1)}
}

func (d *draws) body() descriptors.Body {
	b := descriptors.Body{
		Limits: list(d, 1024, d.limit), Shadow: d.bool(), Quota: d.bool(),
		OnBackendError: descriptors.FailurePolicy(d.n(7)), OnOverload: descriptors.FailurePolicy(d.n(7)),
		Charge:         descriptors.Charge(d.n(5)),
		DetailedMetric: d.bool(), Place: d.place(), Fields: d.fields(), Broken: d.n(30) == 29,
	}
	if d.bool() {
		b.Concurrency = d.concurrency()
	}
	if d.bool() {
		b.Response = &descriptors.Response{Content: d.text(), Headers: d.headers()}
	}
	if d.n(4) == 1 {
		b.Except, b.MaxKeys = d.networks(), of[int64](d, 0, 0, 1, -1)
	}
	if d.n(4) == 1 {
		b.Metadata = map[string]any{of(d, "a", "b", d.text()): d.metadata(1)}
	}
	return b
}

func (d *draws) limit() descriptors.LimitSpec {
	return descriptors.LimitSpec{
		Name: d.text(), Unlimited: d.n(8) == 7, Alone: d.n(8) == 7, Shadow: d.bool(), Share: of(d, 0, 0, d.integer()),
		Figures: limit.Spec{
			Algorithm: limit.Algorithm(of(d, 1, 2, 3, 4, 5, 6, 0, 99)), Max: d.integer(), Window: d.duration(),
			Burst: of(d, 0, 0, d.integer()), Hold: of(d, 0, 0, 0, d.duration()),
		},
		Replaces: list(d, 1024,
			func() descriptors.Replaced { return descriptors.Replaced{Name: d.text(), Place: d.place()} }),
		Place: d.place(), Fields: d.fields(), Broken: d.n(30) == 29,
	}
}

func (d *draws) concurrency() *descriptors.ConcurrencySpec {
	c := &descriptors.ConcurrencySpec{LeaseTTL: d.duration(), ByHits: d.bool(), Broken: d.n(30) == 29, Place: d.place(),
		Fields: d.fields()}
	if d.bool() {
		hold := d.duration()
		c.Hold = &hold
	}
	next := int64(0)
	c.Tiers = list(d, 32, func() descriptors.TierSpec {
		next++
		return descriptors.TierSpec{Tier: descriptors.Tier{
			Threshold: of(d, next, next, d.integer()), Status: of(d, 429, 0, 503, int(d.integer())), Headers: d.headers(),
			Content: d.text(),
			Delay:   of(d, 0, d.duration()), Name: d.text(),
		}, Broken: d.n(30) == 29, Place: d.place(), Fields: d.fields()}
	})
	return c
}

func (d *draws) criteria() map[string]descriptors.Criterion {
	m := map[string]descriptors.Criterion{}
	for range d.n(3) {
		m[of(d, "x-a", "X-A", "id", ":path", "host", d.text())] = d.criterion()
	}
	return m
}

func (d *draws) criterion() descriptors.Criterion {
	return descriptors.Criterion{
		Operator: of(d, "", "EqualTo", "NotContains", "Matches", "Exists", "Like"), Value: of(d, "1", "(", "^a+$", d.text()),
		Place: d.place(),
	}
}

func (d *draws) conditions() []descriptors.Condition {
	return list(d, 32, func() descriptors.Condition {
		return descriptors.Condition{Criterion: d.criterion(), Expression: of(d, "${context.request.headers.X-A}",
			"${context.request.queryParams.q}",
			"${context.request.pathParams.id}", "${context.request.body}", "${context.request.formParams.a}", "${}", d.text())}
	})
}

func (d *draws) rule() *descriptors.RuleSpec {
	if d.left--; d.left < 0 || d.n(30) == 29 {
		return nil
	}
	r := &descriptors.RuleSpec{
		Body: d.body(), Key: d.text(), Value: d.text(), ShareThreshold: d.n(4) == 3, ValueToMetric: d.bool(),
		CountByValue: d.n(4) == 3,
	}
	if d.n(3) == 2 {
		r.Value, r.Networks = of(d, "", "", r.Value), d.networks()
	}
	if d.n(20) == 19 {
		r.Rules = []*descriptors.RuleSpec{r} // without an end
		return r
	}
	r.Rules = list(d, 3, d.rule)
	return r
}

func (d *draws) resource() *descriptors.ResourceSpec {
	if d.left--; d.left < 0 || d.n(30) == 29 {
		return nil
	}
	return &descriptors.ResourceSpec{
		Body: d.body(), Method: of(d, "GET", "post", "*", "", "GTE", "A B", d.text()),
		Path: of(d, "/a", "/a/{id}", "/a/*", "~^/x", "~(", "a", "", "/a/../b", longPath, d.text()),
		SOAP: d.n(4) == 3, Operation: of(d, "", "", "", "pay", "*", "urn:pay", d.text()),
		Matcher: descriptors.Matcher{
			RequestHeaders: d.criteria(), QueryParams: d.criteria(), PathParams: d.criteria(),
			AllOf: d.conditions(), AnyOf: d.conditions(), SOAPAction: of(d, "", d.text()), Binding: of(d, "", d.text()),
		},
		HashLength: of(d, 0, 8, 64, 65, -1), Name: of(d, "", "", d.text()),
		By: list(d, 8, func() descriptors.Value {
			return descriptors.Value{Name: of(d, "remote_address", "header.X-A", "jwt.sub", "query.q", "pathParams.id", "jwt.",
				"", "remote_addresses", "query."+d.text()), Place: d.place()}
		}),
	}
}

func (d *draws) networks() []descriptors.Network {
	return list(d, 3, func() descriptors.Network {
		return descriptors.Network{Text: of(d, "10.0.0.0/8", "::/0", "10.0.0.1", "::ffff:10.0.0.0/104", "10.1.0.0/8", "::1%x",
			"/", d.text()), Place: d.place()}
	})
}

func (d *draws) spec() *descriptors.Spec {
	d.left = 20
	s := &descriptors.Spec{Hash: of(d, uint64(1), 1, 1, 1<<52-1, 1<<52)}
	s.Domains = list(d, 3, func() *descriptors.DomainSpec {
		if d.n(30) == 29 {
			return nil
		}
		dom := &descriptors.DomainSpec{Name: of(d, "d", "d", d.text()), Place: d.place(), Broken: d.n(30) == 29}
		if d.bool() {
			dom.CutParams = &descriptors.Switch{Name: "matrix_parameters", On: d.bool(), Place: d.place()}
			dom.AnyCase = &descriptors.Switch{Name: "paths", On: d.bool(), Place: d.place()}
		}
		dom.Rules, dom.Resources = list(d, 4, d.rule), list(d, 4, d.resource)
		return dom
	})
	return s
}

// outOfBounds returns what is wrong with a rule that Build has made.
func outOfBounds(r *descriptors.Rule) (found []string) {
	wrong := func(bad bool, what string, value any) {
		if bad {
			found = append(found, fmt.Sprintf("%s: %v", what, value))
		}
	}
	text := func(what, s string, most int) { wrong(len(s) > most || !utf8.ValidString(s), what, s) }
	name := func(s string) {
		text("name", s, 128)
		wrong(strings.ContainsAny(s, "\"\\\n\x00") || strings.ContainsFunc(s, func(c rune) bool { return c > '~' }), "name",
			s)
	}
	headers := func(hs []descriptors.Header) {
		wrong(len(hs) > 32, "headers", len(hs))
		wrong(!slices.IsSortedFunc(hs, func(a, b descriptors.Header) int { return strings.Compare(a.Name, b.Name) }),
			"order of headers", hs)
		for i, h := range hs {
			text("header", h.Name, 128)
			text("header", h.Value, 4096)
			wrong(h.Name == "" || h.Name[0] == ':' || h.Name != strings.ToLower(h.Name) ||
				strings.ContainsAny(h.Name, " \n\x00"), "header", h.Name)
			wrong(strings.ContainsAny(h.Value, "\n\x00"), "value", h.Value)
			wrong(i > 0 && hs[i-1].Name == h.Name, "header twice", h.Name)
		}
	}
	text("domain", r.Domain, 1024)
	wrong(r.Domain == "", "domain", "")
	wrong(r.Resource == "" && len(r.Path) > 256*(1024+4096+2), "path", len(r.Path))
	wrong(len(r.Resource) > 1024+64+3, "resource", len(r.Resource))
	wrong(r.OnBackendError > descriptors.FailLocal || r.OnOverload >= descriptors.FailLocal ||
		r.Charge > descriptors.ChargeEach, "policies", r.Terms)
	wrong(len(r.Limits) > 1024, "limits", len(r.Limits))
	wrong(r.Unlimited && (len(r.Limits) > 0 || r.Concurrency != nil), "unlimited", "with limits")
	parts := map[string]bool{}
	for i := range r.Limits {
		l := &r.Limits[i]
		name(l.Name)
		wrong(l.KeyPart == "" || parts[l.KeyPart], "key part", l.KeyPart)
		parts[l.KeyPart] = true
		made, err := limit.New(l.Limit.Spec())
		wrong(err != nil || made.Algorithm() == limit.Concurrency, "limit", l.Limit.Spec())
		share := l.Limit.Share()
		named := share == limit.AutoShare || share == limit.NoShare
		wrong(share != 0 && !named && (share < 2 || share > l.Limit.Capacity()), "share", share)
	}
	for _, n := range r.Replaces {
		text("replaced", n, 128)
		wrong(n == "" || slices.ContainsFunc(r.Limits, func(l descriptors.RuleLimit) bool { return l.Name == n }),
			"replaced", n)
	}
	if r.Response != nil {
		text("content", r.Response.Content, 1<<16)
		headers(r.Response.Headers)
	}
	if c := r.Concurrency; c != nil {
		_, err := limit.New(c.Limit.Spec())
		wrong(err != nil || c.LeaseTTL < limit.MinWindow || c.LeaseTTL > limit.MaxWindow || c.Hold < 0 ||
			c.Hold > c.LeaseTTL, "lease", c)
		wrong(len(c.Tiers) < 1 || len(c.Tiers) > 32, "tiers", len(c.Tiers))
		for i, tier := range c.Tiers {
			name(tier.Name)
			headers(tier.Headers)
			text("content", tier.Content, 1<<16)
			wrong(i > 0 && tier.Threshold <= c.Tiers[i-1].Threshold || tier.Threshold < 0 || tier.Threshold > limit.MaxInFlight,
				"threshold", tier.Threshold)
			wrong(tier.Status != 0 && (tier.Status < 400 || tier.Status > 599), "status", tier.Status)
			wrong(tier.Delay < 0 || tier.Delay > 10*time.Minute || tier.Delay%time.Millisecond != 0, "delay", tier.Delay)
		}
	}
	values := 0
	wrong(r.Metadata != nil && !goodMetadata(r.Metadata, 0, &values), "metadata", r.Metadata)
	wrong(values > 10_000, "values of metadata", values)
	return found
}

func goodMetadata(v any, depth int, values *int) bool {
	*values++
	if depth > 32 {
		return false
	}
	switch v := v.(type) {
	case nil, bool, int64:
		return true
	case float64:
		return !math.IsNaN(v) && !math.IsInf(v, 0)
	case string:
		return utf8.ValidString(v) && len(v) <= 1<<16
	case []any:
		return !slices.ContainsFunc(v, func(e any) bool { return !goodMetadata(e, depth+1, values) })
	case map[string]any:
		for key, e := range v {
			if !utf8.ValidString(key) || !goodMetadata(e, depth+1, values) {
				return false
			}
		}
		return true
	}
	return false
}

// build builds the Spec that data stand for, and checks what comes of it.
func build(t *testing.T, data []byte) *descriptors.Set {
	var problems descriptors.Problems
	set := descriptors.Build((&draws{data: data}).spec(), &problems)
	if failed := problems.Failed(); failed != (set == nil) {
		t.Fatalf("failed: %v, with problems %v", failed, problems.Sorted())
	}
	if set == nil {
		return nil
	}
	var m descriptors.Match
	for i, r := range set.Rules() {
		if found := outOfBounds(r); r.ID != i || len(found) > 0 {
			t.Errorf("rule %d, %s of %s: %.500v", i, r.Path, r.Domain, found)
		}
		set.Match(r.Domain, []descriptors.Entry{{Key: "a", Value: "b"}, {}}, &m)
		set.Match(r.Domain, []descriptors.Entry{{Key: "method", Value: "GET"}, {Key: "path", Value: "/a/b?c=d"},
			{Key: "header.x-a", Value: "1"}}, &m)
		set.Needs(r.Domain)
	}
	if err := set.Dump(&bytes.Buffer{}); err != nil {
		t.Error(err)
	}
	return set
}

// TestBrokenPartsNeedAnError: no set lacks a part, or has one out of bounds, because its source only says that it is
// broken.
func TestBrokenPartsNeedAnError(t *testing.T) {
	one := descriptors.LimitSpec{Figures: limit.Spec{Algorithm: limit.FixedWindow, Max: 1, Window: time.Second}}
	rule := func(b descriptors.Body) *descriptors.DomainSpec {
		return &descriptors.DomainSpec{Name: "d", Rules: []*descriptors.RuleSpec{{Key: "a", Body: b}}}
	}
	long := rule(descriptors.Body{})
	long.Name, long.Broken = strings.Repeat("c", 1<<16+1), true
	broken := one
	broken.Broken = true
	reserves := one
	reserves.Reserve = &descriptors.ReserveSpec{Broken: true}
	for what, d := range map[string]*descriptors.DomainSpec{
		"domain of 65,537 bytes": long,
		"domain without a name":  {Broken: true},
		"rule":                   rule(descriptors.Body{Broken: true}),
		"limit":                  rule(descriptors.Body{Limits: []descriptors.LimitSpec{broken}}),
		"reserve":                rule(descriptors.Body{Limits: []descriptors.LimitSpec{reserves}}),
		"concurrency": rule(descriptors.Body{Concurrency: &descriptors.ConcurrencySpec{Broken: true,
			Tiers: []descriptors.TierSpec{{Tier: descriptors.Tier{Status: 429}}}}}),
		"tier": rule(descriptors.Body{Concurrency: &descriptors.ConcurrencySpec{LeaseTTL: time.Minute,
			Tiers: []descriptors.TierSpec{{Broken: true}}}}),
		"resource": {Name: "d", Resources: []*descriptors.ResourceSpec{{Path: "/a", Body: descriptors.Body{Broken: true}}}},
	} {
		var problems descriptors.Problems
		set := descriptors.Build(&descriptors.Spec{Domains: []*descriptors.DomainSpec{d}}, &problems)
		list := problems.Sorted()
		if set != nil || !strings.Contains(fmt.Sprint(list), "cannot be used, and does not say why") {
			t.Errorf("%s: %v", what, list)
		}
		problems = descriptors.Problems{}
		problems.Add(descriptors.Problem{Message: "reported"})
		set = descriptors.Build(&descriptors.Spec{Domains: []*descriptors.DomainSpec{d}}, &problems)
		if list := problems.Sorted(); set != nil || len(list) != 1 {
			t.Errorf("%s, which its source reports: %v", what, list)
		}
	}
}

// FuzzBuild: whatever a source hands over, Build does not panic, and no rule is
// out of bounds.
func FuzzBuild(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{0, 1, 0, 0, 0, 1, 1, 1})
	f.Add([]byte{0, 1, 0, 15, 2, 0, 29, 0, 1}) // a broken domain of 65,537 bytes with a rule
	f.Fuzz(func(t *testing.T, data []byte) { build(t, data) })
}

// TestBuildBoundsWhatItIsGiven is FuzzBuild with random bytes.
func TestBuildBoundsWhatItIsGiven(t *testing.T) {
	r := random.Rand(t, 11)
	built, rules := 0, 0
	for range random.Times(8_000, 1_000_000) {
		data := make([]byte, r.IntN(250))
		for i := range data {
			data[i] = byte(r.IntN(3))
			if r.IntN(25) == 0 { // the first values of lists are good ones
				data[i] = byte(r.IntN(256))
			}
		}
		if set := build(t, data); set != nil {
			built++
			rules += len(set.Rules())
		}
	}
	if built < 400 || rules < 200 {
		t.Errorf("only %d sets with %d rules are good", built, rules)
	}
}
