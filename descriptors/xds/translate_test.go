package xds

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	rlsconf "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/descriptors/overlay"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/test/controlplane"
)

// resourcesOf returns the resources of configs, as they come over the wire.
func resourcesOf(t testing.TB, configs ...*rlsconf.RateLimitConfig) []resource {
	t.Helper()
	var list []resource
	for _, c := range configs {
		encoded, err := proto.Marshal(controlplane.Pack(c))
		if err != nil {
			t.Fatal(err)
		}
		r, err := open(encoded)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, r)
	}
	return list
}

// considered returns what becomes of configs.
func considered(t testing.TB, configs ...*rlsconf.RateLimitConfig) *outcome {
	t.Helper()
	s := &state{maxBytes: DefaultMaxMessage}
	return s.consider(resourcesOf(t, configs...), nil, false)
}

func dump(t *testing.T, set *descriptors.Set) string {
	t.Helper()
	var b bytes.Buffer
	if err := set.Dump(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func with(d *rlsconf.RateLimitDescriptor, change func(*rlsconf.RateLimitDescriptor)) *rlsconf.RateLimitDescriptor {
	change(d)
	return d
}

// Every field of a message has its effect.
func TestFieldsOfMessages(t *testing.T) {
	meta, err := structpb.NewStruct(map[string]any{"team": "a"})
	if err != nil {
		t.Fatal(err)
	}
	o := considered(t, controlplane.Config("d",
		with(controlplane.Rule("k", "v", 7, hour), func(d *rlsconf.RateLimitDescriptor) {
			d.ShadowMode, d.QuotaMode, d.DetailedMetric, d.Metadata = true, true, true, meta
			d.RateLimit.Name, d.RateLimit.Replaces = "mine", []*rlsconf.RateLimitReplace{{Name: "other"}}
		}),
		with(controlplane.Rule("other", "", 7, hour), func(d *rlsconf.RateLimitDescriptor) { d.RateLimit.Name = "other" }),
		&rlsconf.RateLimitDescriptor{Key: "free", RateLimit: &rlsconf.RateLimitPolicy{Unlimited: true, Name: "free"}},
		&rlsconf.RateLimitDescriptor{Key: "exempt", ShadowMode: true},
	))
	if o.set == nil || len(o.problems)+len(o.warnings) > 0 {
		t.Fatalf("problems %v, warnings %v", o.problems, o.warnings)
	}
	want := `d.k_v: unit=HOUR requests_per_unit=7, shadow_mode: true, name: mine, quota_mode: true, replaces: other
d.other: unit=HOUR requests_per_unit=7, shadow_mode: false, name: other
d.free: unit=UNKNOWN requests_per_unit=0, shadow_mode: false, unlimited: true
d.exempt: no limit
`
	if got := dump(t, o.set); got != want {
		t.Errorf("have\n%swant\n%s", got, want)
	}
	r := o.set.Rules()[0]
	if !r.Metric.Detailed || r.Metadata["team"] != "a" {
		t.Errorf("rule: %+v", r)
	}
}

// What a rule cannot be is a problem of its domain, with its place in the tree.
func TestMessagesThatCannotBeRules(t *testing.T) {
	policy := func(p *rlsconf.RateLimitPolicy) *rlsconf.RateLimitConfig {
		return controlplane.Config("d", controlplane.Node("a", "b", &rlsconf.RateLimitDescriptor{Key: "k", RateLimit: p}))
	}
	for _, c := range []struct {
		config *rlsconf.RateLimitConfig
		want   string
	}{
		{policy(&rlsconf.RateLimitPolicy{RequestsPerUnit: 1}),
			"xds: rate_limit has no unit; it must be one of second, minute, hour, day, week, month, year (at d/a_b/k)"},
		{policy(&rlsconf.RateLimitPolicy{RequestsPerUnit: 1, Unit: 42}),
			"xds: rate_limit has the unit number 42, which this version of headgate does not know (at d/a_b/k)"},
		{policy(&rlsconf.RateLimitPolicy{Unlimited: true, Unit: hour}),
			"xds: unlimited and unit contradict each other (at d/a_b/k)"},
		{policy(&rlsconf.RateLimitPolicy{Unit: hour, Name: "a\nb"}),
			"must be of visible ASCII characters without quotes and backslashes (at d/a_b/k)"},
		{policy(&rlsconf.RateLimitPolicy{Unit: hour, Name: "n", Replaces: []*rlsconf.RateLimitReplace{{Name: "n"}}}),
			`xds: the limit "n" replaces itself (at d/a_b/k)`},
		{policy(&rlsconf.RateLimitPolicy{Unit: hour, Replaces: []*rlsconf.RateLimitReplace{{}}}),
			"xds: an entry of replaces must name a limit (at d/a_b/k)"},
		{controlplane.Config("d", controlplane.Rule("", "", 1, hour)), "the rule's key is empty"},
	} {
		o := considered(t, c.config, controlplane.Config("good", controlplane.Rule("k", "", 1, hour)))
		if len(o.problems) != 1 || !strings.Contains(o.problems[0].String(), c.want) {
			t.Errorf("%v, want %q", o.problems, c.want)
		}
		if o.set == nil || strings.Join(o.set.Domains(), " ") != "good" {
			t.Errorf("%s: the good domain is not in force", c.want)
		}
	}
}

// A field of a later version has no effect, and a warning says so.
func TestUnknownFieldsAreWarnedOf(t *testing.T) {
	c := controlplane.Config("d", controlplane.Rule("k", "", 1, hour))
	c.Descriptors[0].ProtoReflect().SetUnknown([]byte{100<<1&0x7f | 0x80, 6, 1}) // field 100, a number
	o := considered(t, c)
	if o.set == nil || len(o.problems) > 0 || len(o.warnings) != 1 || !strings.Contains(o.warnings[0].String(), "d/k") {
		t.Errorf("problems %v, warnings %v", o.problems, o.warnings)
	}
}

// Equal keys and values are one rule: with the lowest limit of each window, and all that
// is below any of them. Several messages of one domain are parts of it.
func TestDuplicatesAreMerged(t *testing.T) {
	const minute = rlsconf.RateLimitUnit_MINUTE
	rule := func(most uint32, unit rlsconf.RateLimitUnit) *rlsconf.RateLimitDescriptor {
		return controlplane.Rule("k", "v", most, unit)
	}
	shadow := func(d *rlsconf.RateLimitDescriptor) *rlsconf.RateLimitDescriptor { d.ShadowMode = true; return d }
	for name, c := range map[string]struct {
		configs []*rlsconf.RateLimitConfig
		want    string
		warned  bool
	}{
		"equal": {[]*rlsconf.RateLimitConfig{controlplane.Config("d", rule(3, hour), rule(3, hour))},
			"d.k_v: unit=HOUR requests_per_unit=3, shadow_mode: false\n", false},
		"the lower one": {[]*rlsconf.RateLimitConfig{controlplane.Config("d", rule(5, hour), rule(3, hour), rule(4, hour))},
			"d.k_v: unit=HOUR requests_per_unit=3, shadow_mode: false\n", true},
		"two windows": {[]*rlsconf.RateLimitConfig{controlplane.Config("d", rule(50, hour), rule(3, minute))},
			"d.k_v: unit=MINUTE requests_per_unit=3, shadow_mode: false\nd.k_v: algorithm=fixed_window limit=50 window=1h, " +
				"shadow_mode: false\n", false},
		"one in shadow mode": {[]*rlsconf.RateLimitConfig{controlplane.Config("d", shadow(rule(2, hour)), rule(3, hour))},
			"d.k_v: unit=HOUR requests_per_unit=3, shadow_mode: false\nd.k_v: algorithm=fixed_window limit=2 window=1h, " +
				"shadow_mode: true\n", false},
		"all in shadow mode": {
			[]*rlsconf.RateLimitConfig{controlplane.Config("d", shadow(rule(3, hour)), shadow(rule(3, hour)))},
			"d.k_v: unit=HOUR requests_per_unit=3, shadow_mode: true\n", false},
		"unlimited": {[]*rlsconf.RateLimitConfig{controlplane.Config("d",
			&rlsconf.RateLimitDescriptor{Key: "k", Value: "v", RateLimit: &rlsconf.RateLimitPolicy{Unlimited: true}},
			rule(3, hour))},
			"d.k_v: unit=HOUR requests_per_unit=3, shadow_mode: false\n", true},
		"below": {[]*rlsconf.RateLimitConfig{controlplane.Config("d",
			controlplane.Node("k", "v", controlplane.Rule("a", "", 1, hour)), rule(3, hour),
			controlplane.Node("k", "v", controlplane.Rule("b", "", 2, hour), controlplane.Rule("a", "", 1, hour)))},
			"d.k_v: unit=HOUR requests_per_unit=3, shadow_mode: false\nd.k_v.a: unit=HOUR requests_per_unit=1, shadow_mode: " +
				"false\nd.k_v.b: unit=HOUR requests_per_unit=2, shadow_mode: false\n", false},
		"a domain in parts": {[]*rlsconf.RateLimitConfig{controlplane.Config("d", rule(3, hour)),
			controlplane.Config("d", rule(4, hour), controlplane.Rule("o", "", 1, hour))},
			"d.k_v: unit=HOUR requests_per_unit=3, shadow_mode: false\nd.o: unit=HOUR requests_per_unit=1, shadow_mode: false\n",
			true},
	} {
		o := considered(t, c.configs...)
		if o.set == nil || len(o.problems) > 0 || len(o.warnings) > 0 != c.warned {
			t.Errorf("%s: problems %v, warnings %v", name, o.problems, o.warnings)
			continue
		}
		if got := dump(t, o.set); got != c.want {
			t.Errorf("%s: have\n%swant\n%s", name, got, c.want)
		}
		for _, r := range o.set.Rules() {
			parts := map[string]bool{}
			for _, l := range r.Limits {
				if parts[l.KeyPart] {
					t.Errorf("%s: two limits count in %s", name, l.KeyPart)
				}
				parts[l.KeyPart] = true
			}
		}
	}
}

// Long keys and chains, which Envoy Gateway makes of legal configuration.
func TestLongKeysAndChains(t *testing.T) {
	route := "httproute/" + strings.Repeat("n", 63) + "/" + strings.Repeat("r", 253) + "/rule/15/match/127/" +
		strings.Repeat("h", 253)
	d := controlplane.Rule("last", "", 1, hour)
	for i := range 98 {
		d = controlplane.Node(fmt.Sprintf("rule-0-match-%d", i), fmt.Sprintf("rule-0-match-%d", i), d)
	}
	domain := strings.Repeat("n", 63) + "/" + strings.Repeat("g", 253) + "/" + strings.Repeat("l", 253)
	o := considered(t, controlplane.Config(domain, controlplane.Node(route, route, d)))
	if o.set == nil || len(o.problems) > 0 {
		t.Fatal(o.problems)
	}
	entries := []descriptors.Entry{{Key: route, Value: route}}
	for i := 97; i >= 0; i-- {
		key := fmt.Sprintf("rule-0-match-%d", i)
		entries = append(entries, descriptors.Entry{Key: key, Value: key})
	}
	var m descriptors.Match
	o.set.Match(domain, append(entries, descriptors.Entry{Key: "last", Value: "x"}), &m)
	if m.Rule == nil {
		t.Error("the rule at depth 100 does not apply")
	}
}

// many returns 100 routes with 256 rules each, in one domain, as they come over the wire.
func many(t testing.TB) []resource {
	c := controlplane.Config("default/eg/http")
	for i := range 100 {
		route := fmt.Sprintf("httproute/default/route-%03d/rule/0/match/0/www_example_com", i)
		d := controlplane.Node(route, route)
		for j := range 256 {
			key := fmt.Sprintf("rule-%d-match-0", j)
			d.Descriptors = append(d.Descriptors, controlplane.Rule(key, key, uint32(j), hour))
		}
		c.Descriptors = append(c.Descriptors, d)
	}
	return resourcesOf(t, c)
}

func BenchmarkCompile256RulesOf100Routes(b *testing.B) {
	list := many(b)
	for b.Loop() {
		s := &state{maxBytes: DefaultMaxMessage}
		if o := s.consider(list, nil, false); o.set == nil || len(o.set.Rules()) != 25_600 {
			b.Fatal(o.problems)
		}
	}
}

// A domain that has not changed is not translated again.
func TestManyRulesAreTranslatedOnce(t *testing.T) {
	list := many(t)
	s := &state{maxBytes: DefaultMaxMessage}
	o := s.consider(list, nil, false)
	if o.set == nil || len(o.set.Rules()) != 25_600 {
		t.Fatal(o.problems)
	}
	s.take(o)
	if again := s.consider(list, nil, false); again.domains["default/eg/http"] != o.domains["default/eg/http"] {
		t.Error("a domain that has not changed is translated again")
	}
}

// Limits take what is left of a cost that has no room, unless an overlay says otherwise.
func TestOverflowOfLimits(t *testing.T) {
	s := &state{maxBytes: DefaultMaxMessage, overflow: limit.Saturate,
		overlay: overlay.New([]overlay.Entry{{Domain: "d", Rule: "b", Overflow: descriptors.OverflowDebt, MaxDebt: 9}})}
	o := s.consider(resourcesOf(t, controlplane.Config("d", controlplane.Rule("a", "", 7, hour),
		controlplane.Rule("b", "", 7, hour))), nil, false)
	if o.set == nil {
		t.Fatal(o.problems)
	}
	for i, want := range []limit.Spec{{Overflow: limit.Saturate}, {Overflow: limit.Debt, MaxDebt: 9}} {
		want.Algorithm, want.Max, want.Window = limit.FixedWindow, 7, time.Hour
		if got := o.set.Rules()[i].Limits[0].Limit.Spec(); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
}
