package llm

import (
	"fmt"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/test/llmtest"
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
