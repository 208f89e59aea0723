package envoyconf

import (
	"strings"
	"testing"

	"github.com/headgate-rls/headgate/test/llmtest"
	"github.com/headgate-rls/headgate/test/testenv"
)

// nativeConfig is a printed configuration in which Envoy reads tokens, whose log has what it has read.
func nativeConfig(t *testing.T, model string) string {
	t.Helper()
	text, err := configure(t, "testdata/llm.yaml", func(o *Options) {
		o.Tokens, o.Upstream, o.Listen, o.Admin = TokensNative, []string{model}, 0, "127.0.0.1:0"
	}).Bootstrap()
	if err != nil {
		t.Fatal(err)
	}
	const logged = `access_log:
                  - name: envoy.access_loggers.stdout
                    typed_config:
                      '@type': type.googleapis.com/envoy.extensions.access_loggers.stream.v3.StdoutAccessLog
                      log_format:
                        text_format_source:
                          inline_string: "case <%REQ(x-case)%> %DYNAMIC_METADATA(llm:estimate)%\
                            \ %DYNAMIC_METADATA(llm:tokens)%\n"
`
	config, rest, found := strings.Cut(string(text), "access_log:\n")
	if !found {
		t.Fatal("the configuration has no access log")
	}
	return config + logged + rest
}

// nativeCases are those of Lua, with what Envoy makes of them instead: long bodies have an estimate, names are what
// they are, and a body that is no JSON is refused.
func nativeCases() []luaCase {
	all := luaCases()
	for i := range all {
		c := &all[i]
		c.breaks = c.breaks || strings.HasSuffix(c.name, "false malformed") // Envoy 1.40.0 breaks such an answer off
		switch c.name {
		case "several answers": // which Envoy does not tell
			c.estimate = "109"
		case "another case":
			c.estimate = "13"
		case "a name that is there twice", "a name with escapes", "many names":
			c.estimate, c.tokens = "-", "0"
		case "input by length":
			c.estimate = "201"
		case "compressed if that was asked for":
			c.estimate = "107"
		case "an exponent":
			c.estimate = "100007"
		case "more than Envoy takes":
			c.estimate = "-"
		case "a large body", "a body of unknown length":
			c.estimate = "1048687"
		}
	}
	return all
}

// TestEnvoyReadsLanguageModels: Envoy 1.40 finds what calls may use and have used, in the configuration that is
// printed, also of bodies of some megabytes.
func TestEnvoyReadsLanguageModels(t *testing.T) {
	t.Parallel()
	testenv.Require(t, "envoy-1.40.0")
	model, err := llmtest.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = model.Close() })
	e := testenv.StartEnvoy(t, "1.40.0", nativeConfig(t, model.Addr))
	playAll(t, e, "http://"+e.ListenerAddr("ingress"), nativeCases())
}

// TestTokensThatCannotBe: what reads the tokens must be known, and able to.
func TestTokensThatCannotBe(t *testing.T) {
	set, spec := load(t, "testdata/llm.yaml")
	for want, change := range map[string]func(*Options){
		`--tokens is lua or native, not "ai"`:        func(o *Options) { o.Tokens = "ai" },
		"--tokens native needs --envoy-version 1.40": func(o *Options) { o.Tokens, o.Version = TokensNative, Version{1, 38} },
	} {
		opt := options()
		change(&opt)
		if _, err := New(set, spec, opt); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	c := configure(t, "testdata/llm.yaml", func(o *Options) { o.Tokens = TokensNative })
	if _, err := c.EnvoyFilter(); err == nil || !strings.Contains(err.Error(), "--tokens native is not for Istio") {
		t.Errorf("%v", err)
	}
}
