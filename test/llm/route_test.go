package llm

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/test/llmtest"
	"github.com/headgate-rls/headgate/test/testenv"
)

// providers are what calls are routed to, the preferred one first.
var providers = []string{"openai", "azure"}

// routing are rules that choose the provider, each with a budget.
func routing(reserve, limit string) string {
	text := "domain: llm\ndescriptors:\n"
	for i, p := range providers {
		text += fmt.Sprintf("- key: provider\n  value: %s\n  choose: model\n  prefer: %d\n", p, i) +
			under("  ", reserve, []string{limit})
	}
	return text
}

// TestCallsGoWhereTheBudgetIs: of 400 streams at once, ten pass to each of two providers, and the budget of each is
// spent to the last token; calls are refused only when both are full.
func TestCallsGoWhereTheBudgetIs(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		insideHour()
		l := p.start(t, llmtest.Setup{Rules: routing(estimated, perHour), Providers: providers})
		for i := range 5 {
			if o := l.Do(t.Context(), long("u")); o.Passed != 1 {
				t.Errorf("call %d: %+v", i, o)
			}
		}
		if n, calls := l.Providers["openai"].Spent("u", time.Time{}); n != budget/2 || calls != 5 {
			t.Errorf("the preferred one answered %d calls and spent %d of five calls one after the other", calls, n)
		}
		if o := l.Burst(t.Context(), 400, long("u")); o.Passed != 15 || o.Refused != 385 || o.Failed > 0 {
			t.Errorf("%+v, want 15 that pass", o)
		}
		for name, model := range l.Providers {
			if n, calls := model.Spent("u", time.Time{}); n != budget || calls != 10 {
				t.Errorf("%s answered %d calls and spent %d, want 10 and %d", name, calls, n, budget)
			}
		}
	})
}

// TestAProviderThatIsFullIsPassedOver: one call gets a provider's own 429. From then on all calls go to the other,
// though the first has most of its budget left, until its window ends.
func TestAProviderThatIsFullIsPassedOver(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		insideHour()
		reserve := strings.Replace(estimated, "}", ", on_429: exhaust}", 1)
		l := p.start(t, llmtest.Setup{Rules: routing(reserve, perHour), Providers: providers})
		l.Providers["openai"].Full.Store(true)
		if o := l.Do(t.Context(), long("u")); o.Refused != 1 {
			t.Fatalf("the provider is full: %+v", o)
		}
		testenv.Eventually(t, 10*time.Second, "pass it over", func() string {
			if o := l.Do(t.Context(), long("u")); o.Passed != 1 {
				return fmt.Sprintf("%+v", o)
			}
			return ""
		})
		_, before := l.Providers["azure"].Spent("u", time.Time{})
		l.Providers["openai"].Full.Store(false)
		if o := l.Burst(t.Context(), 50, long("u")); o.Passed != 10-before || o.Failed > 0 {
			t.Errorf("%+v, want %d that pass", o, 10-before)
		}
		if n, calls := l.Providers["openai"].Spent("u", time.Time{}); n != 0 || calls != 0 {
			t.Errorf("the full one answered %d calls and spent %d", calls, n)
		}
	})
}

// TestClientsDoNotChoose: the header that the route follows is headgate's, whatever the client sends in it.
func TestClientsDoNotChoose(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		l := p.start(t, llmtest.Setup{Rules: routing(estimated, perHour), Providers: providers})
		call := long("u")
		call.Header = map[string]string{"x-headgate-model": "azure"}
		if o := l.Do(t.Context(), call); o.Passed != 1 {
			t.Errorf("%+v", o)
		}
		if _, calls := l.Providers["openai"].Spent("u", time.Time{}); calls != 1 {
			t.Error("the client has chosen azure")
		}
	})
}

var (
	luaBlock  = regexp.MustCompile("(?s)```lua\n(.*?)```")
	ownLua    = regexp.MustCompile(`(?m)^( +)-- Writes the cluster that headgate has chosen(.*\n)+?^ +end\n`)
	ownRoutes = regexp.MustCompile(`(?m)^( +)# As headgate\.choose says\.\n(.*\n)+? +- match: \{prefix: /\}\n.*\n`)
)

const specifier = "envoy.extensions.router.cluster_specifiers.priority_group.v3.PriorityGroupClusterSpecifier"

const byGroups = `- match: {prefix: /}
  route:
    inline_cluster_specifier_plugin:
      extension:
        name: envoy.router.cluster_specifier_plugin.priority_group
        typed_config:
          '@type': type.googleapis.com/` + specifier + `
          priority_groups:
            - {name: openai, clusters: [{cluster_name: openai, weight: 1}]}
            - {name: azure, clusters: [{cluster_name: azure, weight: 1}]}
          override_metadata_namespace: headgate.route
`

// TestGroupsOfEnvoyFollowTheChoice: Envoy 1.40 routes by the metadata of the winner's rule, with the Lua of
// docs/routing.md.
func TestGroupsOfEnvoyFollowTheChoice(t *testing.T) {
	t.Parallel()
	testenv.Require(t, "envoy-1.40.0")
	insideHour()
	text := routing(estimated, perHour)
	for _, p := range providers {
		value := "  value: " + p + "\n"
		text = strings.Replace(text, value, value+"  metadata: {priority_groups: [{name: "+p+"}]}\n", 1)
	}
	page, err := os.ReadFile(filepath.Join(sources, "docs", "routing.md"))
	if err != nil {
		t.Fatal(err)
	}
	lua := string(luaBlock.FindSubmatch(page)[1])
	replace := func(config string, part *regexp.Regexp, by string) string {
		found := part.FindStringSubmatchIndex(config)
		if found == nil {
			t.Fatalf("the configuration has no %v:\n%s", part, config)
		}
		indent := config[found[2]:found[3]]
		by = indent + strings.ReplaceAll(strings.TrimSpace(by), "\n", "\n"+indent) + "\n"
		return config[:found[0]] + by + config[found[1]:]
	}
	l := place{"1.40.0", "memory", 1}.start(t, llmtest.Setup{Rules: text, Providers: providers,
		Change: func(config string) string { return replace(replace(config, ownLua, lua), ownRoutes, byGroups) }})
	if o := l.Burst(t.Context(), 60, long("u")); o.Passed != 20 || o.Refused != 40 || o.Failed > 0 {
		t.Errorf("%+v, want 20 that pass", o)
	}
	for name, model := range l.Providers {
		if n, calls := model.Spent("u", time.Time{}); n != budget || calls != 10 {
			t.Errorf("%s answered %d calls and spent %d, want 10 and %d", name, calls, n, budget)
		}
	}
}
