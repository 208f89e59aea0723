package xds

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	rlsconf "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/internal/kit/units"
	"github.com/headgate-rls/headgate/test/controlplane"
)

// A feature is what a control plane sends for one feature, and what Envoy asks then.
type feature struct {
	name    string
	configs []*rlsconf.RateLimitConfig
	asks    []asked
}

type asked struct {
	domain  string
	entries []descriptors.Entry
	want    string
	same    bool // counts with the one before
}

// readFeatures reads testdata/envoygateway.txt, which explains itself.
func readFeatures(t *testing.T) []*feature {
	t.Helper()
	text, err := os.ReadFile("testdata/envoygateway.txt")
	if err != nil {
		t.Fatal(err)
	}
	var list []*feature
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if name, ok := strings.CutPrefix(line, "== "); ok {
			list = append(list, &feature{name: name})
			continue
		}
		f := list[len(list)-1]
		ask, isAsk := strings.CutPrefix(line, "? ")
		domain, rest, _ := strings.Cut(ask, ": ")
		at := strings.LastIndex(rest, " = ")
		chain, limit := strings.Split(rest[:at], " > "), rest[at+3:]
		if isAsk {
			limit, same := strings.CutSuffix(limit, " (same as above)")
			a := asked{domain: domain, want: limit, same: same}
			for _, entry := range chain {
				key, value := readEntry(entry)
				a.entries = append(a.entries, descriptors.Entry{Key: key, Value: value})
			}
			f.asks = append(f.asks, a)
			continue
		}
		f.add(t, domain, chain, limit)
	}
	return list
}

func readEntry(text string) (key, value string) {
	if both, ok := strings.CutPrefix(text, "@"); ok {
		return both, both
	}
	key, value, _ = strings.Cut(text, "=")
	return key, value
}

// add adds a chain. What has the same beginning shares its nodes, but for the last one
// of a chain, which is sent again, as Envoy Gateway does.
func (f *feature) add(t *testing.T, domain string, chain []string, limit string) {
	var conf *rlsconf.RateLimitConfig
	for _, c := range f.configs {
		if c.Domain == domain {
			conf = c
		}
	}
	if conf == nil {
		conf = controlplane.Config(domain)
		f.configs = append(f.configs, conf)
	}
	list := &conf.Descriptors
	for i, entry := range chain {
		entry, shadow := strings.CutSuffix(entry, " shadow")
		key, value := readEntry(entry)
		var d *rlsconf.RateLimitDescriptor
		for _, old := range *list {
			if old.Key == key && old.Value == value && old.RateLimit == nil {
				d = old
			}
		}
		if d == nil {
			d = &rlsconf.RateLimitDescriptor{Key: key, Value: value, ShadowMode: shadow}
			*list = append(*list, d)
		}
		if i == len(chain)-1 {
			words := strings.Fields(limit)
			number, unit, _ := strings.Cut(words[0], "/")
			n, err := strconv.ParseUint(number, 10, 32)
			u, ok := units.Named(unit)
			if err != nil || !ok {
				t.Fatalf("%s: %q is no limit", f.name, limit)
			}
			d.RateLimit = &rlsconf.RateLimitPolicy{RequestsPerUnit: uint32(n), Unit: rlsconf.RateLimitUnit(u.Number)}
			d.DetailedMetric = strings.Contains(limit, "detailed")
		}
		list = &d.Descriptors
	}
}

// figures renders the limit of a match as the file does.
func figures(m *descriptors.Match) string {
	if m.Rule == nil || len(m.Rule.Limits) == 0 {
		return "none"
	}
	l := m.Rule.Limits[0].Limit
	u, _ := units.Of(l.Window())
	text := fmt.Sprintf("%d/%s", l.Max(), u.Name)
	if m.Rule.Shadow {
		text += " shadow"
	}
	if m.Rule.Metric.Detailed {
		text += " detailed"
	}
	return text
}

// For each feature of Envoy Gateway, what it sends makes Envoy's requests find their
// limit, and no other, and each counter counts what belongs together.
func TestEnvoyGatewaysFeatures(t *testing.T) {
	features := readFeatures(t)
	if len(features) < 26 {
		t.Fatalf("only %d features", len(features))
	}
	for _, f := range features {
		t.Run(f.name, func(t *testing.T) {
			var list []resource
			for _, c := range f.configs {
				encoded, err := codec{}.Marshal(controlplane.Pack(c))
				if err != nil {
					t.Fatal(err)
				}
				r, err := open(encoded.Materialize())
				if err != nil {
					t.Fatal(err)
				}
				list = append(list, r)
			}
			s := &state{maxBytes: DefaultMaxMessage}
			o := s.consider(list, nil, false)
			if o.set == nil || len(o.problems) > 0 || len(o.warnings) > 0 {
				t.Fatalf("problems %v, warnings %v", o.problems, o.warnings)
			}
			last, groups := "", map[string]bool{}
			for _, a := range f.asks {
				var m descriptors.Match
				o.set.Match(a.domain, a.entries, &m)
				if got := figures(&m); got != a.want {
					t.Errorf("%s: %v has the limit %s, want %s", a.domain, a.entries, got, a.want)
				}
				if m.Group != "" && (a.same && m.Group != last || !a.same && groups[m.Group]) {
					t.Errorf("%s: %v counts in %q, after %v", a.domain, a.entries, m.Group, groups)
				}
				last, groups[m.Group] = m.Group, true
			}
		})
	}
}
