package e2e

import (
	"strings"
	"testing"

	"github.com/headgate-rls/headgate/test/collector"
)

// A client may choose bytes that are no text as a value. Envoy sends them as they are, and lets
// the request pass if headgate calls the question invalid.
func TestValuesThatAreNoText(t *testing.T) {
	onEnvoys(t, func(t *testing.T, env environment) {
		insideHour()
		s := startService(t, "--rules", writeFile(t, "rules.yaml", anyKeyOnce), "--backend", env.backend)
		f := startFront(t, env.envoy, setup{Services: []string{s.GRPC}, FailOpen: true})
		for _, value := range []string{"\xff", "a\xc3", "\xed\xa0\x80b"} {
			f.WantCodes("200 429 429", "/", "x-key", value)
		}
	})
}

const anyKeyOnce = "domain: e2e\ndescriptors: [{key: key, rate_limit: {unit: hour, requests_per_unit: 1}}]"

// A client may bring headers as long as Envoy takes them. If Envoy traces, tracestate comes along
// with its question to headgate.
func TestLongHeadersOfClients(t *testing.T) {
	onEnvoys(t, func(t *testing.T, env environment) {
		insideHour()
		s := startService(t, "--rules", writeFile(t, "rules.yaml", anyKeyOnce), "--backend", env.backend)
		f := startFront(t, env.envoy, setup{Services: []string{s.GRPC}, FailOpen: true,
			Tracing: collector.Start(t, nil).GRPC})
		for _, size := range []int{1, 35, 58} {
			key := strings.Repeat("k", size)
			f.WantCodes("200 429 429", "/", "x-key", key, "traceparent",
				"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
				"tracestate", "a="+strings.Repeat("x", size<<10))
			f.WantCodes("200 429", "/", "x-key", key+"b")
		}
	})
}

// A client may make headgate's question too large, where Envoy has several descriptors of one
// header.
func TestTooLargeQuestions(t *testing.T) {
	const one = "{actions: [{request_headers: {header_name: x-key, descriptor_key: key}}]}"
	onEnvoys(t, func(t *testing.T, env environment) {
		if strings.HasSuffix(t.Name(), onGRPC) {
			t.Skip("grpc-go fails such calls before anybody can answer them")
		}
		for _, c := range []struct{ want, flag string }{{"429 429", "--shadow-mode=false"}, {"200 200", "--shadow-mode"}} {
			s := startService(t, "--rules", writeFile(t, "rules.yaml", anyKeyOnce), "--backend", env.backend, c.flag)
			f := startFront(t, env.envoy, setup{Services: []string{s.GRPC}, FailOpen: true,
				Routes: []route{{"/", "[" + strings.Repeat(one+", ", 7) + one + "]"}}})
			f.WantCodes(c.want, "/", "x-key", strings.Repeat("v", 55<<10))
			f.WantCodes("200", "/", "y", "nothing is asked about this one")
		}
	})
}
