package ratelimit

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/policies"
)

const chooseRules = `
domain: d
descriptors:
  - {key: to, value: openai, choose: model, prefer: 2, metadata: {groups: [b], choose: hidden},
     rate_limit: {unit: hour, requests_per_unit: 2}}
  - {key: to, value: azure, choose: model, prefer: 1, metadata: {groups: [a]},
     limits: [{name: rpm, algorithm: fixed_window, limit: 3, window: 1h},
              {name: day, algorithm: token_bucket, rate: 100/d}]}
  - {key: to, value: own, choose: model, prefer: 3, rate_limit: {unlimited: true}}
  - {key: to, value: quiet, choose: model, prefer: 1, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: to, value: quota, choose: model, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: to, value: open, choose: model, on_backend_error: allow, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: to, value: closed, choose: model, prefer: 4, on_backend_error: deny,
     rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: to, value: here, choose: model, on_backend_error: local, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: to, value: day, choose: model, rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: to, value: busy, choose: model, concurrency: [{threshold: 1, response: {statusCode: 503}}]}
  - {key: to, value: idle, choose: model, prefer: 1, concurrency: [{threshold: 1, response: {statusCode: 429}}]}
  - key: user
    rate_limit: {unit: minute, requests_per_unit: 6}
    descriptors:
      - {key: to, choose: model, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: zone, choose: zone, metadata: {zoned: true}, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: plain, metadata: {note: x}, rate_limit: {unit: hour, requests_per_unit: 1}}
  - key: token
    descriptors:
      - {key: to, choose: model, reserve: {amount: estimate, default: 100, max: 200, ttl: 1m, on_lost: free},
         limits: [{algorithm: fixed_window, limit: 200, window: 1h}]}
  - key: oldest
    descriptors:
      - {key: to, choose: model, reserve: {amount: 100, ttl: 1m, match: oldest},
         limits: [{algorithm: fixed_window, limit: 200, window: 1h}]}
`

// chosen renders which descriptors a response has chosen, in the metadata that a proxy reads.
func chosen(t *testing.T, r *Response) string {
	t.Helper()
	var list []string
	for name, value := range decoded(t, r).GetDynamicMetadata().GetFields()["choose"].GetStructValue().GetFields() {
		list = append(list, name+"="+value.GetStringValue())
	}
	return strings.Join(list, " ")
}

func (h *harness) wantChosen(r *Response, code, want string) {
	h.Helper()
	if got := summary(r); !strings.HasPrefix(got, code+":") {
		h.Errorf("%s, want %s", got, code)
	}
	if got := chosen(h.T, r); got != want {
		h.Errorf("chosen %q, want %q (%s)", got, want, summary(r))
	}
}

// The candidate with the lowest prefer that has room is charged, and no other; the request is refused when none has
// room, with the shortest wait of all.
func TestOneCandidateIsCharged(t *testing.T) {
	h := setup(t, chooseRules)
	ask := func() *Response { return h.ask(desc("to=openai"), desc("plain=x").withHits(0), desc("to=azure")) }
	for n, want := range []string{"azure", "azure", "azure", "openai", "openai"} {
		r := ask()
		h.wantChosen(r, "OK", "model="+want)
		if in := h.counts.count("d/to_" + want + " ok"); in == 0 {
			t.Errorf("request %d: no decision of %s", n, want)
		}
	}
	h.wantLeft("to=azure", "0 97")
	h.wantLeft("to=openai", "0")
	h.now = h.now.Add(time.Minute)
	r := ask()
	h.wantChosen(r, "OVER", "")
	h.want(r, "OVER: over/0 ok/1 over/0")
	if got := r.Headers[0]; got.Name != "Retry-After" || got.Value != "3540" {
		t.Errorf("headers %v, want what is left of the hour", r.Headers)
	}
	h.wantLeft("to=azure", "0 97")
	if n := h.counts.count("d/to_azure not_chosen"); n != 2 {
		t.Errorf("azure was passed over %d times, want 2", n)
	}
	if n := h.counts.count("d/to_openai not_chosen"); n != 3 {
		t.Errorf("openai was passed over %d times, want 3", n)
	}
	if n := h.counts.count("d/to_azure over_limit"); n != 1 {
		t.Errorf("azure refused %d times, want 1", n)
	}
}

// The wait of a refusal is the shortest of its candidates, and the longest of all else.
func TestTheWaitOfAChoice(t *testing.T) {
	h := setup(t, chooseRules)
	for range 2 {
		h.ask(desc("to=day"), desc("to=quota"))
	}
	h.want(h.ask(desc("to=day"), desc("to=quota")), "OVER: over/0 over/0")
	r := h.ask(desc("to=day"), desc("to=quota"))
	if got := r.Headers[0]; got.Value != "3600" {
		t.Errorf("Retry-After %v, want the hour of the one that is free first", got)
	}
	for range 6 {
		h.ask(desc("user=u"))
	}
	if r = h.ask(desc("user=u"), desc("to=day"), desc("to=quota")); r.Headers[0].Value != "3600" {
		t.Errorf("Retry-After %v, want the hour of the choice, which is longer than a minute", r.Headers[0])
	}
}

// What else refuses the request leaves all candidates untouched.
func TestARefusalElsewhereChoosesNobody(t *testing.T) {
	h := setup(t, chooseRules)
	h.ask(desc("plain=x"))
	r := h.ask(desc("plain=x"), desc("to=openai"), desc("to=azure"))
	h.wantChosen(r, "OVER", "")
	h.wantLeft("to=azure", "3 100")
	h.wantLeft("to=openai", "2")
	if r.Headers[1].Value != "d/plain" {
		t.Errorf("refused by %v", r.Headers)
	}
}

// The metadata of the winner's rule stands at the top; a key of ours wins over it. What other rules say stays below
// metadata.
func TestMetadataOfAChoice(t *testing.T) {
	h := setup(t, chooseRules)
	text := func(r *Response) string { return fmt.Sprint(decoded(t, r).GetDynamicMetadata().AsMap()) }
	r := h.ask(desc("to=azure"), desc("to=openai"), desc("plain=x"), desc("zone=eu"), desc("zone=us"))
	want := "map[choose:map[model:azure zone:eu] groups:[a] metadata:map[note:x] zoned:true]"
	if got := text(r); got != want {
		t.Errorf("metadata %s, want %s", got, want)
	}
	if got, want := text(h.ask(desc("to=openai"))), "map[choose:map[model:openai] groups:[b]]"; got != want {
		t.Errorf("metadata %s, want %s", got, want)
	}
	r = new(Response)
	h.Decide(t.Context(), []*Request{{Domain: "d", InProcess: true,
		Descriptors: []Descriptor{desc("to=openai"), desc("to=azure")}}}, []*Response{r})
	if got := r.Inside.Chosen; !maps.Equal(got, map[string]string{"model": "azure"}) {
		t.Errorf("inside: %v", got)
	}
}

// A candidate that nothing limits always has room: those behind it are never charged, those before it are tried.
func TestAFreeCandidate(t *testing.T) {
	h := setup(t, chooseRules)
	for _, want := range []string{"openai", "openai", "own", "own"} {
		h.wantChosen(h.ask(desc("to=closed"), desc("to=own"), desc("to=openai")), "OK", "model="+want)
	}
	h.wantLeft("to=closed", "1")
	h.wantChosen(h.ask(desc("to=own")), "OK", "model=own")
}

func TestChoosingInShadow(t *testing.T) {
	h := setup(t, chooseRules)
	h.ask(desc("to=quiet"))
	h.wantChosen(h.ask(desc("to=quiet"), desc("to=openai")), "OK", "model=quiet")
	h.wantLeft("to=openai", "2")
	h = setup(t, chooseRules, func(c *Config) { c.ShadowMode = true })
	for _, want := range []string{"model=quota", "model=openai", "model=openai", "", ""} {
		h.wantChosen(h.ask(desc("to=openai"), desc("to=quota")), "OK", want)
	}
	h.wantLeft("to=openai", "0")
	if n := h.counts.count("d/to_quota shadow_over_limit"); n != 2 {
		t.Errorf("%d refusals in shadow, want 2", n)
	}
}

// A choice takes the place of quota mode.
func TestChoosingByQuotas(t *testing.T) {
	for _, all := range []bool{false, true} {
		h := setup(t, chooseRules, func(c *Config) { c.QuotaMode = all })
		for _, want := range []string{"quota", "openai", "openai"} {
			h.wantChosen(h.ask(desc("to=openai"), desc("to=quota")), "OK", "model="+want)
		}
		h.wantChosen(h.ask(desc("to=openai"), desc("to=quota")), "OVER", "")
		h.wantChosen(h.ask(desc("to=quota")), "OVER", "")
	}
}

// Counters are those of the whole descriptor, and a repeated candidate is charged once.
func TestCandidatesOfOneUser(t *testing.T) {
	h := setup(t, chooseRules)
	for _, user := range []string{"a", "b"} {
		of := func(to string) Descriptor { return desc("user=" + user + ",to=" + to) }
		ask := func() *Response { return h.ask(desc("user="+user), of("y"), of("y"), of("x")) }
		h.wantChosen(ask(), "OK", "model=y")
		h.wantLeft("user="+user+",to=x", "1")
		h.wantChosen(ask(), "OK", "model=x")
		h.wantChosen(ask(), "OVER", "")
		h.wantLeft("user="+user, "4")
	}
}

func TestCandidatesHoldLeases(t *testing.T) {
	h := setup(t, chooseRules)
	ask := func() *Response { return h.ask(desc("to=idle"), desc("to=busy")) }
	first := ask()
	h.wantChosen(first, "OK", "model=busy")
	h.wantLeft("to=idle", "1")
	second := ask()
	h.wantChosen(second, "OK", "model=idle")
	r := ask()
	h.wantChosen(r, "OVER", "")
	h.ask(release(meta(t, first, DefaultLeaseKey)))
	h.wantLeft("to=busy", "1")
	h.wantLeft("to=idle", "0")
	h.wantChosen(ask(), "OK", "model=busy")
}

// Only the winner reserves, and its end is settled as ever.
func TestTheWinnerReserves(t *testing.T) {
	h := setup(t, chooseRules)
	ask := func() *Response { return h.ask(desc("token=t,to=x"), desc("token=t,to=y")) }
	first := ask()
	h.wantChosen(first, "OK", "model=x")
	h.wantLeft("token=t,to=x", "100")
	h.wantChosen(ask(), "OK", "model=x")
	h.wantChosen(ask(), "OK", "model=y")
	h.wantLeft("token=t,to=y", "100")
	h.wantEvents("token.to", "reserved 3")
	h.ask(ended(meta(t, first, DefaultLeaseKey), 10, 200)...)
	h.wantLeft("token=t,to=x", "90")
	h.wantLeft("token=t,to=y", "100")
	h.wantChosen(h.ask(desc("token=t,to=x"), desc("token=t,to=y")), "OK", "model=y")
}

// A report settles the candidate that it names; one that was not chosen had nothing reserved, which is counted.
func TestReportsOfCandidates(t *testing.T) {
	h := setup(t, chooseRules)
	h.now = h.now.Add(time.Second) // else the reservation may be of the window before
	ask := func() *Response {
		return h.ask(desc("oldest=o,to=x").withHits(0), desc("oldest=o,to=y").withHits(0))
	}
	h.wantChosen(ask(), "OK", "model=x")
	h.wantLeft("oldest=o,to=x", "100")
	h.wantLeft("oldest=o,to=y", "200")
	h.ask(desc("oldest=o,to=x").withHits(30))
	h.wantLeft("oldest=o,to=x", "170")
	h.ask(desc("oldest=o,to=y").withHits(50))
	h.wantLeft("oldest=o,to=y", "150")
	h.wantEvents("oldest.to", "reserved 1, settled 1, unreserved 1")
	h.ask(desc("oldest=o,to=x").withHits(1000))
	h.wantLeft("oldest=o,to=x", "0")
	h.wantChosen(ask(), "OK", "model=y")
}

// While the store fails, candidates are answered alike, by the most lenient policy among them.
func TestCandidatesWhileTheStoreFails(t *testing.T) {
	for _, c := range []struct{ list, code, want string }{
		{"to=open to=closed", "OK", "model=open"},
		{"to=closed to=open", "OK", "model=open"},
		{"to=closed", "OVER", ""},
		{"to=here to=closed", "OK", "model=here"},
		{"to=own to=closed", "OK", "model=own"},
		{"to=openai to=azure", "OK", "model=azure"}, // the service's policy is to allow
	} {
		h := setup(t, chooseRules)
		h.be.err = errors.New("away")
		var list []Descriptor
		for _, d := range strings.Fields(c.list) {
			list = append(list, desc(d))
		}
		h.wantChosen(h.ask(list...), c.code, c.want)
	}
	h := setup(t, chooseRules)
	h.be.err = errors.New("away")
	h.wantChosen(h.ask(desc("to=here"), desc("to=closed")), "OK", "model=here")
	h.wantChosen(h.ask(desc("to=here"), desc("to=closed")), "OK", "model=closed")
	if n := h.counts.count("d/to_here not_chosen"); n != 1 {
		t.Errorf("here was passed over %d times, want 1", n)
	}
	h.wantChosen(h.ask(desc("to=here"), desc("to=closed")), "OVER", "")
}

// Requests have at most as many limits as a store decides at once, spare ones included.
func TestManyCandidates(t *testing.T) {
	h := setup(t, chooseRules)
	var list []Descriptor
	for n := range 64 {
		list = append(list, desc(fmt.Sprint("zone=", n)))
	}
	for n := range 64 {
		h.wantChosen(h.ask(list...), "OK", fmt.Sprint("zone=", n))
	}
	h.wantChosen(h.ask(list...), "OVER", "")
	const tooMany = "error: the descriptors match more than 64 limits"
	h.want(h.ask(append(list, desc("zone=64"))...), tooMany)
	var reserving []Descriptor
	for n := range 33 {
		reserving = append(reserving, desc(fmt.Sprintf("token=t,to=%d", n)))
	}
	h.want(h.ask(reserving...), tooMany)
}

// A store that is spread over partitions chooses only where the candidates differ in their last value alone.
func TestCandidatesInPartitions(t *testing.T) {
	spread := func(c *Config) { c.Caps.Atomicity = backends.PerPartition }
	h := setup(t, `
domain: d
descriptors:
  - key: user
    descriptors: [{key: to, choose: model, rate_limit: {unit: hour, requests_per_unit: 1}}]
`, spread)
	long := strings.Repeat("u", 200)
	h.wantChosen(h.ask(desc("user="+long+",to=x"), desc("user="+long+",to="+long)), "OK", "model=x")
	r := h.ask(desc("user=a,to=x"), desc("user=b,to=x"))
	if r.Err == nil || !r.Err.Invalid() || !strings.Contains(r.Err.Message, `choose "model"`) {
		t.Errorf("candidates of two users: %s", summary(r))
	}
	conf := Config{Backend: newModel(), Caps: modelCaps(false), Local: newModel(), Encoder: Wire.Encoder}
	spread(&conf)
	for rules, want := range map[string]string{
		"domain: d\ndescriptors: [{key: a, choose: m, rate_limit: {unit: hour, requests_per_unit: 1}}, " +
			"{key: b, choose: m, rate_limit: {unit: hour, requests_per_unit: 1}}]": "has other keys",
		"domain: d\ndescriptors: [{key: a, choose: m, rate_limit: {unit: hour, requests_per_unit: 1}}, " +
			"{key: b, choose: n, rate_limit: {unit: hour, requests_per_unit: 1}}]": "",
	} {
		problems := CapProblems(mustLoad(t, rules), &conf.Caps)
		if got := fmt.Sprint(problems); want == "" && len(problems) > 0 || !strings.Contains(got, want) {
			t.Errorf("%s: %s", rules, got)
		}
	}
}

// A policy's limit takes the place of a candidate's.
func TestPoliciesOfCandidates(t *testing.T) {
	h := setup(t, `
domain: d
descriptors:
  - {key: to, choose: model, policy: "to:{to}", rate_limit: {unit: hour, requests_per_unit: 5}}
`, withPolicies)
	h.put(map[string]policies.Figures{"to:x": per(limit.FixedWindow, 1, 3600)})
	for _, want := range []string{"x", "y"} {
		h.wantChosen(h.ask(desc("to=x"), desc("to=y")), "OK", "model="+want)
	}
	h.wantLeft("to=y", "4")
}

// A refund is no candidate, and rules without choose have no choice.
func TestRefundsOfCandidates(t *testing.T) {
	h := setup(t, chooseRules)
	h.ask(desc("to=openai"))
	h.ask(desc("to=azure").refund(1), desc("to=openai").refund(1))
	h.wantLeft("to=openai", "2")
	if got := chosen(t, h.ask(desc("plain=x"))); got != "" {
		t.Errorf("chosen %s", got)
	}
	if _, entries, matches, ok := h.Rules().Counted(h.calls(desc("to=openai"))); !ok || !matches ||
		entries[0] != (descriptors.Entry{Key: "to", Value: "openai"}) {
		t.Errorf("the counter is that of %v, %v, %v", entries, matches, ok)
	}
}

// What is reported as done names whom it was done by: each is charged, and what is left of one that lacks room.
func TestWorkThatIsDoneChoosesNobody(t *testing.T) {
	h := setup(t, chooseRules)
	report := func() *Response {
		resp := new(Response)
		h.Decide(t.Context(), []*Request{{Domain: "d", Purpose: Reports,
			Descriptors: []Descriptor{desc("to=openai").withHits(1), desc("to=quota").withHits(5)}}}, []*Response{resp})
		return resp
	}
	if r := report(); r.Err != nil || chosen(t, r) != "" {
		t.Errorf("%s, chosen %q", summary(r), chosen(t, r))
	}
	h.wantLeft("to=openai", "1")
	h.wantLeft("to=quota", "0")
	report()
	h.wantLeft("to=openai", "0")
}

// calls returns the group of a descriptor's counters.
func (h *harness) calls(d Descriptor) string {
	var m descriptors.Match
	h.Rules().Match("d", d.Entries, &m)
	return m.Group
}
