package llm

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/test/llmtest"
	"github.com/headgate-rls/headgate/test/random"
	"github.com/headgate-rls/headgate/test/testenv"
)

// estimated reserves what a call brings.
const estimated = "{amount: estimate, default: 16384, max: 100000}"

// TestBurst: of 200 streams at once that use all that they reserve, those pass that the budget has room for, and the
// budget is spent to the last token.
func TestBurst(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		insideHour()
		l := p.start(t, llmtest.Setup{Rules: rules(estimated, perHour)})
		o := l.Burst(t.Context(), 200, long("u"))
		if n := spent(l, "u"); o.Passed != 10 || o.Failed > 0 || n != budget {
			t.Errorf("%+v, spent %d; want 10 that pass and the budget spent", o, n)
		}
		wantLeft(t, l, "u", 0, 5*time.Second)
		if o := l.Do(t.Context(), long("v")); o.Passed != 1 {
			t.Errorf("another user: %+v", o)
		}
	})
}

// TestTokensThatEnvoyReads: the budget holds as well where Envoy reads the tokens itself.
func TestTokensThatEnvoyReads(t *testing.T) {
	t.Parallel()
	testenv.Require(t, "envoy-1.40.0")
	insideHour()
	native := []string{"--tokens", "native"}
	l := place{"1.40.0", "memory", 1}.start(t, llmtest.Setup{Rules: rules(estimated, perHour), Print: native})
	if o := l.Burst(t.Context(), 200, long("u")); o.Passed != 10 || o.Refused != 190 || o.Failed > 0 {
		t.Errorf("%+v, want 10 that pass", o)
	}
	if n := spent(l, "u"); n != budget {
		t.Errorf("spent %d, want %d", n, budget)
	}
	routed := place{"1.40.0", "memory", 1}.start(t, llmtest.Setup{Rules: routing(estimated, perHour), Providers: providers,
		Print: native})
	if o := routed.Burst(t.Context(), 60, long("u")); o.Passed != 20 || o.Refused != 40 || o.Failed > 0 {
		t.Errorf("with a choice: %+v, want 20 that pass", o)
	}
	for name, model := range routed.Providers {
		if n, calls := model.Spent("u", time.Time{}); n != budget || calls != 10 {
			t.Errorf("%s answered %d calls and spent %d, want 10 and %d", name, calls, n, budget)
		}
	}
}

// TestGatewayThatReports: with the configuration that Envoy Gateway writes, a first burst of a user passes as many
// calls as the budget has room for defaults, whatever other users did, and a later one what is known from calls before.
func TestGatewayThatReports(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		insideHour()
		l := p.start(t, llmtest.Setup{Gateway: true,
			Rules: gatewayRules("{amount: auto, default: 16384, max: 100000, match: oldest}", perHour)})
		call := long("first")
		call.MaxTokens = 0
		if o := l.Burst(t.Context(), 200, call); o.Passed == 0 || o.Passed > budget/16384 || o.Failed > 0 {
			t.Errorf("the first burst: %+v, want at most %d that pass", o, budget/16384)
		}
		call.User = "second"
		if o := l.Burst(t.Context(), 3, call); o.Passed != 3 { // reports take turns: each replica gets one
			t.Errorf("the first calls of the second user: %+v", o)
		}
		time.Sleep(time.Second) // the last reports
		o := l.Burst(t.Context(), 200, call)
		if n := spent(l, "second"); o.Passed == 0 || n > budget*105/100 || o.Failed > 0 {
			t.Errorf("the burst after it: %+v, spent %d, want at most 1,050,000", o, n)
		}
		call.User = "third"
		if o := l.Burst(t.Context(), 100, call); o.Passed != budget/16384 || o.Failed > 0 {
			t.Errorf("the first burst of a third user: %+v, want %d that pass", o, budget/16384)
		}
	})
}

// TestBudgetIsUsed: calls that ask for more than they use leave little of the budget unused, and spend little more.
func TestBudgetIsUsed(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		l := p.start(t, llmtest.Setup{
			Rules: rules("{amount: auto, default: 16384, max: 100000}", perMinute)})
		seconds := random.Times(20, 600)
		rate := time.Second / 40 // more than twice what fits, on average
		r := random.Rand(t, 3)
		var all sync.WaitGroup
		start := time.Now()
		for tick := time.NewTicker(rate); time.Since(start) < time.Duration(seconds)*time.Second; <-tick.C {
			call := llmtest.Call{User: "u", Stream: true, MaxTokens: 20_000,
				Plan: llmtest.Plan{Output: logNormal(r, 5_000), Takes: 200 * time.Millisecond}}
			all.Go(func() { l.Do(t.Context(), call) })
		}
		all.Wait()
		whole := budget + int64(time.Since(start).Minutes()*budget)
		n := spent(l, "u")
		t.Logf("spent %d of %d: %.1f %%", n, whole, 100*float64(n)/float64(whole))
		if n < whole*90/100 || n > whole*102/100 {
			t.Errorf("spent %d of %d, want 90 to 102 %%", n, whole)
		}
	})
}

// TestCallsWithoutEstimate: a call that sets no limit is asked about and reserves the default. The configuration that
// sends one descriptor only, with the estimate, asks about none of them.
func TestCallsWithoutEstimate(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		insideHour()
		setup := llmtest.Setup{Rules: rules("{amount: estimate, default: 100000, max: 100000}", perHour)}
		call := llmtest.Call{User: "u", Stream: true, Plan: llmtest.Plan{Output: 900_000, Takes: time.Second}}
		l := p.start(t, setup)
		if o := l.Burst(t.Context(), 12, call); o.Passed != 10 || o.Refused != 2 {
			t.Errorf("%+v, want 10 that pass", o)
		}
		setup.Change = func(config string) string {
			const plain, estimate = "- actions:\n", "- hits_addend: {format: \"%DYNAMIC_METADATA(llm:estimate)%\"}\n"
			i := strings.Index(config, plain+strings.Repeat(" ", 32)+"- {request_headers: {header_name: x-user")
			if i < 0 {
				t.Fatalf("the configuration has no plain descriptor:\n%s", config)
			}
			return config[:i] + estimate + strings.Repeat(" ", 30) + strings.TrimPrefix(config[i:], "- ")
		}
		l = p.start(t, setup)
		if o := l.Burst(t.Context(), 12, call); o.Passed != 12 {
			t.Errorf("with the trap: %+v; this test looks at the wrong thing", o)
		}
	})
}

// TestFailuresGiveBack: what failed calls and broken streams have reserved is back within a second.
func TestFailuresGiveBack(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		insideHour()
		l := p.start(t, llmtest.Setup{
			Rules: rules("{amount: estimate, default: 16384, max: 100000, on_lost: free, on_5xx: free}", perHour)})
		for _, end := range []llmtest.End{llmtest.Fails, llmtest.Cut, llmtest.Refuses} {
			call := long("u")
			call.Plan.End, call.Plan.Takes = end, 50*time.Millisecond
			if o := l.Burst(t.Context(), 10, call); o.Refused > 0 {
				t.Errorf("%s: %+v", end, o)
			}
			wantLeft(t, l, "u", budget, time.Second)
		}
	})
}

// TestLostCostsAreCharged: with on_lost and on_5xx: charge what they have reserved counts as used.
func TestLostCostsAreCharged(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		insideHour()
		l := p.start(t, llmtest.Setup{
			Rules: rules("{amount: estimate, default: 16384, max: 100000, on_lost: charge, on_5xx: charge}", perHour)})
		for i, end := range []llmtest.End{llmtest.Fails, llmtest.Cut, llmtest.Silent} {
			call := long("u")
			call.Plan.End, call.Plan.Takes = end, 50*time.Millisecond
			l.Do(t.Context(), call)
			time.Sleep(500 * time.Millisecond)
			wantLeft(t, l, "u", budget-100_000*int64(i+1), time.Second)
		}
	})
}

// TestEnvoyIsKilled: the reservations of an Envoy that is killed are settled as on_lost says, within twice the grace.
func TestEnvoyIsKilled(t *testing.T) {
	const grace = 3 * time.Second
	for _, c := range []struct {
		onLost string
		left   int64
	}{{"free", budget}, {"charge", 0}} {
		t.Run(c.onLost, func(t *testing.T) {
			places := everywhere
			if c.onLost == "charge" && !random.Long() {
				places = inMemory
			}
			places(t, func(t *testing.T, p place) {
				insideHour()
				l := p.start(t, llmtest.Setup{
					Rules: rules("{amount: estimate, default: 16384, max: 100000, on_lost: "+c.onLost+"}", perHour),
					Serve: []string{"--owner-grace", grace.String()}, Print: []string{"--owner-grace", grace.String()}})
				call := llmtest.Call{User: "u", Stream: true, MaxTokens: 4_000,
					Plan: llmtest.Plan{Output: 4_000, Takes: time.Hour}}
				go l.Burst(t.Context(), 200, call)
				testenv.Eventually(t, 20*time.Second, "have 200 streams", func() string {
					if n := l.Model.Open(); n != 200 {
						return fmt.Sprintf("%d are open", n)
					}
					return ""
				})
				if n := left(t, l, "u"); n > budget-200*4_000 {
					t.Errorf("%d are left while all are open", n)
				}
				time.Sleep(grace) // the access log is connected, and has reported them
				l.Envoy.Kill()
				testenv.Eventually(t, 2*grace+2*time.Second, "settle them", func() string {
					if n := metric(t, l, "headgate_reservations_open"); n != 0 {
						return fmt.Sprintf("%v reservations are open", n)
					}
					return ""
				})
				if c.left > 0 {
					wantLeft(t, l, "u", c.left, time.Second)
				} else if n := left(t, l, "u"); n > budget-200*4_000 {
					t.Errorf("%d are left", n)
				}
			})
		})
	}
}

// TestSeveralLimits: limits of one rule reserve and settle together.
func TestSeveralLimits(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		insideHour()
		month := fmt.Sprintf("{name: month, algorithm: fixed_window, limit: %d, window: 30d}", budget)
		l := p.start(t, llmtest.Setup{Rules: rules(estimated, perHour, month)})
		call := long("u")
		call.Plan.Output, call.Plan.Takes = 50_000, 0
		passed := 0
		for l.Do(t.Context(), call).Passed == 1 && passed < 100 {
			passed++
			wantLeft(t, l, "u", budget-50_000*int64(passed), 5*time.Second)
		}
		if passed != 19 { // the 20th finds 50,000 left, and reserves 100,000
			t.Errorf("%d passed, want 19", passed)
		}
	})
}

// TestWindowEnds: a stream that began in one window gives nothing back to the next one.
func TestWindowEnds(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		const window = 8 * time.Second
		l := p.start(t, llmtest.Setup{Rules: rules(estimated,
			fmt.Sprintf("{algorithm: fixed_window, limit: %d, window: 8s}", budget))})
		early, late := long("u"), long("u")
		early.Plan.Output, early.Plan.Takes = 5_000, 3*time.Second
		late.Plan.Takes = 3 * time.Second
		now := time.Duration(time.Now().UnixNano())
		time.Sleep((2*window - 1500*time.Millisecond - now%window) % window)
		var all sync.WaitGroup
		var one, two llmtest.Outcome
		all.Go(func() { one = l.Burst(t.Context(), 10, early) })
		time.Sleep(2 * time.Second) // the next window
		all.Go(func() { two = l.Burst(t.Context(), 20, late) })
		time.Sleep(2 * time.Second) // the early ones have ended
		if o := l.Burst(t.Context(), 5, late); o.Refused != 5 {
			t.Errorf("after the early ones have ended: %+v, want all refused", o)
		}
		all.Wait()
		if one.Passed != 10 || two.Passed != 10 {
			t.Errorf("%+v, then %+v; want 10 of each", one, two)
		}
	})
}

// left asks a headgate what a user's budget has left, without taking anything.
func left(t *testing.T, l *llmtest.Lab, user string) int64 {
	t.Helper()
	return leftOf(t, l, "x-user", user)
}

// leftOf asks how much is left for a descriptor of one entry.
func leftOf(t *testing.T, l *llmtest.Lab, key, value string) int64 {
	t.Helper()
	question := fmt.Sprintf(`{"domain": "llm", "descriptors": [{"hitsAddend": "0", "entries": [`+
		`{"key": %q, "value": %q}]}]}`, key, value)
	client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Post("http://"+l.Headgates[0].HTTP+"/json", "application/json", bytes.NewBufferString(question))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var a struct {
		Statuses []struct{ LimitRemaining int64 }
	}
	if err := json.NewDecoder(resp.Body).Decode(&a); err != nil || len(a.Statuses) != 1 {
		t.Fatalf("headgate's answer: %v %v", err, a)
	}
	return a.Statuses[0].LimitRemaining
}

// wantLeft waits until so much is left.
func wantLeft(t *testing.T, l *llmtest.Lab, user string, n int64, within time.Duration) {
	t.Helper()
	testenv.Eventually(t, within, fmt.Sprintf("have %d left", n), func() string {
		if got := left(t, l, user); got != n {
			return fmt.Sprintf("%d are left", got)
		}
		return ""
	})
}
