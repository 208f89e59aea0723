package headgate_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/headgate-rls/headgate"
	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/policies"
	"github.com/headgate-rls/headgate/policies/sqlstore"
	"github.com/headgate-rls/headgate/policies/table"
	"github.com/headgate-rls/headgate/tracing"
)

const shopRules = `
domain: shop
descriptors:
  - key: tenant
    limits:
      - {name: per-tenant, algorithm: sliding_log, limit: 2, window: 1h}
  - key: job
    lease_ttl: 1m
    concurrency:
      - {threshold: 1, response: {statusCode: 429, content: one at a time}}
`

func Example() {
	ctx := context.Background()
	limiter, err := headgate.Open(ctx, headgate.Options{
		Rules: []headgate.Rules{headgate.YAML("shop.yaml", shopRules)},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer limiter.Close()

	for range 3 {
		d, err := limiter.Check(ctx, "shop", headgate.Describe("tenant", "acme"))
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(d.Allowed, d.Remaining, d.Rule)
	}
	// Output:
	// true 1 shop/tenant:per-tenant
	// true 0 shop/tenant:per-tenant
	// false 0 shop/tenant:per-tenant
}

func ExampleLimiter_Acquire() {
	ctx := context.Background()
	limiter, err := headgate.Open(ctx, headgate.Options{
		Rules: []headgate.Rules{headgate.YAML("shop.yaml", shopRules)},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer limiter.Close()

	first, d, _ := limiter.Acquire(ctx, "shop", headgate.Describe("job", "import"))
	fmt.Println(d.Allowed)
	_, d, _ = limiter.Acquire(ctx, "shop", headgate.Describe("job", "import"))
	fmt.Println(d.Allowed, d.Status, d.Body)
	first.Release()
	third, d, _ := limiter.Acquire(ctx, "shop", headgate.Describe("job", "import"))
	defer third.Release()
	fmt.Println(d.Allowed)
	// Output:
	// true
	// false 429 one at a time
	// true
}

func ExampleLimiter_Peek() {
	ctx := context.Background()
	limiter, err := headgate.Open(ctx, headgate.Options{
		Rules: []headgate.Rules{headgate.YAML("shop.yaml", shopRules)},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer limiter.Close()

	acme := headgate.Describe("tenant", "acme")
	acme.Cost = 2
	_, _ = limiter.Check(ctx, "shop", acme)
	d, _ := limiter.Peek(ctx, "shop", acme)
	fmt.Println("after the check:", d.Allowed)
	_ = limiter.Refund(ctx, "shop", headgate.Describe("tenant", "acme")) // one unit
	d, _ = limiter.Peek(ctx, "shop", acme)
	fmt.Println("after the refund:", d.Allowed, d.Remaining)
	_ = limiter.Reset(ctx, "shop", acme)
	d, _ = limiter.Peek(ctx, "shop", acme)
	fmt.Println("after the reset:", d.Allowed, d.Remaining)
	// Output:
	// after the check: false
	// after the refund: true 1
	// after the reset: true 2
}

// A policy in a database takes the place of a rule's limit for one key, and changes while the
// program runs: here by the program itself, usually by `headgate policy` or the admin API.
func ExampleOptions_policies() {
	dir, err := os.MkdirTemp("", "policies")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	url := "sqlite:" + filepath.Join(dir, "policies.db")
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	limiter, err := headgate.Open(ctx, headgate.Options{
		Rules: []headgate.Rules{headgate.YAML("mail.yaml", `
domain: mail
descriptors:
  - key: to
    policy: to:{to}
    rate_limit: {unit: hour, requests_per_unit: 5}
`)},
		Policies: url,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer limiter.Close()
	d, _ := limiter.Peek(ctx, "mail", headgate.Describe("to", "alice"))
	fmt.Println("by the rule:", d.Remaining)

	store, err := sqlstore.Open(sqlstore.Config{URL: url})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()
	alice := table.Edit{Key: "to:alice", Figures: policies.Figures{Algorithm: limit.FixedWindow, Capacity: 100,
		Window: 3600 * policies.One}}
	if _, err := table.NewEditor(store, nil).Apply(ctx, []table.Edit{alice}, "example", false); err != nil {
		fmt.Println(err)
		return
	}
	for d.Remaining == 5 && ctx.Err() == nil { // 250 ms, unless the machine is busy
		d, _ = limiter.Peek(ctx, "mail", headgate.Describe("to", "alice"))
	}
	fmt.Println("by the policy:", d.Remaining)
	// Output:
	// by the rule: 5
	// by the policy: 100
}

// Rules can be values. They are checked like those of files.
// Decisions are spans in the trace of the request that they are about.
func ExampleOptions_tracer() {
	ctx := context.Background()
	spans := tracetest.NewInMemoryExporter() // a program has an exporter of OTLP, and WithBatcher
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	limiter, err := headgate.Open(ctx, headgate.Options{
		Rules:  []headgate.Rules{headgate.YAML("shop.yaml", shopRules)},
		Tracer: tracing.OpenTelemetry(provider.Tracer("limits")),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer limiter.Close()

	ctx, request := provider.Tracer("shop").Start(ctx, "GET /items")
	if _, err := limiter.Check(ctx, "shop", headgate.Describe("tenant", "acme")); err != nil {
		fmt.Println(err)
		return
	}
	request.End()
	for _, s := range spans.GetSpans() {
		fmt.Println(s.Name, s.SpanContext.TraceID() == request.SpanContext().TraceID())
	}
	// Output:
	// Take true
	// ShouldRateLimit true
	// GET /items true
}

func ExampleValues() {
	rules := headgate.Values(&descriptors.Spec{Domains: []*descriptors.DomainSpec{{
		Name: "mail",
		Rules: []*descriptors.RuleSpec{{Key: "to", Body: descriptors.Body{Limits: []descriptors.LimitSpec{
			{Figures: limit.Spec{Algorithm: limit.FixedWindow, Max: 1, Window: time.Hour}},
		}}}},
	}}})
	ctx := context.Background()
	limiter, err := headgate.Open(ctx, headgate.Options{Rules: []headgate.Rules{rules}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer limiter.Close()
	for range 2 {
		d, err := limiter.Check(ctx, "mail", headgate.Describe("to", "alice"))
		fmt.Println(d.Allowed, err)
	}
	// Output:
	// true <nil>
	// false <nil>
}

// A mistake in the rules is reported with its place, and nothing is opened.
func ExampleOpen_mistake() {
	_, err := headgate.Open(context.Background(), headgate.Options{
		Rules: []headgate.Rules{headgate.YAML("shop.yaml", "domain: shop\ndescriptors: [{key: a, rate_limits: 1}]\n")},
	})
	fmt.Println(err)
	// Output:
	// headgate: the rules have errors:
	//   shop.yaml:2:24: unknown key "rate_limits" in a rule; did you mean "rate_limit"? (at shop/a)
}
