package envoyconf

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/descriptors/files"
	"github.com/headgate-rls/headgate/descriptors/rulefile"
	"github.com/headgate-rls/headgate/test/golden"
)

// options are what the program's defaults are.
func options() Options {
	return Options{
		Version: Version{1, 40}, Address: []string{"127.0.0.1:8081"}, Services: []string{"127.0.0.1:8082"},
		Upstream: []string{"127.0.0.1:9000"},
		Listen:   10000, Admin: "127.0.0.1:9901", LeaseKey: "lease", Owner: "envoy", Timeout: 500 * time.Millisecond,
		Tokens: TokensLua,
	}
}

// load reads a file of rules.
func load(t *testing.T, path string) (*descriptors.Set, *descriptors.Spec) {
	t.Helper()
	sources, err := files.ReadPaths([]string{path}, files.Names{})
	if err != nil {
		t.Fatal(err)
	}
	return loadSources(t, sources...)
}

func loadSources(t *testing.T, sources ...rulefile.Source) (*descriptors.Set, *descriptors.Spec) {
	t.Helper()
	set, spec, problems := rulefile.LoadSpec(sources, rulefile.Options{})
	if set == nil {
		t.Fatalf("the rules do not load: %v", problems)
	}
	return set, spec
}

func configure(t *testing.T, path string, change ...func(*Options)) *Config {
	t.Helper()
	opt := options()
	for _, f := range change {
		f(&opt)
	}
	set, spec := load(t, path)
	c, err := New(set, spec, opt)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

const meshService = "headgate.infra.svc.cluster.local"

// A printed is a configuration for rules of testdata.
type printed struct {
	name  string // of the golden file
	rules string
	form  func(*Config) ([]byte, error)
	opt   func(*Options)
}

func all() []printed {
	plain, native := func(*Options) {}, func(o *Options) { o.Tokens = TokensNative }
	return []printed{
		{"one", "one", (*Config).Bootstrap, plain},
		{"one.parts", "one", (*Config).Fragments, plain},
		{"one.istio", "one", (*Config).EnvoyFilter, func(o *Options) { o.Owner = "" }},
		{"tiers", "tiers", (*Config).Bootstrap, func(o *Options) {
			o.Version, o.Owner, o.OwnerGrace = Version{1, 36}, "%ENVIRONMENT(HEADGATE_OWNER)%", 3*time.Second
			o.Address = []string{"headgate-0.infra:8081", "headgate-1.infra:8081"}
			o.Services = []string{"headgate-0.infra:8082", "headgate-1.infra:8082"}
		}},
		{"tiers.parts", "tiers", (*Config).Fragments, plain},
		{"tiers.istio", "tiers", (*Config).EnvoyFilter, func(o *Options) { o.Owner = "gateway" }},
		{"soap", "soap", (*Config).Bootstrap, func(o *Options) { o.LeaseKey, o.Deny = "users_lease", true }},
		{"tree", "tree", (*Config).Bootstrap, func(o *Options) { o.Address = []string{"unix:/run/headgate/rls.sock"} }},
		{"hits", "hits", (*Config).Bootstrap, plain},
		{"llm", "llm", (*Config).Bootstrap, func(o *Options) { o.LeaseKey = "budget" }},
		{"llm.parts", "llm", (*Config).Fragments, plain},
		{"llm.istio", "llm", (*Config).EnvoyFilter, func(o *Options) { o.Owner = IstioOwner }},
		{"native", "llm", (*Config).Bootstrap, native},
		{"native.parts", "llm", (*Config).Fragments, native},
		{"slow", "slow", (*Config).EnvoyFilter, plain},
		{"choose", "choose", (*Config).Bootstrap, func(o *Options) {
			o.Version, o.Upstream = Version{1, 36}, []string{"openai=openai.internal:8000", "azure=azure.internal:8000"}
		}},
		{"choose.parts", "choose", (*Config).Fragments, plain},
		{"clients", "clients", (*Config).Bootstrap, plain},
		{"clients.parts", "clients", (*Config).Fragments, plain},
		{"mesh", "one", (*Config).EnvoyFilter, func(o *Options) {
			o.Owner = IstioOwner
			o.Istio = Istio{Service: meshService, Name: "shop-limits", Namespace: "shop",
				Selector: []string{"app=shop", "tier=front"}}
		}},
		{"tls", "one", (*Config).Bootstrap, func(o *Options) {
			o.Address, o.Services = []string{"headgate.infra:8081"}, []string{"headgate.infra:8082"}
			o.TLS = TLS{CA: "/etc/envoy/tls/ca.crt", Cert: "/etc/envoy/tls/tls.crt", Key: "/etc/envoy/tls/tls.key",
				SANs: []string{"spiffe://cluster.local/ns/infra/sa/headgate", "headgate.infra.svc"}}
		}},
	}
}

func (p printed) print(t *testing.T) []byte {
	t.Helper()
	text, err := p.form(configure(t, "testdata/"+p.rules+".yaml", p.opt))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestOutputMatchesGoldenFiles(t *testing.T) {
	for _, p := range all() {
		t.Run(p.name, func(t *testing.T) {
			golden.Check(t, filepath.Join("testdata", p.name+".golden"), string(p.print(t)))
		})
	}
}

// TestOutputIsStable: maps have no order, but what is printed has.
func TestOutputIsStable(t *testing.T) {
	for range 20 {
		a, b := all()[3].print(t), all()[3].print(t)
		if !bytes.Equal(a, b) {
			t.Fatalf("%s\n%s", a, b)
		}
	}
}

func TestVersionsNeedTwoOrThreeNumbers(t *testing.T) {
	for s, want := range map[string]Version{"1.40": {1, 40}, "1.36.4": {1, 36}, "v1.38.3": {1, 38}, "2.0": {2, 0}} {
		if got, err := ParseVersion(s); err != nil || got != want {
			t.Errorf("%q is %v (%v)", s, got, err)
		}
	}
	for _, s := range []string{"", "1", "1.x", "latest", "1.2.3.4", "-1.40", "1.-4"} {
		if v, err := ParseVersion(s); err == nil {
			t.Errorf("%q is %v", s, v)
		}
	}
}

// TestRefusedRulesSayWhatToDo: the error says what is impossible, and what to do instead.
func TestRefusedRulesSayWhatToDo(t *testing.T) {
	const mixed = "domain: d\nresources:\n- {path: /a, release: hits, concurrency: [{threshold: 1, response: " +
		"{statusCode: 429}}]}\n"
	for name, c := range map[string]struct {
		rules  string
		change func(*Options)
		want   string
	}{
		"old":        {change: func(o *Options) { o.Version = Version{1, 35} }, want: "envoy 1.35 is too old"},
		"very old":   {change: func(o *Options) { o.Version = Version{0, 99} }, want: "from 1.36 on"},
		"no address": {change: func(o *Options) { o.Address = nil }, want: "the address of headgate is missing (--address)"},
		"no port": {change: func(o *Options) { o.Services = []string{"headgate"} },
			want: `must be host:port or unix:PATH, not "headgate"`},
		"bad port": {change: func(o *Options) { o.Upstream = []string{"app:70000"} }, want: "the application (--upstream): "},
		"no path":  {change: func(o *Options) { o.Address = []string{"unix:"} }, want: "has no path"},
		"listen":   {change: func(o *Options) { o.Listen = 70000 }, want: "--listen: 70000 is not a port"},
		"oldest": {rules: "domain: d\ndescriptors:\n- {key: x-user, rate_limit: {unit: hour, requests_per_unit: 9}, " +
			"reserve: {amount: 3, match: oldest}}\n", want: "the rule x-user has match: oldest"},
		"no lease key":   {change: func(o *Options) { o.LeaseKey = "" }, want: "needs a key"},
		"owner replaced": {change: func(o *Options) { o.Owner = "%HOSTNAME%" }, want: "%ENVIRONMENT(NAME)%"},
		"owner two":      {change: func(o *Options) { o.Owner = "%ENVIRONMENT(A)%%HOSTNAME%" }, want: "must be plain text"},
		"owner long":     {change: func(o *Options) { o.Owner = strings.Repeat("x", 257) }, want: "at most 256"},
		"owner broken":   {change: func(o *Options) { o.Owner = "a\nb" }, want: "printable"},
		"no timeout":     {change: func(o *Options) { o.Timeout = 0 }, want: "at least 1ms"},
		"domain":         {change: func(o *Options) { o.Domain = "other" }, want: `no domain "other", but d`},
		"hits on 1.37": {rules: mixed, change: func(o *Options) { o.Version = Version{1, 37} },
			want: "/a has release: hits, but Envoy can count down from 1.38 on only, and this is for 1.37"},
		"hits and leases": {rules: mixed + "- {path: /b, concurrency: [{threshold: 1, response: {statusCode: 429}}]}\n",
			want: "*:/a has release: hits, and *:/b leases or limits"},
		"hits and limits": {rules: mixed + "- {path: /b, limits: [{algorithm: sliding_log, limit: 1, window: 1s}]}\n",
			want: "*:/b leases or limits"},
		"hits with limits": {rules: "domain: d\ndescriptors:\n- {key: x-a, release: hits, concurrency: [{threshold: 1, " +
			"response: {statusCode: 429}}], rate_limit: {unit: day, requests_per_unit: 1}}\n",
			want: "descriptors of x-a"},
	} {
		t.Run(name, func(t *testing.T) {
			if c.rules == "" {
				c.rules = "domain: d\ndescriptors: [{key: a, rate_limit: {unit: day, requests_per_unit: 1}}]\n"
			}
			opt := options()
			if c.change != nil {
				c.change(&opt)
			}
			set, spec := loadSources(t, rulefile.Source{Name: "rules.yaml", Data: []byte(c.rules)})
			if _, err := New(set, spec, opt); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("the error is %v, want %q", err, c.want)
			}
		})
	}
	set, spec := loadSources(t,
		rulefile.Source{Name: "a", Data: []byte("domain: a\ndescriptors: [{key: a}]")},
		rulefile.Source{Name: "b", Data: []byte("domain: b\ndescriptors: [{key: a}]")})
	if _, err := New(set, spec, options()); err == nil || !strings.Contains(err.Error(), "a, b") {
		t.Errorf("of two domains: %v", err)
	}
}

// TestFlushIntervalFollowsTheLease: the access log reports requests three times in a
// lease's life and in an owner's grace.
func TestFlushIntervalFollowsTheLease(t *testing.T) {
	for rules, want := range map[string]string{"one": "access_log_flush_interval: 5s",
		"tiers": "access_log_flush_interval: 2s"} {
		text, err := configure(t, "testdata/"+rules+".yaml").Bootstrap()
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s: no %q (%v)", rules, want, err)
		}
	}
	text, err := configure(t, "testdata/tiers.yaml",
		func(o *Options) { o.OwnerGrace = 200 * time.Millisecond }).Bootstrap()
	if err != nil || !containsAll(string(text), "access_log_flush_interval: 0.066s", "buffer_flush_interval: 0.013s") {
		t.Errorf("a short grace: %s (%v)", text, err)
	}
}

// TestNothingInFlight: without requests in flight there is nothing to tell.
func TestNothingInFlight(t *testing.T) {
	set, spec := loadSources(t, rulefile.Source{Name: "a",
		Data: []byte("domain: a\ndescriptors: [{key: remote_address, rate_limit: {unit: day, requests_per_unit: 1}}]")})
	c, err := New(set, spec, options())
	if err != nil {
		t.Fatal(err)
	}
	text, err := c.Bootstrap()
	for _, word := range []string{"access_log", "release", "http.fault", "lease", "local_reply", "x-headgate-id"} {
		if err != nil || strings.Contains(string(text), word) {
			t.Errorf("%s is in it (%v):\n%s", word, err, text)
		}
	}
}

func containsAll(s string, parts ...string) bool {
	for _, p := range parts {
		if !strings.Contains(s, p) {
			return false
		}
	}
	return true
}

// parse reads YAML as what JSON knows.
func parse(t *testing.T, text []byte) map[string]any {
	t.Helper()
	dec := yaml.NewDecoder(bytes.NewReader(text))
	var m map[string]any
	if err := dec.Decode(&m); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	if err := dec.Decode(new(any)); !errors.Is(err, io.EOF) {
		t.Fatalf("a second document: %v", err)
	}
	return m
}

func toJSON(t *testing.T, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(fmt.Errorf("%w: %v", err, v))
	}
	return b
}

// TestNamesCannotBreakOut: whatever rules and operators call things, it stays one value.
func TestNamesCannotBreakOut(t *testing.T) {
	const nasty = "a: [b], {c} \"d\" 'e' # f\n- g: %s\u2028"
	rules := fmt.Sprintf("domain: %q\ndescriptors:\n"+
		"- {key: generic_key, value: %[1]q, rate_limit: {unit: day, requests_per_unit: 1}}\n"+
		"- {key: %[1]q, rate_limit: {unit: day, requests_per_unit: 1}}\n"+
		"- {key: destination_cluster, concurrency: [{threshold: 1, response: {statusCode: 503}}]}", nasty)
	set, spec := loadSources(t, rulefile.Source{Name: "a", Data: []byte(rules)})
	opt := options()
	opt.Domain, opt.LeaseKey, opt.Istio.Selector = nasty, nasty, []string{nasty + "=" + nasty}
	opt.TLS = TLS{CA: nasty, SANs: []string{nasty}}
	c, err := New(set, spec, opt)
	if err != nil {
		t.Fatal(err)
	}
	forms := []func() ([]byte, error){c.Bootstrap, c.Fragments, c.EnvoyFilter}
	for i, form := range forms {
		text, err := form()
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(fmt.Sprint(parse(t, text)), nasty); n != []int{13, 12, 14}[i] {
			t.Errorf("it is there %d times in\n%s", n, text)
		}
	}
}
