package llm

import (
	"testing"

	"github.com/headgate-rls/headgate/test/llmtest"
)

// TestWithoutReservations: the same calls without reservations, as gateways do it, pass all of them. So what the other
// tests see comes from reservations.
func TestWithoutReservations(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		l := p.start(t, llmtest.Setup{Gateway: true, Rules: gatewayRules("", perMinute)})
		o := l.Burst(t.Context(), 200, long("u"))
		if n := spent(l, "u"); o.Passed != 200 || n != 20*budget {
			t.Errorf("%+v, spent %d; want 200 that pass", o, n)
		}
		testRefused(t, l)
	})
}

// testRefused wants the next call refused, once the costs have been reported.
func testRefused(t *testing.T, l *llmtest.Lab) {
	t.Helper()
	if o := l.Do(t.Context(), long("u")); o.Refused != 1 {
		t.Errorf("after that: %+v, want it refused", o)
	}
}
