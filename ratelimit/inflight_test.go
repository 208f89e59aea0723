package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/proto"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/backends/memory"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/ratelimit/leases"
)

// heavy-operation has three thresholds.
const inFlightRules = `
domain: d
resources:
  - method: POST
    path: /api/heavy-operation
    concurrency:
      - {threshold: 2, response: {delay: {exact: 1000}}}
      - {threshold: 5, response: {statusCode: 503, headers: {Retry-After: "30"},
         content: "Service temporarily overloaded"}}
      - {threshold: 10, response: {statusCode: 429, content: "Rate limit exceeded"}}
    reject_hold: 10s
descriptors:
  - key: tenant
    concurrency: [{threshold: 2, response: {statusCode: 429}}]
    lease_ttl: 1m
  - key: both
    concurrency: [{threshold: 5, response: {statusCode: 429}}]
    limits: [{algorithm: token_bucket, rate: 1/h, burst: 1}]
  - key: anon
    release: hits
    concurrency: [{threshold: 2, response: {statusCode: 429}}]
  - key: paying
    on_backend_error: local
    concurrency: [{threshold: 1, response: {statusCode: 429}}]
  - key: k
    rate_limit: {unit: hour, requests_per_unit: 1}
`

// decoded is what Envoy makes of a response.
func decoded(t *testing.T, r *Response) *rls.RateLimitResponse {
	t.Helper()
	m := new(rls.RateLimitResponse)
	if err := proto.Unmarshal(Wire.Append(r, nil), m); err != nil {
		t.Fatal(err)
	}
	return m
}

func meta(t *testing.T, r *Response, key string) string {
	t.Helper()
	return decoded(t, r).GetDynamicMetadata().GetFields()[key].GetStringValue()
}

func (h *harness) askAs(req Request, list ...Descriptor) *Response {
	resp := new(Response)
	req.Domain, req.Descriptors = "d", list
	h.Decide(context.Background(), []*Request{&req}, []*Response{resp})
	return resp
}

func release(token string) Descriptor { return desc(OpKey + "=release," + LeaseEntry + "=" + token) }

// take asks and wants a token.
func (h *harness) acquire(text string) string {
	h.Helper()
	r := h.ask(desc(text))
	token := meta(h.T, r, DefaultLeaseKey)
	if r.OverLimit || token == "" {
		h.Fatalf("%s: %s, token %q", text, summary(r), token)
	}
	return token
}

// wantInFlight wants n leases, as the store counts them.
func (h *harness) wantInFlight(n int64) {
	h.Helper()
	if err := h.Leases().Join(context.Background()); err != nil {
		h.Fatal(err)
	}
	list, complete := h.Leases().InFlight()
	if !complete {
		h.Error("the count is not complete")
	}
	var sum int64
	for _, f := range list {
		sum += f.Count
	}
	if sum != n {
		h.Errorf("%d in flight, want %d: %+v", sum, n, list)
	}
}

func (h *harness) eventually(what string, ok func() bool) {
	h.Helper()
	for until := time.Now().Add(10 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			h.Fatalf("not within 10 s: %s", what)
		}
	}
}

// TestFullLimitRefusesUntilARelease: acquire, refuse, release.
func TestFullLimitRefusesUntilARelease(t *testing.T) {
	h := setup(t, inFlightRules)
	a, b := h.acquire("tenant=x"), h.acquire("tenant=x")
	h.acquire("tenant=y") // counts for itself
	r := h.ask(desc("tenant=x"))
	h.want(r, "OVER: over/0")
	if m := decoded(t, r).GetDynamicMetadata().GetFields(); m["lease"] != nil ||
		m["deny_status"].GetStringValue() != "429" ||
		m["rule"].GetStringValue() != "d/tenant" || m["tier"].GetStringValue() != "2" {
		t.Errorf("metadata of a refusal: %v", m)
	}
	h.wantInFlight(3)
	h.want(h.ask(release(a)), "OK: ok")
	h.acquire("tenant=x")
	for range 2 {
		h.want(h.ask(release(a)), "OK: ok") // is known to have ended
	}
	h.want(h.ask(desc("tenant=x")), "OVER: over/0")
	h.want(h.ask(release(b)), "OK: ok")
	h.wantInFlight(2)
	for name, want := range map[string]int{"acquired": 4, "released": 2, "unknown": 2, "expired": 0, "tier 2": 2} {
		if got := h.counts.count("d/tenant " + name); got != want {
			t.Errorf("%s: %d, want %d", name, got, want)
		}
	}
}

// TestLeaseThatNobodyReleasesExpires: a lease that nobody ends expires.
func TestLeaseThatNobodyReleasesExpires(t *testing.T) {
	h := setup(t, inFlightRules)
	token := h.acquire("tenant=x")
	h.acquire("tenant=x")
	h.now = h.now.Add(time.Minute - time.Millisecond)
	h.want(h.ask(desc("tenant=x")), "OVER: over/0")
	renew := release(token)
	renew.Entries[0].Value = string(leases.Renew)
	h.want(h.ask(renew), "OK: ok")
	h.now = h.now.Add(time.Millisecond)
	h.wantInFlight(1)
	h.now = h.now.Add(time.Minute)
	h.wantInFlight(0)
	h.want(h.ask(release(token)), "OK: ok")
	if n := h.counts.count("d/tenant expired"); n != 1 {
		t.Errorf("%d expired", n)
	}
}

// TestRequestsInFlightSelectTheTier: the count of requests in flight selects the response.
func TestRequestsInFlightSelectTheTier(t *testing.T) {
	h := setup(t, inFlightRules)
	heavy := Descriptor{Entries: desc("method=POST,path=/api/heavy-operation").Entries}
	for n := 1; n <= 12; n++ {
		r := h.ask(heavy)
		m := decoded(t, r)
		delay, status, body, retry := "", "", string(m.GetRawBody()), ""
		for _, hd := range m.GetRequestHeadersToAdd() {
			delay += hd.GetKey() + "=" + hd.GetValue()
		}
		for _, hd := range m.GetResponseHeadersToAdd() {
			if strings.EqualFold(hd.GetKey(), "retry-after") {
				retry += hd.GetValue()
			}
		}
		status = m.GetDynamicMetadata().GetFields()["deny_status"].GetStringValue()
		got := fmt.Sprint(m.GetOverallCode(), " ", status, " ", delay, " ", body, " ", retry)
		want := "OK    "
		switch {
		case n > 10:
			want = "OVER_LIMIT 429  Rate limit exceeded 1"
		case n > 5:
			want = "OVER_LIMIT 503  Service temporarily overloaded 30"
		case n > 2:
			want = "OK  x-envoy-fault-delay-request=1000  "
		}
		if got != want {
			t.Errorf("request %d: %q, want %q", n, got, want)
		}
	}
	h.now = h.now.Add(12 * time.Second)
	if got := meta(t, h.ask(heavy), "deny_status"); got != "503" {
		t.Errorf("when the refused ones are forgotten: %q", got)
	}
	if n := h.counts.count("d/POST:/api/heavy-operation tier 5"); n != 6 {
		t.Errorf("%d times the second tier", n)
	}
	if !strings.Contains(h.log.String(), "rule=d/POST:/api/heavy-operation") {
		t.Errorf("the refusal is not logged: %s", h.log)
	}
}

// TestRepeatedCallGetsTheSameLease: a call that is repeated, by whichever replica, gets the same
// lease and is charged once.
func TestRepeatedCallGetsTheSameLease(t *testing.T) {
	h := setup(t, inFlightRules)
	r1 := h.askAs(Request{ID: "one"}, desc("both=1"))
	r2 := h.askAs(Request{ID: "one"}, desc("both=1"))
	h.want(r1, "OK: ok/0")
	h.want(r2, "OK: ok/0")
	if a, b := meta(t, r1, "lease"), meta(t, r2, "lease"); a == "" || a != b {
		t.Errorf("tokens %q and %q", a, b)
	}
	h.wantInFlight(1)
	h.want(h.askAs(Request{ID: "two"}, desc("both=1")), "OVER: over/0")
	h.want(h.ask(release(meta(t, r2, "lease"))), "OK: ok")
	h.want(h.ask(release(meta(t, r1, "lease"))), "OK: ok")
	h.wantInFlight(0)
	if r := h.askAs(Request{ID: "three", LeaseKey: "other"}, desc("tenant=1")); meta(t, r, "other") == "" ||
		meta(t, r, "lease") != "" {
		t.Errorf("the token's name: %v", decoded(t, r))
	}
}

// TestAbandonedAnswerLeavesNoLease: an answer that nobody takes leaves no lease; one that another
// call shares stays with that one.
func TestAbandonedAnswerLeavesNoLease(t *testing.T) {
	h := setup(t, inFlightRules)
	r := h.ask(desc("tenant=x"))
	h.Abandon(r)
	h.eventually("it is given back", func() bool { return h.counts.count("d/tenant abandoned") == 1 })
	h.wantInFlight(0)
	first, second := h.askAs(Request{ID: "1"}, desc("tenant=x")), h.askAs(Request{ID: "1"}, desc("tenant=x"))
	undo, _ := h.Undo(first)
	undo()
	h.eventually("the first attempt is given back", func() bool { return h.counts.count("d/tenant abandoned") == 2 })
	h.wantInFlight(1)
	h.Abandon(second)
	h.eventually("so is the second", func() bool { return h.counts.count("d/tenant abandoned") == 3 })
	h.wantInFlight(0)
}

// TestEndsByHitsAreThoseOfRefusedRequestsFirst: one up, one down, also for those that were refused.
func TestEndsByHitsAreThoseOfRefusedRequestsFirst(t *testing.T) {
	h := setup(t, inFlightRules)
	for n := 1; n <= 5; n++ {
		want := "OK: ok/" + strconv.Itoa(2-n)
		if n > 2 {
			want = "OVER: over/0"
		}
		r := h.ask(desc("anon=1"))
		h.want(r, want)
		if meta(t, r, "lease") != "" {
			t.Error("a token for a rule without leases")
		}
	}
	for n := range 5 {
		h.ask(desc("anon=1").refund(1))
		h.wantInFlight([]int64{2, 2, 2, 1, 0}[n]) // the first two were those of refused requests
	}
	h.want(h.ask(desc("anon=1")), "OK: ok/1")
}

// TestLeaseIsReleasedThoughTheCallIsRefused: leases end whatever becomes of the rest of the request.
func TestLeaseIsReleasedThoughTheCallIsRefused(t *testing.T) {
	h := setup(t, inFlightRules)
	h.ask(desc("k=1"))
	h.want(h.ask(release(h.acquire("tenant=x")), desc("k=1")), "OVER: ok over/0")
	h.wantInFlight(0)
}

// TestForeignTokenReleasesNothing: nobody can end what is not theirs, and a nonsensical
// request says what is wrong with it.
func TestForeignTokenReleasesNothing(t *testing.T) {
	h := setup(t, inFlightRules)
	token := h.acquire("tenant=x")
	forged, _ := leases.NewSigner([]byte("guessed")).Sign(
		&leases.Lease{Holder: "x", Held: []leases.Held{{Key: limit.Key{Group: "g", Limit: "c"}}}})
	for _, bad := range []string{"", "none", forged, token[:len(token)-2], strings.Repeat("A", 5000)} {
		h.want(h.ask(release(bad)), "OK: ok")
	}
	h.wantInFlight(1)
	if n := h.counts.count("/ unknown"); n != 5 {
		t.Errorf("%d unknown tokens", n)
	}
	for text, want := range map[string]string{
		OpKey + "=relaese,lease=x": `descriptors[0]: headgate.op must be "release", "renew", "estimate", "settle" ` +
			`or "outcome", not "relaese"`,
		OpKey + "=release":                  "descriptors[0]: headgate.op must be followed by one entry, lease",
		OpKey + "=release,token=x":          "descriptors[0]: headgate.op must be followed by one entry, lease",
		OpKey + "=release,lease=x,tenant=x": "descriptors[0]: headgate.op must be followed by one entry, lease",
	} {
		h.want(h.ask(desc(text)), "error: "+want)
	}
	many := make([]Descriptor, leases.MaxHeld+1)
	for i := range many {
		many[i] = release(token + strconv.Itoa(i))
	}
	h.want(h.ask(many...), "error: a request may have at most 16 leases")
}

// TestReleaseOutlivesItsCaller: a release is done although its caller has gone.
func TestReleaseOutlivesItsCaller(t *testing.T) {
	h := setup(t, inFlightRules, func(c *Config) { c.Caps = modelCaps(false); c.Backend = picky{c.Backend} })
	token := h.acquire("tenant=x")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	h.Decide(ctx, []*Request{{Domain: "d", Descriptors: []Descriptor{release(token)}}}, []*Response{new(Response)})
	h.wantInFlight(0)
	if n := h.counts.count("d/tenant released"); n != 1 {
		t.Errorf("%d released in the call", n)
	}
}

// picky is a backend that does nothing for who has gone.
type picky struct{ backends.Backend }

func (p picky) Take(ctx context.Context, reqs []limit.Request, out []limit.Verdict) {
	if err := ctx.Err(); err != nil {
		backends.Fail(out, fmt.Errorf("%w: %w", backends.ErrUnavailable, err))
		return
	}
	p.Backend.Take(ctx, reqs, out)
}

// TestFailedReleaseIsRetried: releases are kept until the backend is back, and what an
// acquire may have taken whose verdict never came is given back.
// Fail-open leases release to nothing.
func TestFailedReleaseIsRetried(t *testing.T) {
	var half halfway
	h := setup(t, inFlightRules, func(c *Config) { half.Backend, c.Backend = c.Backend, &half })
	token := h.acquire("tenant=x")
	h.be.fail(backends.ErrUnavailable)
	h.want(h.ask(release(token)), "OK: ok")
	r := h.ask(desc("tenant=x"))
	h.want(r, "OK: ok")
	if meta(t, r, "lease") != "" {
		t.Error("a token without a lease")
	}
	if !strings.Contains(h.log.String(), "leases could not be released") {
		t.Errorf("the failed release is not logged: %s", h.log)
	}
	h.be.fail(nil)
	h.eventually("the release is done", func() bool { return h.counts.count("d/tenant released") == 1 })
	h.wantInFlight(0)

	half.set(true)
	h.want(h.ask(desc("tenant=x")), "OK: ok") // by policy, but it was recorded
	half.set(false)
	h.eventually("what was recorded is given back", func() bool { return h.counts.count("d/tenant abandoned") == 1 })
	h.wantInFlight(0)
}

func (b *modelBackend) fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.err = err
}

// A halfway backend records and then loses the verdicts.
type halfway struct {
	backends.Backend
	mu   sync.Mutex
	lose bool
}

func (b *halfway) set(lose bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lose = lose
}

func (b *halfway) Take(ctx context.Context, reqs []limit.Request, out []limit.Verdict) {
	b.Backend.Take(ctx, reqs, out)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.lose && reqs[0].Ops[0].Cost > 0 {
		backends.Fail(out, backends.ErrUnavailable)
	}
}

// TestLocalLeaseIsReleasedLocally: what policy local grants is ended there.
func TestLocalLeaseIsReleasedLocally(t *testing.T) {
	h := setup(t, inFlightRules)
	h.be.fail(fmt.Errorf("%w: %w", backends.ErrUnavailable, backends.ErrNotApplied))
	for range 3 {
		token := h.acquire("paying=1")
		h.want(h.ask(desc("paying=1")), "OVER: over/0")
		h.want(h.ask(release(token)), "OK: ok")
	}
}

// TestQuotaRefusalKeepsNoLease: what quota mode refuses after the fact holds no lease.
func TestQuotaRefusalKeepsNoLease(t *testing.T) {
	h := setup(t, `
domain: d
descriptors:
  - key: q
    quota_mode: true
    rate_limit: {unit: hour, requests_per_unit: 1}
  - key: tenant
    concurrency: [{threshold: 2, response: {statusCode: 429}}]
`)
	h.ask(desc("q=1"))
	h.want(h.ask(desc("q=1"), desc("tenant=1")), "OVER: over/0 ok/1")
	h.wantInFlight(0)
}

// TestCloseReleasesWhatIsQueued: at the end what is owed is given back, in bounded time.
func TestCloseReleasesWhatIsQueued(t *testing.T) {
	h := setup(t, inFlightRules)
	for _, tenant := range []string{"a", "b"} {
		h.Abandon(h.ask(desc("tenant=" + tenant)))
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	h.Close(ctx)
	h.wantInFlight(0)

	h = setup(t, inFlightRules)
	h.Abandon(h.ask(desc("tenant=a")))
	h.be.fail(errors.Join(backends.ErrUnavailable))
	h.Abandon(h.ask(desc("tenant=b")))
	ctx, cancel = context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	h.Close(ctx) // returns
}

// TestCallMayReleaseMoreThanItMayTake: a call may bring more back than one request may hold ops.
func TestCallMayReleaseMoreThanItMayTake(t *testing.T) {
	rules := "domain: d\ndescriptors:\n"
	var ask []Descriptor
	for i := range 8 {
		rules += fmt.Sprintf("  - {key: k%d, concurrency: [{threshold: 100, response: {statusCode: 429}}]}\n", i)
		ask = append(ask, desc(fmt.Sprintf("k%d=1", i)))
	}
	h := setup(t, rules)
	var back []Descriptor
	for range leases.MaxHeld {
		back = append(back, release(meta(t, h.ask(ask...), DefaultLeaseKey)))
	}
	h.wantInFlight(8 * leases.MaxHeld)
	if r := h.ask(back...); r.Err != nil || len(r.Statuses) != leases.MaxHeld {
		t.Errorf("%+v", r)
	}
	h.wantInFlight(0)
}

// TestReturnsOfAbandonedCallsAreReleased: the end of a request that nobody waits for is done
// in the background, with a token or by hits, and nothing else is.
func TestReturnsOfAbandonedCallsAreReleased(t *testing.T) {
	h := setup(t, inFlightRules)
	first, second := h.acquire("tenant=a"), h.acquire("tenant=a")
	h.ask(desc("anon=x"))
	h.wantInFlight(3)
	h.QueueReturns(&Request{Domain: "d", Descriptors: []Descriptor{release(first), desc("tenant=b")}})
	h.QueueReturns(&Request{Domain: "d", Descriptors: []Descriptor{desc("anon=x").refund(1)}})
	h.QueueReturns(&Request{Domain: "d", Descriptors: []Descriptor{desc("tenant=b")}})
	h.QueueReturns(&Request{Domain: "d", Descriptors: []Descriptor{release("garbage"), release(second)}})
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	h.Close(ctx) // returns when all is given back
	h.wantInFlight(0)
}

// TestPublishedCountIsOfRequestsInFlight: remembered refusals do not count.
func TestPublishedCountIsOfRequestsInFlight(t *testing.T) {
	h := setup(t, inFlightRules)
	for range 25 {
		h.ask(Descriptor{Entries: desc("method=POST,path=/api/heavy-operation").Entries})
	}
	for _, when := range []string{"after 20 refusals", "after the store was asked"} {
		if list, _ := h.Leases().InFlight(); len(list) != 1 || list[0].Count != 5 {
			t.Errorf("%s: %+v is published, want 5", when, list)
		}
		h.wantInFlight(5)
	}
}

// TestProxyThatIsRefusedIsPresent: each call of a proxy's that has leases is
// reported to other replicas as a sign of life, also if it is refused.
func TestProxyThatIsRefusedIsPresent(t *testing.T) {
	registry := memory.NewRegistry(time.Now)
	h := setup(t, inFlightRules, func(c *Config) { c.Registry = registry })
	reported := func() string {
		t.Helper()
		if err := h.Leases().Join(context.Background()); err != nil {
			t.Fatal(err)
		}
		rows, err := registry.List(context.Background(), "owners")
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range rows {
			if strings.HasSuffix(r.Value, "envoy-1") {
				return r.Value
			}
		}
		return ""
	}
	token := meta(t, h.askAs(Request{Owner: "envoy-1"}, desc("tenant=x")), DefaultLeaseKey)
	h.acquire("tenant=x")
	last := reported()
	if last == "" || reported() != last {
		t.Fatalf("a proxy that got a lease and is silent then: %q, %q", last, reported())
	}
	for name, r := range map[string]func() *Response{
		"refused": func() *Response { return h.askAs(Request{Owner: "envoy-1"}, desc("tenant=x")) },
		"renews":  func() *Response { return h.ask(desc(OpKey + "=renew," + LeaseEntry + "=" + token)) },
	} {
		if resp := r(); resp.Err != nil || resp.OverLimit != (name == "refused") {
			t.Fatalf("%s: %s", name, summary(resp))
		}
		now := reported()
		if now == last {
			t.Errorf("%s: other replicas do not learn of it", name)
		}
		last = now
	}
}

// TestTokensAreOnesOwn: the token in a response is that of its request until the response is used again, whatever is
// decided meanwhile.
func TestTokensAreOnesOwn(t *testing.T) {
	h := setup(t, inFlightRules, unlogged)
	ask := func(owner string) (*Response, string) {
		resp := h.askAs(Request{Owner: owner}, desc("tenant="+owner))
		return resp, meta(t, resp, DefaultLeaseKey)
	}
	for i := range 20 {
		resp, token := ask(fmt.Sprint("a", i))
		if _, other := ask(fmt.Sprint("b", i)); other == token || token == "" {
			t.Fatalf("token %q, and then %q", token, other)
		}
		if again := meta(t, resp, DefaultLeaseKey); again != token {
			t.Fatalf("the token %q became %q", token, again)
		}
	}
}
