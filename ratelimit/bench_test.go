package ratelimit

import (
	"context"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/backends/memory"
	"github.com/headgate-rls/headgate/descriptors/rulefile"
	"github.com/headgate-rls/headgate/limit"
)

// BenchmarkDecide measures one request of one descriptor from decoding to
// encoding, with few rules and with many beside the one that matches.
func BenchmarkDecide(b *testing.B) {
	const most = 4_000_000_000
	for _, n := range []int{10, 1000, 100_000} {
		c := decideCase{}
		c.rules.WriteString("domain: d\ndescriptors:\n")
		for i := range n {
			fmt.Fprintf(&c.rules, "- {key: k, value: v%d, rate_limit: {unit: hour, requests_per_unit: %d}}\n", i, most)
		}
		for i := range 10 { // the same ten rules are asked, however many there are
			c.values = append(c.values, fmt.Sprint("v", i*(n/10)))
		}
		b.Run(fmt.Sprint(n, "_rules"), c.run)
	}
	for _, row := range []struct {
		name       string
		keys       int
		most, used uint32
	}{
		{"near", 10, most, most / 8 * 7},
		{"denied", 10, 0, 0},
		{"denied_keys", 200_000, 0, 0},
	} {
		c := decideCase{used: row.used, denied: row.most == 0}
		fmt.Fprintf(&c.rules, "domain: d\ndescriptors: [{key: k, rate_limit: {unit: hour, requests_per_unit: %d}}]", row.most)
		for i := range row.keys {
			c.values = append(c.values, fmt.Sprint("visitor-", i))
		}
		b.Run(row.name, c.run)
	}
}

type decideCase struct {
	rules  strings.Builder
	values []string
	// entries are those of one request of several descriptors, in the place of values.
	entries []string
	used    uint32 // hits before
	denied  bool
}

func (c *decideCase) run(b *testing.B) {
	decide := c.begin(b, sinks, NewInsight())
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		decide(i)
	}
}

// begin returns what decides the i-th request, from decoding to encoding, shown to these sinks.
func (c *decideCase) begin(b *testing.B, seen []sink, more ...Sink) (decide func(i int)) {
	set, problems := rulefile.Load([]rulefile.Source{{Name: "bench", Data: []byte(c.rules.String())}}, rulefile.Options{})
	if set == nil {
		b.Fatal(problems)
	}
	all := sinks
	sinks = seen
	defer func() { sinks = all }()
	be := memory.New(memory.Config{})
	s, err := New(Config{
		Backend: be, Caps: memory.Caps(), Local: be, Log: slog.New(slog.DiscardHandler), Encoder: Wire.Encoder,
		Now: func() limit.Instant { return limit.InstantOf(time.Now()) }, Sinks: more,
	}, set)
	if err != nil {
		b.Fatal(err)
	}
	var encoded [][]byte
	for _, v := range c.values {
		encoded = append(encoded, encodedRequest(b, "k="+v))
	}
	if len(c.entries) > 0 {
		encoded = append(encoded, encodedRequest(b, c.entries...))
	}
	var req Request
	var resp Response
	var out []byte
	reqs, resps := []*Request{&req}, []*Response{&resp}
	ctx := context.Background()
	for _, v := range c.values {
		if c.used > 0 {
			first := &Request{Domain: "d", Hits: c.used, Descriptors: []Descriptor{desc("k=" + v)}}
			s.Decide(ctx, []*Request{first}, resps)
		}
	}
	b.Cleanup(func() {
		counted := len(resp.Statuses) == max(len(c.entries), 1) && resp.Statuses[0].limit != nil
		if resp.OverLimit != c.denied || !counted || len(out) == 0 {
			b.Fatalf("a limit should have applied: %+v", resp)
		}
	})
	return func(i int) {
		if err := Wire.Decode(&req, encoded[i%len(encoded)]); err != nil {
			b.Fatal(err)
		}
		s.Decide(ctx, reqs, resps)
		out = Wire.Append(&resp, out[:0])
	}
}

// BenchmarkKept is what it costs to keep who is limited: what a request takes more with these sinks than without them,
// by the fastest of many short runs of both in turn. docs/performance.md has it as a share of a whole call.
func BenchmarkKept(b *testing.B) {
	for _, row := range []struct {
		name       string
		keys       int
		most, used uint32
		kept       []Sink // beside coverDescriptors
	}{
		{"admitted", 1000, 4_000_000_000, 0, []Sink{NewInsight()}},
		{"near", 1000, 4_000_000_000, 3_500_000_000, []Sink{NewInsight()}},
		{"denied", 1000, 0, 0, []Sink{NewInsight()}}, {"coverage alone", 1000, 4_000_000_000, 0, nil},
	} {
		without := slices.DeleteFunc(slices.Clone(sinks), func(s sink) bool {
			return reflect.ValueOf(coverDescriptors).Pointer() == reflect.ValueOf(s.see).Pointer()
		})
		if len(without) != len(sinks)-1 {
			b.Fatalf("%d sinks are left of %d", len(without), len(sinks))
		}
		b.Run(row.name, func(b *testing.B) {
			c := decideCase{used: row.used, denied: row.most == 0}
			fmt.Fprintf(&c.rules, "domain: d\ndescriptors: [{key: k, rate_limit: {unit: hour, requests_per_unit: %d}}]",
				row.most)
			for i := range row.keys {
				c.values = append(c.values, fmt.Sprint("visitor-", i))
			}
			variants := []func(int){c.begin(b, sinks, row.kept...), c.begin(b, without)}
			least := []time.Duration{time.Hour, time.Hour}
			const calls = 2000
			for b.Loop() {
				for v, decide := range variants {
					began := time.Now()
					for i := range calls {
						decide(i)
					}
					least[v] = min(least[v], time.Since(began))
				}
			}
			ns := func(d time.Duration) float64 { return float64(d) / calls }
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(ns(least[0]), "ns/call")
			b.ReportMetric(ns(least[0]-least[1]), "ns/kept")
		})
	}
}

// BenchmarkLease measures a request in flight: the question, and the call that
// ends it, both with the proxy's name.
func BenchmarkLease(b *testing.B) {
	set, problems := rulefile.Load(
		[]rulefile.Source{
			{Name: "bench", Data: []byte("domain: d\ndescriptors:\n- {key: k, concurrency: [{threshold: 1000, response: " +
				"{statusCode: 429}}]}\n")}}, rulefile.Options{})
	if set == nil {
		b.Fatal(problems)
	}
	be := memory.New(memory.Config{})
	s, err := New(Config{
		Backend: be, Caps: memory.Caps(), Local: be, Log: slog.New(slog.DiscardHandler), Encoder: Wire.Encoder,
		Now: func() limit.Instant { return limit.InstantOf(time.Now()) },
	}, set)
	if err != nil {
		b.Fatal(err)
	}
	var resp Response
	resps, ctx := []*Response{&resp}, context.Background()
	ask := []*Request{{Domain: "d", Owner: "envoy-1", Descriptors: []Descriptor{desc("k=v")}}}
	end := []*Request{{Domain: "d", Owner: "envoy-1", Descriptors: []Descriptor{desc(OpKey + "=release,lease=x")}}}
	var out []byte
	b.ReportAllocs()
	for b.Loop() {
		s.Decide(ctx, ask, resps)
		out = Wire.Append(&resp, out[:0])
		token := resp.metadata[len(resp.metadata)-1]
		end[0].Descriptors[0].Entries[1].Value = tokenIn(token)
		s.Decide(ctx, end, resps)
	}
	if n := be.Stats().Leases; n != 0 {
		b.Fatalf("%d leases are left", n)
	}
}

// tokenIn returns the token at the end of the encoded metadata of a grant by
// replica 0.
func tokenIn(metadata []byte) string {
	return string(metadata[strings.Index(string(metadata), "AgAAAA"):])
}

// BenchmarkBudget measures a request whose cost is known afterwards, the question and its end:
// where it asks and reports its cost, and where it reserves and settles, by a token or as the
// oldest.
func BenchmarkBudget(b *testing.B) {
	ends := func(list ...Descriptor) []*Request {
		return []*Request{{Domain: "d", Owner: "envoy-1", Descriptors: list}}
	}
	for _, row := range []struct {
		name, rule string
		ask, end   []*Request
	}{
		{"report", "overflow: debt", ends(desc("k=v").withHits(0)), ends(desc("k=v").withHits(20))},
		{"settle", "reserve: {amount: 100}", ends(desc("k=v")), ends(ofToken("settle", "").withHits(20))},
		{"settle_oldest", "reserve: {amount: 100, match: oldest}", ends(desc("k=v").withHits(0)),
			ends(desc("k=v").withHits(20))},
	} {
		b.Run(row.name, func(b *testing.B) {
			rules := "domain: d\ndescriptors:\n- {key: k, rate_limit: {unit: hour, requests_per_unit: 4000000000}, " +
				row.rule + "}\n"
			set, problems := rulefile.Load([]rulefile.Source{{Name: "bench", Data: []byte(rules)}}, rulefile.Options{})
			if set == nil {
				b.Fatal(problems)
			}
			be := memory.New(memory.Config{})
			s, err := New(Config{Backend: be, Caps: memory.Caps(), Local: be, Log: slog.New(slog.DiscardHandler),
				Encoder: Wire.Encoder, Now: func() limit.Instant { return limit.InstantOf(time.Now()) }}, set)
			if err != nil {
				b.Fatal(err)
			}
			var resp Response
			resps, ctx := []*Response{&resp}, context.Background()
			var out []byte
			b.ReportAllocs()
			for b.Loop() {
				s.Decide(ctx, row.ask, resps)
				out = Wire.Append(&resp, out[:0])
				if row.name == "settle" {
					row.end[0].Descriptors[0].Entries[1].Value = tokenIn(resp.metadata[0])
				}
				s.Decide(ctx, row.end, resps)
				out = Wire.Append(&resp, out[:0])
			}
			if n := be.Stats().Leases; n != 0 || resp.Err != nil || len(out) == 0 {
				b.Fatalf("%d reservations are left, error %v", n, resp.Err)
			}
		})
	}
}
