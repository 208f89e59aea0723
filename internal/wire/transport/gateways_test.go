package transport_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/internal/wire/messages"
	"github.com/headgate-rls/headgate/internal/wire/transport"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/ratelimit"
)

// documentedRules returns the rules of a domain in docs/tokens.md, and with them text in place of some.
func documentedRules(t *testing.T, domain string) string {
	t.Helper()
	page, err := os.ReadFile("../../../docs/tokens.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(page), -1) {
		if strings.HasPrefix(block[1], "domain: "+domain+"\n") && strings.Contains(block[1], "match: oldest") {
			return strings.ReplaceAll(block[1], "algorithm: token_bucket, rate: 1000000/min",
				"algorithm: fixed_window, limit: 1000000, window: 30d")
		}
	}
	t.Fatalf("docs/tokens.md has no rules of domain %s", domain)
	return ""
}

// quotaRules are what Envoy AI Gateway's own control plane sends for two backends with a quota, with the fields that
// the overlay in docs/tokens.md adds.
func quotaRules(t *testing.T) string {
	t.Helper()
	page, _ := os.ReadFile("../../../docs/tokens.md")
	pattern := regexp.MustCompile(`- domain: ai-gateway-quota\n  rule: "\*"\n  (reserve: .*)\n`)
	overlay := pattern.FindStringSubmatch(string(page))
	if overlay == nil {
		t.Fatal("docs/tokens.md has no overlay of ai-gateway-quota")
	}
	rules := "domain: ai-gateway-quota\ndescriptors:\n"
	for _, backend := range []string{"default/a", "default/b"} {
		rules += "- key: backend_name\n  value: " + backend + "\n  descriptors:\n" +
			"  - {key: model_name_override, value: m, quota_mode: true,\n" +
			"     rate_limit: {unit: year, requests_per_unit: 1000000}, " + overlay[1] + "}\n"
	}
	return rules
}

// A gatewayCall is what a gateway sends, in one call.
type gatewayCall []*common.RateLimitDescriptor

// hit makes a descriptor of keys and values. Without hits the field is absent, as gateways leave it out.
func hit(hits *wrapperspb.UInt64Value, pairs ...string) *common.RateLimitDescriptor {
	d := &common.RateLimitDescriptor{HitsAddend: hits}
	for i := 0; i < len(pairs); i += 2 {
		d.Entries = append(d.Entries, &common.RateLimitDescriptor_Entry{Key: pairs[i], Value: pairs[i+1]})
	}
	return d
}

func hits(n uint64) *wrapperspb.UInt64Value { return wrapperspb.UInt64(n) }

// TestGatewaysAskAndReport plays what each gateway sends, as its sources have it, on the rules that docs/tokens.md
// names for it: of 80 streams at once a budget of 1,000,000 lets so many start as reservations have room, and
// afterwards what was reported is charged, and nothing else.
func TestGatewaysAskAndReport(t *testing.T) {
	const cost = 5000
	for _, g := range []struct {
		name        string
		rules       func(t *testing.T) string
		domain      string
		ask, report gatewayCall
		start       int      // of 80 streams
		left        []uint32 // of the budgets, once all that have started have reported
		probes      gatewayCall
	}{
		{ // internal/xds/translator/ratelimit.go of v1.9.1
			name: "Envoy Gateway", domain: "llm",
			rules:  func(t *testing.T) string { return documentedRules(t, "llm") },
			ask:    gatewayCall{hit(hits(0), "user", "u")},
			report: gatewayCall{hit(hits(cost), "user", "u")},
			start:  61, left: []uint32{1_000_000 - 61*cost},
			probes: gatewayCall{hit(nil, "user", "u")},
		},
		{ // internal/extensionserver/quota_ratelimit.go of c217da8a539570ba3f6014a60c2687c29a945f1f, after v1.1.0
			name: "Envoy AI Gateway, QuotaPolicy", domain: "ai-gateway-quota", rules: quotaRules,
			ask: gatewayCall{hit(nil, "backend_name", "default/a", "model_name_override", "m"),
				hit(nil, "backend_name", "default/b", "model_name_override", "m")},
			report: gatewayCall{hit(hits(cost), "backend_name", "default/b", "model_name_override", "m")},
			start:  61, left: []uint32{1_000_000, 1_000_000 - 61*cost},
			probes: gatewayCall{hit(nil, "backend_name", "default/a", "model_name_override", "m"),
				hit(nil, "backend_name", "default/b", "model_name_override", "m")},
		},
		{ // crates/agentgateway/src/http/remoteratelimit.rs of 75b4e6ce6e0e1ac7959d5548ebe8dbeaede4f180, after v1.4.1:
			// without tokenize, and with it and cost: llm.totalTokens
			name: "agentgateway", domain: "llm",
			rules:  func(t *testing.T) string { return documentedRules(t, "llm") },
			ask:    gatewayCall{hit(hits(0), "user", "u")},
			report: gatewayCall{hit(hits(cost), "user", "u")},
			start:  61, left: []uint32{1_000_000 - 61*cost},
			probes: gatewayCall{hit(nil, "user", "u")},
		},
		{ // kgateway's TrafficPolicy: rate_limits without hits_addend and without apply_on_stream_done
			name: "kgateway", domain: "kgateway",
			rules: func(t *testing.T) string { return documentedRules(t, "kgateway") },
			ask:   gatewayCall{hit(nil, "user", "u")},
			start: 80, left: []uint32{1_000_000 - 80*5000},
			probes: gatewayCall{hit(nil, "user", "u")},
		},
	} {
		t.Run(g.name, func(t *testing.T) {
			now := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
			s := serviceOf(t, g.rules(t), messages.Encoder{}, func() limit.Instant { return limit.InstantOf(now) })
			send := func(call gatewayCall) *rls.RateLimitResponse {
				t.Helper()
				resp, err := transport.Answer(t.Context(), s, &rls.RateLimitRequest{Domain: g.domain, Descriptors: call})
				if err != nil {
					t.Fatal(err)
				}
				return resp
			}
			started := 0
			for range 80 {
				if send(g.ask).OverallCode == rls.RateLimitResponse_OK {
					started++
				}
			}
			if started != g.start {
				t.Errorf("%d streams start, want %d", started, g.start)
			}
			for range started {
				if g.report != nil {
					send(g.report)
				}
			}
			for i, probe := range g.probes {
				if got := left(t, s, g.domain, probe); got != int64(g.left[i]) {
					t.Errorf("budget %d: %d left, want %d", i, got, g.left[i])
				}
			}
		})
	}
}

// left returns what is left of the limit of a descriptor.
func left(t *testing.T, s *ratelimit.Service, domain string, d *common.RateLimitDescriptor) int64 {
	t.Helper()
	var req ratelimit.Request
	message := &rls.RateLimitRequest{Domain: domain, Descriptors: []*common.RateLimitDescriptor{d}}
	encoded, err := proto.Marshal(message)
	if err != nil {
		t.Fatal(err)
	}
	if err := messages.Decode(&req, encoded); err != nil {
		t.Fatal(err)
	}
	usages, err := s.Usage(t.Context(), []string{domain}, [][]descriptors.Entry{req.Descriptors[0].Entries})
	if err != nil {
		t.Fatal(err)
	}
	return usages[0].Limits[0].Remaining
}
