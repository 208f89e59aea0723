package ratelimit

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/policies"
	"github.com/headgate-rls/headgate/ratelimit/leases"
	"github.com/headgate-rls/headgate/test/random"
)

// open returns how many reservations of a key are open, as the store has them.
func (h *harness) open() (n int64) {
	h.be.mu.Lock()
	defer h.be.mu.Unlock()
	for k, s := range h.be.states {
		if k.Limit == limit.ReservationPart {
			n += s.Leases.InFlight(h.now)
		}
	}
	return n
}

// openRules have a budget of 1,000, which has room for 40 reservations of the min.
const openRules = `
domain: d
descriptors:
  - key: user
    overflow: %s
    reserve: {amount: auto, default: 100, min: 25, max: 400, ttl: 2m, match: %s}
    limits: [{name: tpm, %s}]
`

// TestOpenReservations: a client that estimates little and costs anything has at most budget ÷ min reservations open,
// in whatever order it asks, reports and lets windows end.
func TestOpenReservations(t *testing.T) {
	const most = 1000 / 25
	for _, algorithm := range []string{"algorithm: fixed_window, limit: 1000, window: 20s",
		"algorithm: sliding_window, limit: 1000, window: 20s", "algorithm: sliding_log, limit: 1000, window: 20s",
		"algorithm: token_bucket, rate: 1000/20s"} {
		for _, overflow := range []string{"debt", "saturate"} {
			for _, match := range []string{"token", "oldest"} {
				t.Run(algorithm[11:20]+" "+overflow+" "+match, func(t *testing.T) {
					var clock atomic.Int64 // answers are abandoned in the background
					clock.Store(int64(start2026))
					h := setup(t, fmt.Sprintf(openRules, overflow, match, algorithm),
						func(c *Config) { c.Now = func() limit.Instant { return limit.Instant(clock.Load()) } })
					if reached := h.hostile(most, match == "oldest", &clock); reached < most*3/4 {
						t.Errorf("at most %d reservations were open: this test shows nothing", reached)
					}
				})
			}
		}
	}
}

// hostile plays such a client, and returns how many reservations were open at most.
func (h *harness) hostile(most int64, oldest bool, clock *atomic.Int64) (reached int64) {
	r := random.Rand(h.T, 17)
	var tokens []string
	for i := range random.Times(3000, 100_000) {
		cost := uint64([]int{0, 1, 20, 25, 100}[r.IntN(5)])
		if r.IntN(50) == 0 {
			cost = 3000
		}
		switch n := r.IntN(100); {
		case n < 85:
			list := []Descriptor{desc("user=u"), desc(OpKey + "=estimate").withHits(1)}
			if oldest {
				list[0] = list[0].withHits(0)
			}
			resp := h.ask(list...)
			if token := meta(h.T, resp, DefaultLeaseKey); token != "" {
				tokens = append(tokens, token)
			}
			if r.IntN(20) == 0 {
				h.Abandon(resp)
			}
		case n < 93 && oldest:
			h.ask(desc("user=u").withHits(max(cost, 1)))
		case n < 93 && len(tokens) > 0:
			k := r.IntN(len(tokens))
			h.ask(ended(tokens[k], cost, 200)...)
		default:
			h.now = h.now.Add(time.Duration(r.IntN(3000)) * time.Millisecond)
			clock.Store(int64(h.now))
		}
		if n := h.open(); n > most {
			h.Fatalf("after step %d %d reservations are open, more than %d", i, n, most)
		} else {
			reached = max(reached, n)
		}
	}
	return reached
}

// TestTooManyOpenReservations: reservations stay open when their window ends. A request that finds too many is refused,
// and the answer names the limit. When a reservation ends, the next request passes.
func TestTooManyOpenReservations(t *testing.T) {
	for _, match := range []string{"token", "oldest"} {
		h := setup(t, fmt.Sprintf(openRules, "debt", match, "algorithm: fixed_window, limit: 1000, window: 20s"))
		ask := []Descriptor{desc("user=u"), desc(OpKey + "=estimate").withHits(1)}
		report := func(string) []Descriptor { return []Descriptor{desc("user=u").withHits(25)} }
		if match == "oldest" {
			ask[0] = ask[0].withHits(0)
		} else {
			report = func(token string) []Descriptor { return ended(token, 25, 200) }
		}
		token := ""
		for range 40 {
			r := h.ask(ask...)
			if r.OverLimit {
				t.Fatalf("%s: %s", match, summary(r))
			}
			token = meta(t, r, DefaultLeaseKey)
		}
		h.want(h.ask(ask...), "OVER: over/0 ok") // by the budget
		h.now = h.now.Add(20 * time.Second)
		r := h.ask(ask...)
		h.want(r, "OVER: over/0 ok")
		if got, wait := meta(t, r, "rule"), r.Statuses[0].Reset; got != "d/user:reservations" || wait != 1 {
			t.Errorf("%s: refused by %s for %d s", match, got, wait)
		}
		if got := fmt.Sprint(r.Headers); got != "[{Retry-After 1} {x-headgate-rule d/user:reservations}]" {
			t.Errorf("%s: headers %s", match, got)
		}
		h.wantLeft("user=u", "1000")
		h.wantEvents("user", "reserved 40, refused 1")
		if got := h.counts.count("d/user refused by tpm"); got != 2 {
			t.Errorf("%s: %d refusals are counted, want 2", match, got)
		}
		h.ask(report(token)...)
		if r = h.ask(ask...); r.OverLimit {
			t.Errorf("%s: after one has ended: %s", match, summary(r))
		}
		h.want(h.ask(ask...), "OVER: over/0 ok")
	}
}

// TestOpenReservationsThatRefuseNobody: of limits in shadow mode, of a service in shadow mode, of a rule in quota mode
// beside one with room, and of amounts that have no min.
func TestOpenReservationsThatRefuseNobody(t *testing.T) {
	const window = "algorithm: fixed_window, limit: 1000, window: 20s"
	rules := fmt.Sprintf(openRules, "debt", "token", window)
	with := func(line string) string {
		return strings.Replace(rules, "    overflow", "    "+line+"\n    overflow", 1)
	}
	roomy := "  - {key: roomy, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 5000}}\n"
	for name, c := range map[string]struct {
		rules  string
		change func(*Config)
		events string
	}{
		"shadow rule":    {with("shadow_mode: true"), func(*Config) {}, "reserved 50"},
		"shadow limit":   {strings.Replace(rules, window, window+", shadow: true", 1), func(*Config) {}, "reserved 50"},
		"shadow service": {rules, func(c *Config) { c.ShadowMode = true }, "reserved 40, unkept 10"},
		"quota":          {with("quota_mode: true") + roomy, func(*Config) {}, "reserved 40, unkept 10"},
		"estimate": {strings.Replace(rules, "auto, default: 100, min: 25", "estimate, default: 100", 1), func(*Config) {},
			"reserved 50"},
	} {
		h := setup(t, c.rules, c.change)
		for i := range 50 {
			if r := h.ask(desc("user=u"), desc("roomy=r"), desc(OpKey+"=estimate").withHits(1)); r.OverLimit {
				t.Fatalf("%s: request %d: %s", name, i, summary(r))
			}
			if i%20 == 19 {
				h.now = h.now.Add(20 * time.Second)
			}
		}
		if got := h.events("user"); got != c.events {
			t.Errorf("%s: events %s, want %s", name, got, c.events)
		}
	}
}

// TestOpenReservationsUnderAPolicy: its limit says how many may be open.
func TestOpenReservationsUnderAPolicy(t *testing.T) {
	rules := strings.Replace(fmt.Sprintf(openRules, "debt", "token", "algorithm: fixed_window, limit: 1000, window: 20s"),
		"    overflow", "    policy: user:{user}\n    overflow", 1)
	h := setup(t, rules, withPolicies)
	h.put(map[string]policies.Figures{"user:u": per(limit.FixedWindow, 100, 20)})
	passed := map[string]int{}
	for range 3 {
		for range 50 {
			for _, user := range []string{"u", "v"} {
				if !h.ask(desc("user="+user), desc(OpKey+"=estimate").withHits(1)).OverLimit {
					passed[user]++
				}
			}
		}
		h.now = h.now.Add(20 * time.Second)
	}
	if passed["u"] != 4 || passed["v"] != 40 {
		t.Errorf("passed: %v, want 4 with the policy and 40 without", passed)
	}
}

// TestOpenReservationsOfAChoice: a candidate with as many as it may have is not chosen, and others are; if all have,
// the request is over the limit until one ends.
func TestOpenReservationsOfAChoice(t *testing.T) {
	const candidate = `
  - key: %s
    choose: backend
    reserve: {amount: auto, default: 100, min: 25, max: 400, ttl: 2m}
    limits: [{algorithm: fixed_window, limit: 1000, window: 20s}]`
	h := setup(t, "domain: d\ndescriptors:"+fmt.Sprintf(candidate, "a")+fmt.Sprintf(candidate, "b"))
	ask := func() (winner, token string) {
		r := h.ask(desc("a=u"), desc("b=u"), desc(OpKey+"=estimate").withHits(1))
		if r.OverLimit {
			return meta(t, r, "rule"), ""
		}
		fields := decoded(t, r).GetDynamicMetadata().GetFields()["choose"].GetStructValue().GetFields()
		return fields["backend"].GetStringValue(), meta(t, r, DefaultLeaseKey)
	}
	tokens := map[string]string{}
	for i := range 80 {
		won, token := ask()
		tokens[[]string{"a", "b"}[i/40]] = token
		if won != "u" {
			t.Fatalf("request %d: %s", i, won)
		}
		if i%30 == 29 {
			h.now = h.now.Add(20 * time.Second)
		}
	}
	if a, b := h.events("a"), h.events("b"); a != "reserved 40" || b != "reserved 40" {
		t.Errorf("events: %s; %s", a, b)
	}
	h.now = h.now.Add(20 * time.Second)
	if won, _ := ask(); won != "d/a:reservations" {
		t.Errorf("with all open: %s", won)
	}
	h.ask(ended(tokens["b"], 25, 200)...)
	if won, token := ask(); won != "u" || token == "" {
		t.Errorf("after one has ended: %s", won)
	}
	if got := h.events("b"); got != "reserved 41, settled 1" {
		t.Errorf("events of b: %s", got)
	}
}

// TestOpenReservationsWithoutTheStore: what decides in this process meanwhile knows no reservations.
func TestOpenReservationsWithoutTheStore(t *testing.T) {
	rules := strings.Replace(fmt.Sprintf(openRules, "debt", "token", "algorithm: fixed_window, limit: 1000, window: 20s"),
		"    overflow", "    on_backend_error: local\n    overflow", 1)
	h := setup(t, rules)
	// With the store's word that nothing was charged, nothing is given back in the background, which would read the time
	// that this test sets.
	h.be.err = fmt.Errorf("%w: %w", backends.ErrUnavailable, backends.ErrNotApplied)
	passed := 0
	for range 3 {
		for range 50 {
			if !h.ask(desc("user=u"), desc(OpKey+"=estimate").withHits(1)).OverLimit {
				passed++
			}
		}
		h.now = h.now.Add(20 * time.Second)
	}
	if passed != 120 {
		t.Errorf("%d passed, want 40 in each window", passed)
	}
}

// TestStoresThatKeepFewReservations: where the store keeps fewer than may be open, the rest has none and stays charged;
// the gauge of open ones is right after a report, too.
func TestStoresThatKeepFewReservations(t *testing.T) {
	h := setup(t, fmt.Sprintf(openRules, "debt", "oldest", "algorithm: fixed_window, limit: 1000, window: 1h"),
		func(c *Config) { c.Caps.Algorithms[limit.Concurrency] = backends.AlgorithmCaps{MaxUnits: 10} })
	h.now = h.now.Add(time.Second)
	for range 12 {
		h.ask(desc("user=u").withHits(0), desc(OpKey+"=estimate").withHits(1))
	}
	h.wantEvents("user", "reserved 10, unkept 2")
	h.wantLeft("user=u", "700")
	h.ask(desc("user=u").withHits(25))
	if list, _ := h.Leases().InFlight(); len(list) != 1 || list[0].Count != 9 {
		t.Errorf("open are %v, want 9", list)
	}
}

// events returns what happened to reservations of a rule.
func (h *harness) events(rule string) string {
	var list []string
	for e := range leases.NumReservationEvents {
		if n := h.counts.Reservation("d", rule).At(int(e)).Value(); n > 0 {
			list = append(list, fmt.Sprint(e, " ", n))
		}
	}
	return strings.Join(list, ", ")
}
