package descriptors_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/descriptors/rulefile"
	"github.com/headgate-rls/headgate/internal/kit/units"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/test/golden"
	"github.com/headgate-rls/headgate/test/random"
)

// entries reads "key=value key=value".
func entries(s string) []descriptors.Entry {
	var out []descriptors.Entry
	for _, f := range strings.Fields(s) {
		k, v, _ := strings.Cut(f, "=")
		out = append(out, descriptors.Entry{k, v})
	}
	return out
}

// found returns the path and figures of what matches: "a_b 5/1s", "a no limit",
// "a unlimited", "-" for nothing, "no domain".
func found(s *descriptors.Set, domain, descriptor string) string {
	var m descriptors.Match
	s.Match(domain, entries(descriptor), &m)
	switch {
	case !m.Domain:
		return "no domain"
	case m.Rule == nil:
		return "-"
	case m.Rule.Unlimited:
		return m.Rule.Path + " unlimited"
	case len(m.Rule.Limits) == 0:
		return m.Rule.Path + " no limit"
	}
	l := m.Rule.Limits[0].Limit
	return fmt.Sprintf("%s %d/%s", m.Rule.Path, l.Max(), units.Format(l.Window()))
}

// plain writes rules: lines of key, value ("-" for none) and requests per
// second ("-" for no limit), two spaces per level.
func plain(spec string) string {
	var b strings.Builder
	b.WriteString("domain: d\ndescriptors:\n")
	depth := 0
	for line := range strings.Lines(spec) {
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		level := (len(line) - len(strings.TrimLeft(line, " "))) / 2
		if level > depth {
			fmt.Fprintf(&b, "%s  descriptors:\n", strings.Repeat("    ", depth))
		}
		depth = level
		in := strings.Repeat("    ", depth)
		fmt.Fprintf(&b, "%s- key: %q\n", in, f[0])
		if f[1] != "-" {
			fmt.Fprintf(&b, "%s  value: %q\n", in, f[1])
		}
		if f[2] != "-" {
			fmt.Fprintf(&b, "%s  rate_limit: {unit: second, requests_per_unit: %s}\n", in, f[2])
		}
		for _, more := range f[3:] {
			fmt.Fprintf(&b, "%s  %s\n", in, strings.Replace(more, ":", ": ", 1))
		}
	}
	return b.String()
}

// TestRulesMatchAsInTheReference holds the rows of the reference service's behaviour, in the
// numbering of docs/compatibility.md.
func TestRulesMatchAsInTheReference(t *testing.T) {
	type ask struct{ descriptor, want string }
	for _, tc := range []struct {
		name, rules string
		asks        []ask
	}{
		{"row02_keys_and_values_are_not_joined", "a b_c 1", []ask{
			{"a=b_c", "a_b_c 1/1s"}, {"a_b=c", "-"},
		}},
		{"row03_values_that_are_no_text", "status 404 1\nstatus true 2", []ask{
			{"status=404", "status_404 1/1s"}, {"status=true", "status_true 2/1s"},
		}},
		{"row04_match_order", "k - 1\nk foo* 10\nk foobar* 20\nk foobar 30", []ask{
			{"k=foobar", "k_foobar 30/1s"},     // exact
			{"k=foobar1", "k_foo* 10/1s"},      // first wildcard, not the longest
			{"k=fo", "k 1/1s"},                 // the key alone
			{"other=foobar", "-"},              // nothing
			{"k=foobarfoobar", "k_foo* 10/1s"}, // wildcards have no other order
		}},
		{"row05_depth", "a - 1\n  b x 2\n    c - 3", []ask{
			{"a=1", "a 1/1s"}, {"a=1 b=x", "a.b_x 2/1s"}, {"a=1 b=x c=9", "a.b_x.c 3/1s"},
			{"a=1 b=x c=9 d=1", "-"}, {"a=1 b=y", "-"}, {"b=x a=1", "-"}, {"b=x", "-"},
		}},
		{"row06_no_backtracking", "n x 1\n  m - 2\nn - 3\n  o - 4", []ask{
			{"n=x m=1", "n_x.m 2/1s"}, {"n=y o=1", "n.o 4/1s"},
			{"n=x o=1", "-"},
		}},
		{"row07_nothing_matches", "a - 1", []ask{{"", "-"}, {"b=1", "-"}}},
		{"row08_no_limit_exempts", "a - 1\na x -\na y -\n  b - 2", []ask{
			{"a=x", "a_x no limit"}, {"a=z", "a 1/1s"},
			{"a=y", "-"}, // holds others only; not the default of a either
			{"a=y b=1", "a_y.b 2/1s"},
		}},
		{"row09_empty_value", "a foo* 1\na * 2\nb foo* 3\nb - 4\nc x 5", []ask{
			{"a=", "a_* 2/1s"}, {"b=", "b 4/1s"}, {"c=", "-"},
		}},
		{"row10_wildcards", "a x*y*z 1\na *end 2\na *mid* 3\nh* - 4\n*t x 5\nu_* - 6\np* q* 7", []ask{
			{"a=xyz", "a_x*y*z 1/1s"}, {"a=x--y--z", "a_x*y*z 1/1s"}, {"a=xz", "-"}, {"a=xy", "-"},
			{"a=end", "a_*end 2/1s"}, {"a=the-end", "a_*end 2/1s"}, {"a=ended", "-"},
			{"a=amidst", "a_*mid* 3/1s"}, {"a=mid", "a_*mid* 3/1s"},
			{"h=1", "h* 4/1s"}, {"hello=", "h* 4/1s"},
			{"t=x", "*t_x 5/1s"}, {"cat=x", "*t_x 5/1s"}, {"cat=y", "-"}, {"catx=", "-"},
			{"u_zzz=1", "u_* 6/1s"}, {"u=zzz", "-"},
			{"pa=qb", "p*_q* 7/1s"}, {"pa=b", "-"}, {"p=q", "p*_q* 7/1s"},
		}},
		{"row10_value_wildcards_are_for_values", "a * 1\na_b - 2", []ask{
			{"a=zzz", "a_* 1/1s"}, {"a_zzz=1", "-"}, {"a_b=1", "a_b 2/1s"},
		}},
		{"row10_stars_do_not_overlap", "a ab*ba 1\na x*x*x 2", []ask{
			{"a=aba", "-"}, {"a=abba", "a_ab*ba 1/1s"}, {"a=xx", "-"}, {"a=xxx", "a_x*x*x 2/1s"},
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := mustLoad(t, plain(tc.rules))
			for _, a := range tc.asks {
				if got := found(s, "d", a.descriptor); got != a.want {
					t.Errorf("%s: got %s, want %s", a.descriptor, got, a.want)
				}
			}
		})
	}
	t.Run("row07_unknown_domain", func(t *testing.T) {
		if got := found(mustLoad(t, plain("a - 1")), "e", "a=1"); got != "no domain" {
			t.Error(got)
		}
	})
}

func group(s *descriptors.Set, descriptor string) string {
	var m descriptors.Match
	s.Match("d", entries(descriptor), &m)
	return m.Group
}

func TestReferenceCounters(t *testing.T) {
	t.Run("row11_each_value_counts_alone", func(t *testing.T) {
		s := mustLoad(t, plain("a x* 1\nb - 1\nc x -"))
		for descriptor, want := range map[string]string{
			"a=x1": "1:d1:a2:x1", "a=x2": "1:d1:a2:x2", "b=x1": "1:d1:b2:x1",
			"c=x": "", "z=1": "",
			"a=" + strings.Repeat("x", 200):  limit.MakeGroup([]byte("1:d1:a200:" + strings.Repeat("x", 200))),
			"b=" + strings.Repeat("x", 2000): limit.MakeGroup([]byte("1:d1:b2000:" + strings.Repeat("x", 2000))),
		} {
			if got := group(s, descriptor); got != want {
				t.Errorf("%.20s: got %q, want %q", descriptor, got, want)
			}
		}
	})
	t.Run("row12_share_threshold", func(t *testing.T) {
		s := mustLoad(t, plain("f files/* 1 share_threshold:true\n  u - 2\n    w w* 3\n  v y* 4 share_threshold:true\n"+
			"h* - 5 share_threshold:true"))
		for descriptor, want := range map[string]string{
			"f=files/a": "1:d1:f7:files/*", "f=files/b": "1:d1:f7:files/*", "f=files/*": "1:d1:f7:files/*",
			"f=files/a u=1":      "1:d1:f7:files/*1:u1:1",
			"f=files/a u=1 w=w2": "1:d1:f7:files/*1:u1:11:w2:w2",
			"f=files/a v=y2":     "1:d1:f7:files/*1:v2:y*",
			"h1=x":               "1:d2:h11:*", "h2=y": "1:d2:h21:*",
		} {
			if got := group(s, descriptor); got != want {
				t.Errorf("%s: got %q, want %q", descriptor, got, want)
			}
		}
	})
	t.Run("own_names", func(t *testing.T) {
		s := mustLoad(t, "domain: d\ndescriptors:\n  - key: user\n    limits: [{algorithm: token_bucket, rate: 1/s, "+
			"counter: value}]\n")
		if got := group(s, "user=anna"); got != limit.RawGroup("anna") {
			t.Error(got)
		}
	})
}

// TestRulesKeepTheirSettings holds what is compiled besides matching.
func TestRulesKeepTheirSettings(t *testing.T) {
	s := mustLoad(t, `
domain: shop
descriptors:
  - key: tenant
    value: acme*
    quota_mode: true
    rate_limit: {name: all, unit: month, requests_per_unit: 600, unit_multiplier: 2}
    metadata: {a: 1, b: [x, 2.5, null, true]}
    descriptors:
      - key: path
        value: /pay
        shadow_mode: true
        on_backend_error: deny
        charge: each
        response: {content: slow down, headers: {X-Why: too-fast, retry-after: 30}}
        limits:
          - {name: burst, algorithm: token_bucket, rate: 100/s, burst: 250}
          - {algorithm: sliding_log, limit: 50000, window: 24h, replaces: [{name: all}]}
          - {name: smooth, algorithm: sliding_window, limit: 3000, window: 1m, shadow: true}
          - {algorithm: fixed_window, rate: 7/s}
  - key: free
    rate_limit: {unlimited: true, name: gratis}
`)
	all, pay, free := s.Rules()[0], s.Rules()[1], s.Rules()[2]
	if all.ID != 0 || pay.ID != 1 || !all.Quota || all.Limits[0].KeyPart != "f" || all.Limits[0].Name != "all" ||
		all.Limits[0].Limit.Window().Hours() != 1440 || fmt.Sprint(all.Metadata) != "map[a:1 b:[x 2.5 <nil> true]]" {
		t.Errorf("%+v", all)
	}
	if file, line := pay.Place(); file != "rules.yaml" || line != 10 {
		t.Error(file, line)
	}
	if !pay.Shadow || pay.OnBackendError != descriptors.FailDeny || pay.Charge != descriptors.ChargeEach ||
		pay.Path != "tenant_acme*.path_/pay" ||
		fmt.Sprint(pay.Replaces) != "[all]" ||
		fmt.Sprint(*pay.Response) != "{slow down [{retry-after 30} {x-why too-fast}]}" {
		t.Errorf("%+v", pay)
	}
	var parts []string
	for _, l := range pay.Limits {
		parts = append(parts, l.KeyPart, fmt.Sprint(l.Shadow))
	}
	if got := strings.Join(parts, " "); got != "t:burst false l#1 false w:smooth true f#3 false" {
		t.Error(got)
	}
	if !free.Unlimited {
		t.Errorf("%+v", free)
	}
	var b strings.Builder
	if err := s.Dump(&b); err != nil {
		t.Fatal(err)
	}
	golden.Check(t, "testdata/dump.golden", b.String())
}

func TestMetricLabel(t *testing.T) {
	s := mustLoad(t, `
domain: d
descriptors:
  - key: route
    value_to_metric: true
    descriptors:
      - key: method
        value: GET
        descriptors:
          - {key: user, rate_limit: {unit: minute, requests_per_unit: 60}}
  - key: file
    value: f/*
    share_threshold: true
    value_to_metric: true
    rate_limit: {unit: minute, requests_per_unit: 60}
  - key: all
    value: x*
    value_to_metric: true
    detailed_metric: true
    rate_limit: {unit: minute, requests_per_unit: 60}
  - key: plain
    value: x*
    rate_limit: {unit: minute, requests_per_unit: 60}
  - key: shared
    value: x*
    share_threshold: true
    descriptors:
      - {key: below, detailed_metric: true, rate_limit: {unit: minute, requests_per_unit: 60}}
`)
	for descriptor, want := range map[string]string{
		"route=/a method=GET user=7":       "route_/a.method_GET.user",
		"route= method=GET user=7":         "route.method_GET.user",
		"file=f/1":                         "file_f/*",
		"all=x9":                           "all_x9",
		"plain=x9":                         "plain_x*",
		"shared=x9 below=y":                "shared_x*.below_y",
		"all=x" + strings.Repeat("ü", 900): "all_x" + strings.Repeat("ü", 253),
		"all=x" + "\xff":                   "all_x_",
		"route=" + strings.Repeat("r", 9000) + " method=GET user=7": "route_" + strings.Repeat("r", 506),
	} {
		var m descriptors.Match
		s.Match("d", entries(descriptor), &m)
		if got := s.MetricLabel(m.Rule, entries(descriptor)); got != want {
			t.Errorf("%.40s: got %q, want %q", descriptor, got, want)
		}
	}
}

// An oracle is the matcher without any index: it tries every rule of a level
// in turn, and stars by trying every length.
type oracle struct {
	key, value string
	below      []*oracle
	number     int
}

func globs(pattern, text string) bool {
	if pattern == "" {
		return text == ""
	}
	if pattern[0] == '*' {
		for i := 0; i <= len(text); i++ {
			if globs(pattern[1:], text[i:]) {
				return true
			}
		}
		return false
	}
	return text != "" && text[0] == pattern[0] && globs(pattern[1:], text[1:])
}

func (o *oracle) find(e descriptors.Entry) *oracle {
	star := func(c *oracle) bool { return strings.Contains(c.key+c.value, "*") }
	for _, c := range o.below {
		if !star(c) && c.value != "" && c.key == e.Key && c.value == e.Value {
			return c
		}
	}
	for _, c := range o.below {
		if star(c) && globs(c.key, e.Key) && (c.value == "" || globs(c.value, e.Value)) {
			return c
		}
	}
	for _, c := range o.below {
		if !star(c) && c.value == "" && c.key == e.Key {
			return c
		}
	}
	return nil
}

// yaml writes the rules, each with its number as its limit.
func (o *oracle) yaml(b *strings.Builder, depth int) {
	for _, c := range o.below {
		in := strings.Repeat("    ", depth)
		fmt.Fprintf(b, "%s- key: %q\n", in, c.key)
		if c.value != "" {
			fmt.Fprintf(b, "%s  value: %q\n", in, c.value)
		}
		fmt.Fprintf(b, "%s  rate_limit: {unit: second, requests_per_unit: %d}\n", in, c.number)
		if len(c.below) > 0 {
			fmt.Fprintf(b, "%s  descriptors:\n", in)
			c.yaml(b, depth+1)
		}
	}
}

// grow adds random rules; pick returns random text.
func (o *oracle) grow(pick func(pattern bool) string, rules, depth int, next *int) {
	seen := map[string]bool{}
	for range rules {
		c := &oracle{key: pick(true), value: pick(true), number: *next}
		id := c.key
		if c.value != "" {
			id += "_" + c.value
		}
		if c.key == "" || seen[id] {
			continue
		}
		seen[id] = true
		*next++
		o.below = append(o.below, c)
		if depth > 0 {
			c.grow(pick, rules/4, depth-1, next)
		}
	}
}

// compareWithOracle makes rules and descriptors out of the numbers that random
// returns, and compares the two matchers.
func compareWithOracle(t *testing.T, random func(n int) int) {
	pick := func(pattern bool) string {
		letters := "ab"
		if pattern {
			letters = "ab*"
		}
		s := make([]byte, random(6))
		for i := range s {
			s[i] = letters[random(len(letters))]
		}
		return string(s)
	}
	root, next := &oracle{}, 1
	root.grow(pick, 2+random(24), random(3), &next)
	if len(root.below) == 0 {
		return
	}
	var b strings.Builder
	b.WriteString("domain: d\ndescriptors:\n")
	root.yaml(&b, 0)
	set := mustLoad(t, b.String())
	for range 30 {
		var es []descriptors.Entry
		at := root
		for range 1 + random(3) {
			e := descriptors.Entry{pick(false), pick(false)}
			if random(8) == 0 {
				e.Value = pick(true) // a star in a request is only a character
			}
			es = append(es, e)
			if at != nil {
				at = at.find(e)
			}
		}
		var m descriptors.Match
		set.Match("d", es, &m)
		got, want := int64(0), int64(0)
		if m.Rule != nil {
			got = m.Rule.Limits[0].Limit.Max()
		}
		if at != nil {
			want = int64(at.number)
		}
		if got != want {
			t.Fatalf("%v: got rule %d, want %d in\n%s", es, got, want, b.String())
		}
	}
}

func TestMatchEqualsOracle(t *testing.T) {
	for seed := range random.Seeds(t, 400) {
		r := rand.New(rand.NewPCG(seed, 7))
		compareWithOracle(t, r.IntN)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func FuzzMatch(f *testing.F) {
	f.Add([]byte("some bytes to draw from 0123456789"))
	f.Fuzz(func(t *testing.T, data []byte) {
		i := 0
		compareWithOracle(t, func(n int) int {
			if i++; i > len(data) {
				return 0
			}
			return int(data[i-1]) % n
		})
	})
}

// TestGroupsDiffer: descriptors that lead to different rules, or to values that
// count alone, never share a group.
func TestGroupsDiffer(t *testing.T) {
	for seed := range random.Seeds(t, 300) {
		r := rand.New(rand.NewPCG(seed, 9))
		word := func(letters string) string {
			s := make([]byte, 1+r.IntN(3))
			for i := range s {
				s[i] = letters[r.IntN(len(letters))]
			}
			return string(s)
		}
		var spec strings.Builder
		seen := map[string]bool{}
		for range 12 {
			k, v := word("a*"), word("ab*")
			if seen[k+"_"+v] {
				continue
			}
			seen[k+"_"+v] = true
			share := ""
			if strings.Contains(k+v, "*") && r.IntN(2) == 0 {
				share = "share_threshold:true"
			}
			fmt.Fprintf(&spec, "%s %s 1 %s\n", k, v, share)
		}
		set := mustLoad(t, plain(spec.String()))
		groups := map[string]*descriptors.Rule{}
		for range 400 {
			var m descriptors.Match
			set.Match("d", []descriptors.Entry{{word("a*"), word("ab*")}}, &m)
			if m.Rule == nil {
				continue
			}
			if other := groups[m.Group]; other != nil && other != m.Rule {
				t.Fatalf("%s and %s share %s in\n%s", other.Path, m.Rule.Path, m.Group, spec.String())
			}
			groups[m.Group] = m.Rule
		}
	}
}

func TestMatchAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	s := mustLoad(t, plain("a - 1\n  b x* 2\n  c* *y*z 3\nw x -"))
	for _, tc := range []struct {
		descriptor string
		most       float64
	}{
		{"a=1 b=x2", 1}, {"a=1 cc=xyaz", 1}, {"w=x", 0}, {"no=1", 0},
		{"a=" + strings.Repeat("l", 5000), 1},
	} {
		es := entries(tc.descriptor)
		var m descriptors.Match
		if got := testing.AllocsPerRun(200, func() { s.Match("d", es, &m) }); got > tc.most {
			t.Errorf("%.20s: %v allocations, want at most %v", tc.descriptor, got, tc.most)
		}
	}
}

// manyRules returns n rules of each kind in one level, and descriptors that
// match the last of a kind or nothing.
func manyRules(n int) (string, []string) {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "e v%d 1\nk%d - 1\nw pre%d* 1\nw *suf%d 1\nw a*b%d 1\nw *in%d;* 1\nx%d* - 1\nx* y%d 1\n", i, i, i,
			i, i, i, i, i)
	}
	last := n - 1
	var asks []string
	for _, f := range []string{"e=v%d", "k%d=1", "w=pre%d/x", "w=x/suf%d", "w=a/b%d", "w=zin%d;z", "x%dz=q", "xz=y%d"} {
		asks = append(asks, fmt.Sprintf(f, last))
	}
	return plain(b.String()), append(asks, "w=nothing", "x=nothing", "w="+strings.Repeat("pre1", 50),
		"w="+strings.Repeat("in", 100))
}

// TestStepsDoNotGrow counts what the matcher looks at, with few rules and with
// many. Longer numbers in patterns cost a few steps.
func TestStepsDoNotGrow(t *testing.T) {
	steps := func(n int) []int {
		rules, asks := manyRules(n)
		set := mustLoad(t, rules)
		var out []int
		for _, a := range asks {
			out = append(out, set.StepsOfRules("d", entries(a)))
		}
		return out
	}
	few, many := steps(10), steps(2000)
	for i := range few {
		if many[i] > 3*few[i]+60 {
			t.Errorf("descriptor %d: %d steps with few rules, %d with many", i, few[i], many[i])
		}
	}
}

// TestHostileValues: rules that nest, and values made to follow all of them.
func TestHostileValues(t *testing.T) {
	var spec strings.Builder
	for i := 1; i <= 60; i++ {
		fmt.Fprintf(&spec, "w %s* 1\nw *%s 1\nw *%s* 1\n", strings.Repeat("a", i)+"b", "b"+strings.Repeat("a", i),
			strings.Repeat("ab", i)+"c")
	}
	set := mustLoad(t, plain(spec.String()))
	for _, size := range []int{1000, 10_000} {
		for _, v := range []string{strings.Repeat("a", size), strings.Repeat("ab", size/2),
			"ab" + strings.Repeat("a", size)} {
			if steps := set.StepsOfRules("d", []descriptors.Entry{{"w", v}}); steps > 130*size {
				t.Errorf("%d steps for %d bytes", steps, size)
			}
		}
	}
}

func BenchmarkMatch(b *testing.B) {
	var first float64
	for _, n := range []int{10, 1000, 100_000} {
		// Eight kinds of rules share the number.
		rules, asks := manyRules(max(1, n/8))
		set := mustLoad(b, rules)
		var ds [][]descriptors.Entry
		for _, a := range asks[:8] {
			ds = append(ds, entries(a))
		}
		b.Run(fmt.Sprintf("rules=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			var m descriptors.Match
			for i := 0; b.Loop(); i++ {
				set.Match("d", ds[i%len(ds)], &m)
			}
			per := float64(b.Elapsed().Nanoseconds()) / float64(b.N)
			if first == 0 {
				first = per
			}
			b.ReportMetric(per/first, "ratio")
		})
	}
}

func BenchmarkMatchWildcards(b *testing.B) {
	for _, n := range []int{10, 100_000} {
		var spec strings.Builder
		for i := range n {
			fmt.Fprintf(&spec, "path /api/v%d/* 1\n", i)
		}
		set := mustLoad(b, plain(spec.String()))
		b.Run(fmt.Sprintf("wildcards=%d", n), func(b *testing.B) {
			es := []descriptors.Entry{{"path", fmt.Sprintf("/api/v%d/users", n-1)}}
			b.ReportAllocs()
			var m descriptors.Match
			for b.Loop() {
				set.Match("d", es, &m)
			}
		})
	}
}

func BenchmarkLoad(b *testing.B) {
	rules, _ := manyRules(12_500)
	b.SetBytes(int64(len(rules)))
	for b.Loop() {
		mustLoad(b, rules)
	}
}

// The text of a rule is matched before wildcards, also where it holds a *. Envoy Gateway has such
// texts in keys and values, and the longer one behind the shorter.
func TestLiteralTextComesBeforeWildcards(t *testing.T) {
	const rules = `domain: d
descriptors:
  - {key: "match/0/*_example_com", value: "match/0/*_example_com", rate_limit: {unit: hour, requests_per_unit: 100}}
  - {key: "match/0/*_a_example_com", value: "match/0/*_a_example_com", rate_limit: {unit: hour, requests_per_unit: 5}}
  - {key: host, value: "*.com", rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: host, value: "*.b.com", rate_limit: {unit: hour, requests_per_unit: 2}}
  - {key: host, value: "x.b.com", rate_limit: {unit: hour, requests_per_unit: 3}}
`
	const shared = `domain: d
descriptors:
  - {key: "k*", value: "*", share_threshold: true, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: "k1", value: "*", rate_limit: {unit: hour, requests_per_unit: 2}}
`
	for _, c := range []struct {
		rules, key, value string
		want              int64
	}{
		{rules, "match/0/*_a_example_com", "match/0/*_a_example_com", 5},
		{rules, "match/0/*_example_com", "match/0/*_example_com", 100},
		{rules, "match/0/x_a_example_com", "match/0/x_a_example_com", 100}, // what either matches is the first one's
		{rules, "host", "*.b.com", 2},
		{rules, "host", "*.com", 1},
		{rules, "host", "y.b.com", 1},
		{rules, "host", "x.b.com", 3},
		{shared, "k1", "*", 1}, // else its hits would count under the first rule's shared counter
	} {
		set, problems := rulefile.Load([]rulefile.Source{{Name: "f", Data: []byte(c.rules)}}, rulefile.Options{})
		if set == nil {
			t.Fatal(problems)
		}
		var m descriptors.Match
		set.Match("d", []descriptors.Entry{{Key: c.key, Value: c.value}}, &m)
		if m.Rule == nil || m.Rule.Limits[0].Limit.Max() != c.want {
			t.Errorf("%s=%s leads to %v, want the limit %d", c.key, c.value, m.Rule, c.want)
		}
	}
}
