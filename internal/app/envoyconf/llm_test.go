package envoyconf

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/test/llmtest"
	"github.com/headgate-rls/headgate/test/testenv"
)

// llmEnvoy is an Envoy with the Lua alone, whose log has what Lua has written.
const llmEnvoy = `
admin: {address: {socket_address: {address: 127.0.0.1, port_value: 0}}}
static_resources:
  listeners:
  - name: ingress
    address: {socket_address: {address: 127.0.0.1, port_value: 0}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          '@type': type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: ingress
          upgrade_configs: [{upgrade_type: websocket}]
          access_log:
          - name: envoy.access_loggers.stdout
            typed_config:
              '@type': type.googleapis.com/envoy.extensions.access_loggers.stream.v3.StdoutAccessLog
              log_format:
                text_format_source:
                  inline_string: "case <%%REQ(x-case)%%> %%DYNAMIC_METADATA(llm:estimate)%%\
                    \ %%DYNAMIC_METADATA(llm:tokens)%%\n"
          http_filters:
          - name: headgate.llm
            typed_config:
              '@type': type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua
              default_source_code:
                inline_string: |
%s
          - name: envoy.filters.http.router
            typed_config: {'@type': type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}
          route_config:
            virtual_hosts:
            - {name: all, domains: ['*'], routes: [{match: {prefix: /}, route: {cluster: model}}]}
  clusters:
  - name: model
    load_assignment: {cluster_name: model, endpoints: [{lb_endpoints: [{endpoint: {address: %s}}]}]}
`

// A luaCase is a request, and what Lua makes of it; "-" is nothing.
type luaCase struct {
	name             string
	send             func(ctx context.Context, base string) (*http.Request, error)
	estimate, tokens string
	breaks           bool // the answer
}

func call(c llmtest.Call) func(context.Context, string) (*http.Request, error) { return c.Request }

// posted is a request with a body of its own, which uses 10 + 20 tokens.
func posted(body string, change ...func(*http.Request)) func(context.Context, string) (*http.Request, error) {
	return func(ctx context.Context, base string) (*http.Request, error) {
		req, err := llmtest.Call{Plan: llmtest.Plan{Input: 10, Output: 20}}.Request(ctx, base)
		if err == nil {
			req.Body, req.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
		}
		for _, f := range change {
			f(req)
		}
		return req, err
	}
}

func luaCases() (all []luaCase) {
	for _, api := range []string{"openai", "responses", "anthropic", "gemini"} {
		for _, stream := range []bool{false, true} {
			add := func(name string, c llmtest.Call, estimate, tokens string) {
				c.API, c.Stream, c.Plan.Input = api, stream, 100
				all = append(all, luaCase{fmt.Sprint(api, " ", stream, " ", name), call(c), estimate, tokens,
					c.Plan.End == llmtest.Cut})
			}
			add("used", llmtest.Call{Plan: llmtest.Plan{Output: 900}}, "-", "1000")
			add("cut off by the limit", llmtest.Call{MaxTokens: 50, Plan: llmtest.Plan{Output: 900}}, "some", "150")
			add("slow", llmtest.Call{Plan: llmtest.Plan{Output: 900, Takes: 200 * time.Millisecond}}, "-", "1000")
			add("fails", llmtest.Call{Plan: llmtest.Plan{End: llmtest.Fails}}, "-", "-")
			add("refuses", llmtest.Call{Plan: llmtest.Plan{End: llmtest.Refuses}}, "-", "0")
			add("cut", llmtest.Call{Plan: llmtest.Plan{Output: 800, Takes: 80 * time.Millisecond, End: llmtest.Cut}}, "-", "-")
			add("silent", llmtest.Call{Plan: llmtest.Plan{Output: 900, End: llmtest.Silent}}, "-", "-")
			add("malformed", llmtest.Call{Plan: llmtest.Plan{Output: 900, End: llmtest.Malformed}}, "-", "-")
		}
	}
	use := func(name, body, estimate, tokens string, change ...func(*http.Request)) {
		all = append(all, luaCase{name: name, send: posted(body, change...), estimate: estimate, tokens: tokens})
	}
	add := func(name, body, estimate string, change ...func(*http.Request)) {
		use(name, body, estimate, "30", change...)
	}
	overloads := llmtest.Plan{Input: 10, Output: 80, End: llmtest.Overloads}
	all = append(all, luaCase{name: "a stream that ends with an error", estimate: "-", tokens: "-",
		send: call(llmtest.Call{API: "anthropic", Stream: true, Plan: overloads})})
	add("input by length", `{"max_tokens":100,"prompt":"`+strings.Repeat("x", 300-30)+`"}`, "200")
	add("several answers", `{"max_tokens":100,"n":3}`, "308")
	use("a name that is there twice", `{"max_tokens":1000,"max_tokens":1}`, "1012", "11")
	add("two names", `{"max_tokens":1,"max_completion_tokens" : 1000}`, "1016")
	add("another case", `{"max_tokens":1,"MAX_TOKENS":1000}`, "1012")
	add("a name with escapes", `{"max_tokens":1,"max\u005ftokens":1000}`, "-")
	add("text that looks like a limit", `{"prompt":"{\"max_tokens\": 5, \"na\u00efve\": 1}"}`, "-")
	use("an exponent", `{"max_tokens":1e5}`, "100006", "0")
	use("more than Envoy takes", `{"max_tokens":1e300}`, "1000000000", "0")
	add("below zero", `{"max_tokens":-5}`, "-")
	use("no number", `{"max_tokens":"7e","n":3}`, "-", "0")
	all = append(all,
		luaCase{name: "no JSON", send: posted("\x00\xff{{{\"max_tokens\""), estimate: "-", tokens: "0"},
		luaCase{name: "a number that is none", send: posted(`{"max_tokens":1-2.e.}`), estimate: "-", tokens: "0"},
		luaCase{name: "a list of models", estimate: "-", tokens: "0", send: posted("", func(r *http.Request) {
			r.Method, r.Body = http.MethodGet, http.NoBody
		})},
		luaCase{name: "an upgrade is no reading", estimate: "-", tokens: "-", send: posted("", func(r *http.Request) {
			r.Method, r.Body = http.MethodGet, http.NoBody
			r.Header.Set("Connection", "upgrade")
			r.Header.Set("Upgrade", "websocket")
		})})
	const large = 3 << 20
	add("a large body", `{"max_tokens":100,"prompt":"`+strings.Repeat("x", large)+`"}`, "-")
	add("a body of unknown length", `{"max_tokens":100,"prompt":"`+strings.Repeat("x", large)+`"}`, "-",
		func(r *http.Request) { r.ContentLength = -1 })
	add("many names", `{"max_tokens":100,"a":{`+strings.Repeat(`"a":1,`, 160_000)+`"b":1}}`, "320110")
	add("compressed if that was asked for", `{"max_tokens":100}`, "106",
		func(r *http.Request) { r.Header.Set("Accept-Encoding", "gzip") })
	return all
}

// TestLuaReadsLanguageModels: Lua in real Envoys finds what calls may use and have used, and writes nothing that it
// does not know.
func TestLuaReadsLanguageModels(t *testing.T) {
	t.Parallel()
	model, err := llmtest.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = model.Close() })
	for _, version := range []string{"1.40.0", "1.38.3", "1.36.4"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			e := startLua(t, version, model.Addr)
			base := "http://" + e.ListenerAddr("ingress")
			playAll(t, e, base, luaCases())
		})
	}
}

// playAll plays cases on an Envoy, and wants each logged as it says and no Lua to fail.
func playAll(t *testing.T, e *testenv.Envoy, base string, cases []luaCase) {
	t.Helper()
	for _, c := range cases {
		c.play(t, base)
	}
	testenv.Eventually(t, 10*time.Second, "log all calls", func() string { return logged(e.Log(), cases) })
	for line := range strings.Lines(e.Log()) {
		if strings.Contains(line, "script log") {
			t.Errorf("Lua failed: %s", line)
		}
	}
}

func startLua(t *testing.T, version, model string) *testenv.Envoy {
	t.Helper()
	to, err := address(model)
	if err != nil {
		t.Fatal(err)
	}
	return testenv.StartEnvoy(t, version, fmt.Sprintf(llmEnvoy, before(strings.Repeat(" ", 18), llmLua), to))
}

func (c luaCase) play(t *testing.T, base string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	req, err := c.send(ctx, base)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("x-case", c.name)
	start := time.Now()
	resp, err := http.DefaultClient.Do(req)
	if err == nil {
		_, err = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}
	if (err != nil) != c.breaks && resp.StatusCode < 500 {
		t.Errorf("%s: %v", c.name, err)
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("%s took %v", c.name, took)
	}
}

// logged says which call is not in the log, or not with what it should be.
func logged(log string, cases []luaCase) string {
	for _, c := range cases {
		_, rest, found := strings.Cut(log, "case <"+c.name+"> ")
		if !found {
			return c.name + " is not logged"
		}
		line, _, _ := strings.Cut(rest, "\n")
		estimate, tokens, _ := strings.Cut(line, " ")
		if some := c.estimate == "some" && estimate != "-"; !some && estimate != c.estimate || tokens != c.tokens {
			return fmt.Sprintf("%s: estimate and tokens are %q, want %s %s", c.name, line, c.estimate, c.tokens)
		}
	}
	return ""
}

// TestLuaInAnyPieces: an answer may come in any pieces, also of one byte.
func TestLuaInAnyPieces(t *testing.T) {
	t.Parallel()
	const answer = "data: {\"delta\":\"a \\\"usage\\\": {}\",\"usage\":null}\n\n" +
		"data: {\"choices\":[],\"usage\" : {\"total_tokens\":1234,\"details\":{\"a\":[1]}}}\n\ndata: [DONE]\n\n"
	for _, size := range []int{1, 7, 100} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			for rest := []byte(answer); len(rest) > 0; {
				n := min(size, len(rest))
				_, _ = io.Copy(w, bytes.NewReader(rest[:n]))
				_ = http.NewResponseController(w).Flush()
				rest = rest[n:]
				time.Sleep(time.Millisecond)
			}
		})}
		go func() { _ = server.Serve(l) }() // ends with the test
		t.Cleanup(func() { _ = server.Close() })
		e := startLua(t, "1.40.0", l.Addr().String())
		c := luaCase{name: fmt.Sprint(size, " at a time"), send: posted("{}"), estimate: "-", tokens: "1234"}
		c.play(t, "http://"+e.ListenerAddr("ingress"))
		testenv.Eventually(t, 10*time.Second, "log the call", func() string { return logged(e.Log(), []luaCase{c}) })
	}
}
