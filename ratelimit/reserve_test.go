package ratelimit

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/ratelimit/leases"
)

const reserveRules = `
domain: d
descriptors:
  - key: user
    reserve: {amount: estimate, default: 100, max: 400, ttl: 1m, on_lost: free}
    limits: [{name: tpm, algorithm: fixed_window, limit: 1000, window: 1h}]
  - key: two
    reserve: {amount: 100, ttl: 1m, on_5xx: charge}
    limits:
      - {name: tpm, algorithm: token_bucket, rate: 1000/h}
      - {name: month, algorithm: fixed_window, limit: 10000, window: 30d}
  - key: anon
    reserve: {amount: auto, default: 100, max: 400, ttl: 1m, match: oldest}
    limits: [{name: tpm, algorithm: fixed_window, limit: 1000, window: 1h}]
  - key: auto
    reserve: {amount: auto, default: 100, max: 400, ttl: 1m}
    limits: [{name: tpm, algorithm: fixed_window, limit: 1000, window: 1h}]
  - key: one
    limits:
      - {name: requests, algorithm: fixed_window, limit: 3, window: 1h}
      - {name: tokens, algorithm: fixed_window, limit: 1000, window: 1h, reserve: {amount: 100, ttl: 1m}}
  - key: quiet
    shadow_mode: true
    reserve: {amount: 600, ttl: 1m}
    limits: [{name: tpm, algorithm: fixed_window, limit: 1000, window: 1h}]
  - key: plain
    rate_limit: {unit: hour, requests_per_unit: 3}
`

func ofToken(op, token string) Descriptor {
	return desc(OpKey + "=" + op + "," + LeaseEntry + "=" + token)
}

// ended is what Envoy sends at the end of a request.
func ended(token string, cost uint64, status uint64) []Descriptor {
	return []Descriptor{ofToken("settle", token).withHits(cost), ofToken("release", token),
		ofToken("outcome", token).withHits(status)}
}

// failed is what Envoy sends if the cost is not known.
func failed(token string, status uint64) []Descriptor { return ended(token, 0, status)[1:] }

// reserve asks with an estimate, if it is not 0, and returns the token, "" if it is refused.
func (h *harness) reserve(text string, estimate uint64) string {
	h.Helper()
	list := []Descriptor{desc(text)}
	if estimate > 0 {
		list = append(list, desc(OpKey+"=estimate").withHits(estimate))
	}
	r := h.ask(list...)
	if r.Err != nil {
		h.Fatal(r.Err)
	}
	token := meta(h.T, r, DefaultLeaseKey)
	if r.OverLimit == (token != "") {
		h.Fatalf("%s: token %q", summary(r), token)
	}
	return token
}

// left returns what is left of the limits of a descriptor.
func (h *harness) units(text string) string {
	h.Helper()
	usages, err := h.Usage(h.Context(), []string{"d"}, [][]descriptors.Entry{desc(text).Entries})
	if err != nil {
		h.Fatal(err)
	}
	var list []string
	for _, u := range usages[0].Limits {
		list = append(list, strconv.FormatInt(u.Remaining, 10))
	}
	return strings.Join(list, " ")
}

func (h *harness) wantLeft(text, want string) {
	h.Helper()
	if got := h.units(text); got != want {
		h.Errorf("%s: %s left, want %s", text, got, want)
	}
}

func (h *harness) wantEvents(rule, want string) {
	h.Helper()
	if got := h.events(rule); got != want {
		h.Errorf("events of %s: %s; want %s", rule, got, want)
	}
}

func TestReservationsAreSettledByToken(t *testing.T) {
	h := setup(t, reserveRules)
	a, b := h.reserve("user=u", 300), h.reserve("user=u", 0)
	h.wantLeft("user=u", "600")
	big := h.reserve("user=u", 5000) // at most 400
	h.wantLeft("user=u", "200")
	if h.reserve("user=u", 300) != "" {
		t.Error("300 of 200 are admitted")
	}
	h.ask(ended(a, 120, 200)...)
	h.wantLeft("user=u", "380")
	h.ask(ended(a, 120, 200)...) // a repeated end
	h.wantLeft("user=u", "380")
	h.ask(ended(b, 150, 200)...) // more than was reserved
	h.wantLeft("user=u", "330")
	h.ask(failed(big, 500)...)
	h.wantLeft("user=u", "730")
	h.wantEvents("user", "reserved 3, settled 2, failed 1, repeated 1")
	units := h.counts.ReservedUnits("d", "user")
	if r, back, over := units.At(int(leases.UnitsReserved)).Value(), units.At(int(leases.UnitsRefunded)).Value(),
		units.At(int(leases.UnitsOverspent)).Value(); r != 800 || back != 580 || over != 50 {
		t.Errorf("units: %d reserved, %d refunded, %d overspent", r, back, over)
	}
}

func TestSeveralLimitsReserveTogether(t *testing.T) {
	h := setup(t, reserveRules)
	a, b := h.reserve("two=u", 0), h.reserve("two=u", 0)
	h.wantLeft("two=u", "800 9800")
	h.ask(ended(a, 30, 200)...)
	h.wantLeft("two=u", "870 9870")
	h.ask(failed(b, 503)...) // on_5xx: charge
	h.wantLeft("two=u", "870 9870")
	h.wantEvents("two", "reserved 2, settled 1, failed 1")
}

func TestALimitOfARuleReservesAlone(t *testing.T) {
	h := setup(t, reserveRules)
	a := h.reserve("one=u", 0)
	h.wantLeft("one=u", "2 900")
	h.ask(ended(a, 20, 200)...)
	h.wantLeft("one=u", "2 980")
}

func TestReportsSettleTheOldestReservation(t *testing.T) {
	h := setup(t, reserveRules)
	ask, report := desc("anon=u").withHits(0), func(n uint64) *Response { return h.ask(desc("anon=u").withHits(n)) }
	for range 3 {
		h.now = h.now.Add(time.Second)
		want := "OK: ok/" + h.leftAfter("anon=u", 100)
		h.want(h.ask(ask), want)
	}
	h.wantLeft("anon=u", "700")
	h.want(report(40), "OK: ok/760")
	h.want(report(250), "OK: ok/610")
	h.wantEvents("anon", "reserved 3, settled 2")
	report(10)
	report(20) // for which nothing is reserved
	h.wantLeft("anon=u", "680")
	h.wantEvents("anon", "reserved 3, settled 3, unreserved 1")
}

func (h *harness) leftAfter(text string, cost int64) string {
	n, _ := strconv.ParseInt(h.units(text), 10, 64)
	return strconv.FormatInt(n-cost, 10)
}

// autoReserved asks and settles with a cost, and returns how many units were reserved.
func (h *harness) autoReserved(key string, estimate, cost uint64) string {
	h.Helper()
	list := []Descriptor{desc("auto=" + key)}
	if estimate > 0 {
		list = append(list, desc(OpKey+"=estimate").withHits(estimate))
	}
	r := h.ask(list...)
	h.ask(ended(meta(h.T, r, DefaultLeaseKey), cost, 200)...)
	return meta(h.T, r, "reserved")
}

// TestAutoFollowsCosts: up at once, and down by half at most, after many cheap requests over some time; never below
// the rule's min.
func TestAutoFollowsCosts(t *testing.T) {
	h := setup(t, strings.ReplaceAll(reserveRules, "limit: 1000,", "limit: 1000000,"))
	for i, step := range []struct {
		cheap int           // requests that cost little
		after time.Duration // before the last of them
		cost  uint64
		want  string // what is reserved then
	}{
		{0, 0, 20, "100"},                    // the default
		{1, 0, 20, "100"},                    // one request is not enough
		{100, 0, 20, "100"},                  // nor are many at once
		{1, time.Minute, 20, "100"},          // a minute is not enough
		{1, 2 * time.Second, 20, "50"},       // more than one is
		{100, time.Minute, 20, "50"},         // again
		{1, 2 * time.Second, 20, "25"},       // which is the min
		{100, time.Hour, 20, "25"},           // for ever
		{0, 0, 60, "25"},                     // that was before it cost more
		{13, time.Hour, 20, "60"},            // fewer than 16 are not enough
		{1, 0, 40, "60"},                     // more than half of it begins anew
		{15, time.Hour, 20, "60"},            // the 16th
		{0, 0, 330, "30"},                    // at once
		{0, 0, 900, "336"},                   // 330 in steps of 16
		{0, 0, 20, "400"},                    // at most the max
		{100, time.Hour, 20, "200"},          // half of it
		{0, 0, 20, "200"},                    // which stays
		{16, 24 * 24 * time.Hour, 20, "100"}, // a pause
	} {
		for n := range step.cheap {
			if n == step.cheap-1 {
				h.now = h.now.Add(step.after)
			}
			h.autoReserved("a", 0, 20)
		}
		if got := h.autoReserved("a", 0, step.cost); got != step.want {
			t.Errorf("step %d: %s are reserved, want %s", i, got, step.want)
		}
	}
}

// TestAutoOfANewKey: it reserves the default, whatever other keys have cost.
func TestAutoOfANewKey(t *testing.T) {
	h := setup(t, strings.ReplaceAll(reserveRules, "limit: 1000,", "limit: 100000000,"))
	for i := range 300 {
		h.autoReserved("cheap", 0, 1)
		h.autoReserved("dear", 0, 200_000)
		h.now = h.now.Add(10 * time.Second)
		if got := h.autoReserved(fmt.Sprint("new", i), 0, 1); got != "100" {
			t.Fatalf("after %d requests of others a new key reserves %s", i, got)
		}
	}
	if cheap, dear := h.autoReserved("cheap", 0, 1), h.autoReserved("dear", 0, 1); cheap != "25" || dear != "400" {
		t.Errorf("the others reserve %s and %s", cheap, dear)
	}
}

// TestAutoHasAFloor: what a request estimates counts, but not below the min.
func TestAutoHasAFloor(t *testing.T) {
	h := setup(t, reserveRules)
	for estimate, want := range map[uint64]string{1: "25", 24: "25", 26: "26", 99: "99", 5000: "100"} {
		if got := h.autoReserved(fmt.Sprint(estimate), estimate, 0); got != want {
			t.Errorf("an estimate of %d reserves %s, want %s", estimate, got, want)
		}
	}
}

// TestFiguresFitAWord: a figure is kept as it is, but for its units, which are rounded up to five binary digits.
func TestFiguresFitAWord(t *testing.T) {
	for units := int64(1); units < limit.MaxUnits; units += units/7 + 1 {
		f := figure{units: units, calls: int(units % (costRun + 1)), since: units % (1 << sinceBits)}
		v := f.pack()
		got := unpackFigure(v)
		if got.units < units || got.units > units+units/16 || got.calls != f.calls || got.since != f.since ||
			v>>slotBits != 0 || got.pack() != v {
			t.Fatalf("%+v becomes %+v", f, got)
		}
	}
	if f := (figure{}); unpackFigure(f.pack()) != f {
		t.Error("the default does not stay one")
	}
}

// TestRisesAreNotLost: of requests that end at once the dearest counts.
func TestRisesAreNotLost(t *testing.T) {
	table, r := newCostTable(), &descriptors.Reserve{Default: 100, Min: 25, Max: 1 << 20}
	for i := range 2000 {
		key := fmt.Sprint(i)
		var all sync.WaitGroup
		all.Go(func() {
			for range 200 {
				table.learn(key, 1, r, start2026)
			}
		})
		all.Go(func() { table.learn(key, 5000, r, start2026) })
		all.Wait()
		if got := table.get(key); got < 5000 {
			t.Fatalf("the figure is %d, want at least 5000", got)
		}
	}
}

// TestAFigureFallsToTheMin: and not to nothing, which is the default.
func TestAFigureFallsToTheMin(t *testing.T) {
	f, r := figure{units: 400}, &descriptors.Reserve{Default: 100, Min: 1, Max: 400}
	for i := range int64(20 * costRun) {
		before := f.units
		if f = f.after(0, r, 5*i); f.units > before || f.units < 1 {
			t.Fatalf("after request %d the figure is %d, and was %d", i, f.units, before)
		}
	}
	if f.units != 1 {
		t.Errorf("after many requests that cost nothing the figure is %d, want 1", f.units)
	}
}

// TestLostReservations: nobody reports an end.
func TestLostReservations(t *testing.T) {
	h := setup(t, reserveRules)
	h.now = h.now.Add(time.Second) // at the edge of a window it is not sure in which one it was charged
	h.reserve("user=u", 0)         // on_lost: free
	h.reserve("two=u", 0)          // on_lost: charge
	h.ask(desc("anon=u").withHits(0))
	h.wantInFlight(3)
	h.now = h.now.Add(59 * time.Second)
	h.wantInFlight(3)
	h.now = h.now.Add(2 * time.Second)
	h.wantInFlight(0)
	h.wantLeft("user=u", "1000")
	h.wantLeft("two=u", "916 9900") // the bucket has refilled some
	h.wantLeft("anon=u", "1000")
	for _, rule := range []string{"user", "two", "anon"} {
		h.wantEvents(rule, "reserved 1, lost 1")
	}
	if !strings.Contains(h.log.String(), "their reservations are lost") {
		t.Error("the log does not say so")
	}
}

// TestOddTokens: they give nothing back.
func TestOddTokens(t *testing.T) {
	h := setup(t, reserveRules)
	token := h.reserve("user=u", 0)
	for name, list := range map[string][]Descriptor{
		"forged":    ended("AAAA", 1, 200),
		"cut":       ended(token[:len(token)-1], 1, 200),
		"empty":     ended("", 1, 200),
		"no lease":  {desc(OpKey + "=settle").withHits(1)},
		"no hits":   {ofToken("settle", token)},
		"negative":  {ofToken("settle", token).refund(1)},
		"many hits": {ofToken("settle", token).withHits(1 << 63)},
		"unknown":   {ofToken("refund", token)},
	} {
		if name == "many hits" {
			continue // settles, below
		}
		h.ask(list...)
		if got := h.units("user=u"); got != "900" {
			t.Errorf("%s: %s left, want 900", name, got)
		}
	}
	h.ask(ofToken("settle", token).withHits(1 << 63))
	if n, _ := strconv.Atoi(h.units("user=u")); n != 0 {
		t.Errorf("a cost of 2^63 leaves %d", n)
	}
	h.now = h.now.Add(3 * time.Hour)
	h.ask(ended(token, 1, 200)...)
	h.wantEvents("user", "reserved 1, settled 1, late 1")
}

// TestShadowModeReservesNothingItHasNot: what a limit in shadow mode had no room for is not given back.
func TestShadowModeReservesNothingItHasNot(t *testing.T) {
	h := setup(t, reserveRules)
	a := h.reserve("quiet=u", 0)
	r := h.ask(desc("quiet=u"))
	if token := meta(t, r, DefaultLeaseKey); r.OverLimit || token != "" {
		t.Fatalf("%s, token %q", summary(r), token)
	}
	h.eventually("the second reservation is given up", func() bool {
		if err := h.Leases().Join(h.Context()); err != nil {
			t.Fatal(err)
		}
		list, _ := h.Leases().InFlight()
		return len(list) == 1 && list[0].Count == 1
	})
	h.wantLeft("quiet=u", "400")
	h.ask(ended(a, 500, 200)...)
	h.wantLeft("quiet=u", "500")
}

// TestLostInShadowMode: what a limit in shadow mode, a rule in quota mode or a service in shadow mode may not have
// charged is not given back.
func TestLostInShadowMode(t *testing.T) {
	rules := strings.Replace(reserveRules, "    shadow_mode: true\n    reserve: {amount: 600, ttl: 1m}",
		"    %s\n    reserve: {amount: 600, ttl: 1m, on_lost: free}", 1)
	for mode, change := range map[string]func(*Config){
		"shadow_mode: true": func(*Config) {},
		"quota_mode: true":  func(*Config) {},
		"quota_mode: false": func(c *Config) { c.ShadowMode = true },
	} {
		h := setup(t, fmt.Sprintf(rules, mode), change)
		h.now = h.now.Add(time.Second)
		h.reserve("quiet=u", 0)
		h.now = h.now.Add(61 * time.Second)
		h.wantInFlight(0)
		h.wantLeft("quiet=u", "400")
		h.wantEvents("quiet", "reserved 1, lost 1")
	}
}

// TestATokenExpiresWithItsFirstLease: of several leases the one that expires first says when an end is late.
func TestATokenExpiresWithItsFirstLease(t *testing.T) {
	const rules = `
domain: d
descriptors:
  - {key: short, reserve: {amount: 1, ttl: 1m}, rate_limit: {unit: day, requests_per_unit: 9}}
  - {key: long, reserve: {amount: 1, ttl: 1h}, rate_limit: {unit: day, requests_per_unit: 9}}
  - {key: soon, concurrency: [{threshold: 9, response: {statusCode: 429}}], lease_ttl: 3m}
  - {key: later, concurrency: [{threshold: 9, response: {statusCode: 429}}], lease_ttl: 2h}
`
	signer := leases.NewSigner([]byte("known"))
	for keys, want := range map[string]time.Duration{
		"short long": 2 * time.Minute, "long short": 2 * time.Minute, "soon later": 3 * time.Minute,
		"later soon": 3 * time.Minute, "long soon": 3 * time.Minute, "later short": 2 * time.Minute,
		"later long": time.Hour + time.Minute, // with the grace of a reservation
	} {
		h := setup(t, rules, func(c *Config) { c.Leases = signer })
		first, second, _ := strings.Cut(keys, " ")
		var l leases.Lease
		if err := signer.Parse(meta(t, h.ask(desc(first+"=u"), desc(second+"=u")), DefaultLeaseKey), &l); err != nil {
			t.Fatal(err)
		}
		if got := l.Until.Sub(h.now); got != want {
			t.Errorf("%s: the token expires after %v, want %v", keys, got, want)
		}
	}
}

// TestARefusedRequestReservesNothing: of several descriptors one refuses.
// TestAProviderThatIsFull: the status 429 at the end takes what is left of the limit that has room again first, once.
func TestAProviderThatIsFull(t *testing.T) {
	h := setup(t, `
domain: d
descriptors:
  - key: to
    choose: provider
    reserve: {amount: 100, ttl: 1m, on_429: exhaust}
    limits:
      - {name: tpm, algorithm: token_bucket, rate: 1000/min}
      - {name: day, algorithm: fixed_window, limit: 50000, window: 1d}
      - {name: seen, algorithm: fixed_window, limit: 1000, window: 1h, shadow: true}
`)
	h.now = h.now.Add(time.Second)
	ask := func() (token, chosen string) {
		r := h.ask(desc("to=openai"), desc("to=azure"))
		chosen = "none"
		for i, st := range r.Statuses {
			if !r.OverLimit && !st.OverLimit && chosen == "none" {
				chosen = []string{"openai", "azure"}[i]
			}
		}
		return meta(t, r, DefaultLeaseKey), chosen
	}
	first, _ := ask()
	second, to := ask()
	if to != "openai" {
		t.Fatalf("chosen is %s", to)
	}
	h.ask(ended(first, 0, 200)...)
	h.wantLeft("to=openai", "900 49900 900")
	h.ask(ended(second, 0, 429)...)
	h.wantLeft("to=openai", "0 50000 1000")
	third, _ := ask()
	h.wantLeft("to=azure", "900 49900 900")
	h.now = h.now.Add(30 * time.Second)
	h.ask(ended(second, 0, 429)...) // a repeated end
	h.wantLeft("to=openai", "500 50000 1000")
	h.ask(ended(third, 40, 200)...)
	h.wantLeft("to=azure", "960 49960 960")
	h.wantEvents("to", "reserved 3, settled 2, repeated 1, full 1")
}

func TestARefusedRequestReservesNothing(t *testing.T) {
	h := setup(t, reserveRules)
	for range 3 {
		h.ask(desc("plain=x"))
	}
	if r := h.ask(desc("user=u"), desc("plain=x")); !r.OverLimit || meta(t, r, DefaultLeaseKey) != "" {
		t.Errorf("%s", summary(r))
	}
	h.ask(desc("plain=x"))
	if n := h.counts.Reservation("", "").At(int(leases.Refused)).Value(); n != 0 {
		t.Errorf("%d refusals of requests that reserve nothing count as those of reservations", n)
	}
	h.wantLeft("user=u", "1000")
	h.wantInFlight(0)
}

// TestAnUnusedAnswerGivesBack: nobody received the token.
func TestAnUnusedAnswerGivesBack(t *testing.T) {
	h := setup(t, reserveRules)
	r := h.ask(desc("user=u"))
	h.wantLeft("user=u", "900")
	h.Abandon(r)
	h.eventually("the units are back", func() bool { return h.units("user=u") == "1000" })
	h.wantEvents("user", "reserved 1, cancelled 1")
}

// TestResetForgetsReservations: their ends give back nothing that others have taken since.
func TestResetForgetsReservations(t *testing.T) {
	h := setup(t, reserveRules)
	token := h.reserve("user=u", 0)
	h.be.forget = true
	req := &Request{Domain: "d", Descriptors: []Descriptor{desc("user=u").withHits(0)}}
	if err := h.Reset(h.Context(), req); err != nil {
		t.Fatal(err)
	}
	h.reserve("user=u", 0)
	h.ask(ended(token, 1, 200)...)
	h.wantLeft("user=u", "900")
}

// TestRetriedCallReservesOnce: a call with the same id.
func TestRetriedCallReservesOnce(t *testing.T) {
	h := setup(t, reserveRules)
	for range 2 {
		h.askAs(Request{ID: "x"}, desc("user=u"))
	}
	h.wantLeft("user=u", "900")
}

// TestSettlementsOutliveTheStore: what the store could not do is done when it is back.
func TestSettlementsOutliveTheStore(t *testing.T) {
	h := setup(t, reserveRules)
	token := h.reserve("user=u", 0)
	failing := 2
	h.be.before = func() error {
		if failing--; failing >= 0 {
			return backends.ErrUnavailable
		}
		return nil
	}
	h.ask(ended(token, 10, 200)...)
	settled := h.counts.Reservation("d", "user").At(int(leases.Settled))
	h.eventually("it is settled", func() bool { return settled.Value() == 1 })
	h.wantLeft("user=u", "990")
}

// TestChangedRulesSettleByThemselves: an end is settled by the rules then in force.
func TestChangedRulesSettleByThemselves(t *testing.T) {
	h := setup(t, reserveRules)
	token := h.reserve("user=u", 0)
	set := func(rules string) {
		if err := h.SetRules(mustLoad(t, rules)); err != nil {
			t.Fatal(err)
		}
	}
	set(strings.Replace(reserveRules, "limit: 1000, window: 1h", "limit: 5000, window: 1h", 1))
	h.wantLeft("user=u", "4900")
	h.ask(ended(token, 10, 200)...)
	h.wantLeft("user=u", "4990")
	token = h.reserve("user=u", 0)
	set("domain: d\ndescriptors: [{key: other, rate_limit: {unit: hour, requests_per_unit: 1}}]\n")
	h.want(h.ask(ended(token, 10, 200)...), "OK: ok ok ok") // which ends the reservation, and that is all
	h.be.mu.Lock()
	defer h.be.mu.Unlock()
	for k, s := range h.be.states {
		if k.Limit == limit.ReservationPart && s.Leases != nil {
			count := limit.Op{Limit: limit.MustNew(limit.Spec{Algorithm: limit.Concurrency, Max: 5, Window: time.Minute})}
			if _, out := limit.Step(s, &count, h.now); out.InFlight != 0 {
				t.Errorf("%v has %d reservations", k, out.InFlight)
			}
		}
	}
}

// TestAccessLogKeepsReservations: it renews those of long requests, and does not end any: it does
// not know their cost.
func TestAccessLogKeepsReservations(t *testing.T) {
	h := setup(t, reserveRules)
	h.now = h.now.Add(time.Second)
	token := h.reserve("user=u", 0)
	says := func(a leases.Action) { h.Leases().Apply(h.Context(), "d", a, []string{token}) }
	says(leases.End)
	h.wantLeft("user=u", "900")
	for range 10 { // of 20 s: the ttl is a minute
		h.now = h.now.Add(20 * time.Second)
		says(leases.Renew)
		h.wantInFlight(1)
	}
	h.ask(ended(token, 30, 200)...)
	h.wantLeft("user=u", "970")
	h.wantEvents("user", "reserved 1, settled 1")

	token = h.reserve("user=u", 0)
	h.now = h.now.Add(50 * time.Second)
	says(leases.Renew)
	h.now = h.now.Add(70 * time.Second) // lost after it was renewed: nobody knows when it was charged
	h.wantInFlight(0)
	h.wantLeft("user=u", "870")
	h.wantEvents("user", "reserved 2, settled 1, lost 1")
}

// TestManyLostReservations of one key end in one round, more than one op ends.
func TestManyLostReservations(t *testing.T) {
	const n = 2*limit.OwnerSlice + 5
	h := setup(t, "domain: d\ndescriptors:\n- key: user\n  reserve: {amount: 1, ttl: 1m, on_lost: free}\n"+
		"  rate_limit: {unit: day, requests_per_unit: 5000}\n")
	h.now = h.now.Add(time.Second)
	for range n {
		h.reserve("user=u", 0)
	}
	h.wantLeft("user=u", strconv.Itoa(5000-n))
	h.now = h.now.Add(61 * time.Second)
	h.wantInFlight(0)
	h.wantLeft("user=u", "5000")
	h.wantEvents("user", fmt.Sprintf("reserved %d, lost %d", n, n))
}
