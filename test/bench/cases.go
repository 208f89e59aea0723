package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
)

// A benchCase is one line of the table.
type benchCase struct {
	name        string
	empty       bool          // an empty grpc-go handler
	redis       bool          // or another store, whose URL the server is given
	layout      string        // of Redis, if not list
	grpc        bool          // served by grpc-go, not by package unary
	descriptors int           // per call
	limit       string        // the rule's limit, in YAML
	rules       int           // other rules beside it
	networks    int           // that are exempt
	hot         bool          // one key for all calls
	keys        int           // if not the usual number
	routes      int           // with 256 rules each, beside it
	reload      time.Duration // how often other rules are put in force; 0 is never
	readLoop    bool          // who reads a connection makes the trip to Redis
	whole       bool          // all rules change, not those of one route
	chooses     bool          // of a client's descriptors the first is charged
	trial       bool          // the same rules are on trial as well, with counters in memory
}

const roomy = "rate_limit: {unit: hour, requests_per_unit: 4000000000}"

// asReference is roomy as `serve-compat` counts it.
const asReference = roomy + ", charge: each, overflow: saturate"

// shared returns a rule that is roomy, too, of which a process takes n units ahead, or "auto".
func shared(n any) string {
	return fmt.Sprintf("rate_limit: {unit: hour, requests_per_unit: 4000000000, local_share: %v}", n)
}

// denied returns a rule of one limit that is used up at once and n that have room.
func denied(n int) string {
	limits := "limits: [{name: spent, algorithm: fixed_window, limit: 1, window: 8760h}"
	for i := range n {
		limits += fmt.Sprintf(", {name: roomy%d, algorithm: fixed_window, limit: 4000000000, window: 1h}", i)
	}
	return limits + "]"
}

// reloadCases are those of the table reload.
var reloadCases = []benchCase{
	{name: "memory, 256 rules of 100 routes", descriptors: 1, limit: roomy, routes: 100},
	{name: "a route changes every second", descriptors: 1, limit: roomy, routes: 100, reload: time.Second},
	{name: "all routes change every second", descriptors: 1, limit: roomy, routes: 100, reload: time.Second, whole: true},
	{name: "all rules are on trial as well", descriptors: 1, limit: roomy, routes: 100, trial: true},
}

var cases = []benchCase{
	{name: "empty grpc-go handler", empty: true, grpc: true, descriptors: 1},
	{name: "memory, grpc-go", grpc: true, descriptors: 1, limit: roomy},
	{name: "memory fixed_window", descriptors: 1, limit: roomy},
	{name: "memory token_bucket", descriptors: 1,
		limit: "limits: [{algorithm: token_bucket, rate: 1000000/s, burst: 2000000}]"},
	{name: "memory sliding_window", descriptors: 1,
		limit: "limits: [{algorithm: sliding_window, limit: 4000000000, window: 1h}]"},
	{name: "memory sliding_log", descriptors: 1, limit: "limits: [{algorithm: sliding_log, limit: 1000, window: 1h}]"},
	{name: "memory 3 descriptors", descriptors: 3, limit: roomy},
	{name: "memory, 1 of 1 is chosen", descriptors: 1, chooses: true},
	{name: "memory, 1 of 2 is chosen", descriptors: 2, chooses: true},
	{name: "memory 10 rules", descriptors: 1, limit: roomy, rules: 9},
	{name: "memory 100,000 networks", descriptors: 1, limit: roomy, networks: 100_000},
	{name: "memory 100,000 rules", descriptors: 1, limit: roomy, rules: 99_999},
	{name: "memory denied hot key", descriptors: 1, limit: "rate_limit: {unit: year, requests_per_unit: 1}", hot: true},
	{name: "memory hot key", descriptors: 1, limit: roomy, hot: true},
	{name: "redis, grpc-go", redis: true, grpc: true, descriptors: 1, limit: roomy},
	{name: "redis fixed_window", redis: true, descriptors: 1, limit: roomy},
	{name: "redis fixed_window, local_share 10", redis: true, descriptors: 1, limit: shared(10)},
	{name: "redis 1,000 keys", redis: true, descriptors: 1, limit: roomy, keys: 1000},
	{name: "redis 1,000 keys, local_share auto", redis: true, descriptors: 1, limit: shared("auto"), keys: 1000},
	{name: "redis hot key", redis: true, descriptors: 1, limit: roomy, hot: true},
	{name: "redis hot key, local_share 1000", redis: true, descriptors: 1, limit: shared(1000), hot: true},
	{name: "redis hot key, local_share auto", redis: true, descriptors: 1, limit: shared("auto"), hot: true},
	{name: "redis token_bucket", redis: true, descriptors: 1,
		limit: "limits: [{algorithm: token_bucket, rate: 1000000/s, burst: 2000000}]"},
	{name: "redis sliding_window", redis: true, descriptors: 1,
		limit: "limits: [{algorithm: sliding_window, limit: 4000000000, window: 1h}]"},
	{name: "redis sliding_log", redis: true, descriptors: 1,
		limit: "limits: [{algorithm: sliding_log, limit: 1000, window: 1h}]"},
	{name: "redis denied hot key", redis: true, descriptors: 1,
		limit: "rate_limit: {unit: year, requests_per_unit: 1}", hot: true},
	{name: "redis denied, 1 of 2 limits", redis: true, descriptors: 1, limit: denied(1), hot: true},
	{name: "redis denied, 1 of 3 limits", redis: true, descriptors: 1, limit: denied(2), hot: true},
	{name: "redis 3 descriptors", redis: true, descriptors: 3, limit: roomy},
	{name: "redis, 1 of 1 is chosen", redis: true, descriptors: 1, chooses: true},
	{name: "redis, 1 of 2 is chosen", redis: true, descriptors: 2, chooses: true},
	{name: "redis, layout=envoy, 1 descriptor", redis: true, layout: "envoy", descriptors: 1, limit: asReference},
	{name: "redis, layout=envoy, 3 descriptors", redis: true, layout: "envoy", descriptors: 3, limit: asReference},
}

func findCase(name string) (benchCase, error) {
	some := []benchCase{curveCase}
	for _, c := range slices.Concat(reloadCases, distanceCases, overviewBenchCases(), budgetCases(), some, cases) {
		if c.name == name {
			return c, nil
		}
	}
	for _, n := range logSizes() {
		if c := logCase(n, 0); c.name == name {
			return c, nil
		}
	}
	return benchCase{}, fmt.Errorf("no case %q", name)
}

// yaml returns the rules of the case.
func (c benchCase) yaml() string {
	var b strings.Builder
	b.WriteString("domain: bench\ndescriptors:\n")
	for i := range c.rules {
		fmt.Fprintf(&b, "- {key: k0, value: other%d, %s}\n", i, c.limit)
	}
	if c.networks > 0 {
		b.WriteString("- key: k0\n  network:\n")
		for i := range c.networks {
			fmt.Fprintf(&b, "  - 172.%d.%d.%d\n", i>>16, i>>8&255, i&255)
		}
		b.WriteString("  rate_limit: {unlimited: true}\n")
	}
	if c.chooses {
		b.WriteString("- key: client\n  descriptors:\n")
		for i := range c.descriptors {
			fmt.Fprintf(&b, "  - {key: to, value: to-%d, choose: model, %s}\n", i, roomy)
		}
		return b.String()
	}
	for i := range max(c.descriptors, 1) {
		fmt.Fprintf(&b, "- {key: k%d, %s}\n", i, c.limit)
	}
	for i := range c.routes {
		fmt.Fprintf(&b, "- key: route-%d\n  value: route-%d\n  descriptors:\n", i, i)
		for j := range 256 {
			fmt.Fprintf(&b, "  - {key: rule-%d, value: rule-%d, rate_limit: {unit: hour, requests_per_unit: %d}}\n", j, j, 1+j)
		}
	}
	return b.String()
}

const keys = 10_000

func clientName(i int) string { return fmt.Sprintf("client-%06d", i) }

// client is what calls of the case are by: an address where rules have networks.
func (c benchCase) client(i int) string {
	if c.networks > 0 {
		return fmt.Sprintf("10.0.%d.%d", i>>8, i&255)
	}
	return clientName(i)
}

// requests returns the calls to make, in rotation.
func (c benchCase) requests() []*rls.RateLimitRequest {
	n := keys
	switch {
	case c.hot:
		n = 1
	case c.keys > 0:
		n = c.keys
	}
	list := make([]*rls.RateLimitRequest, n)
	for i := range list {
		r := &rls.RateLimitRequest{Domain: "bench"}
		for d := range c.descriptors {
			entries := []*common.RateLimitDescriptor_Entry{{Key: fmt.Sprintf("k%d", d), Value: c.client(i)}}
			if c.chooses {
				entries = []*common.RateLimitDescriptor_Entry{{Key: "client", Value: clientName(i)},
					{Key: "to", Value: fmt.Sprintf("to-%d", d)}}
			}
			r.Descriptors = append(r.Descriptors, &common.RateLimitDescriptor{Entries: entries})
		}
		list[i] = r
	}
	return list
}
