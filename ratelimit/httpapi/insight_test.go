package httpapi

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/policies"
	"github.com/headgate-rls/headgate/ratelimit"
)

// get returns the answer to a GET as an object, which must be a success.
func (s *server) get(t testing.TB, path string, query ...string) map[string]any {
	t.Helper()
	values := url.Values{}
	for i := 0; i < len(query); i += 2 {
		values.Set(query[i], query[i+1])
	}
	return s.do(t, "GET", path+"?"+values.Encode(), "").Is(t, 200).Object(t)
}

// keysOf renders the keys of a top.
func keysOf(top map[string]any) string {
	var b strings.Builder
	for _, k := range top["keys"].([]any) {
		k := k.(map[string]any)
		fmt.Fprintf(&b, "%v %v %v used %v left %v refused %v percent %v\n", k["key"], k["rule"], k["limit"], k["used"],
			k["left"], k["refused"], k["used_percent"])
	}
	return b.String()
}

// refuse has a request with an id refused.
func (s *server) refuse(t testing.TB, key, id string) {
	t.Helper()
	domain, entries, err := parseName(key)
	must(t, err)
	req := &ratelimit.Request{Domain: domain, RequestID: id, Descriptors: []ratelimit.Descriptor{{Entries: entries}}}
	resp := new(ratelimit.Response)
	s.service.Decide(t.Context(), []*ratelimit.Request{req}, []*ratelimit.Response{resp})
	if !resp.OverLimit {
		t.Fatalf("%s is not refused", key)
	}
}

// TestTopSaysWhoIsRefusedAndWhoIsNear, with what is left now.
func TestTopSaysWhoIsRefusedAndWhoIsNear(t *testing.T) {
	s := newServer(t, "memory://")
	s.take(t, "shop|user=noisy", 25)
	s.take(t, "shop|user=calm", 12)
	s.take(t, "shop|plan=gold", 17)
	refused := s.get(t, "/admin/top")
	if got, want := keysOf(refused), "shop|user=noisy shop/user 10/1h used 10 left 0 refused 15 percent <nil>\n"+
		"shop|user=calm shop/user 10/1h used 10 left 0 refused 2 percent <nil>\n"; got != want {
		t.Errorf("refused:\n%swant\n%s", got, want)
	}
	if first := refused["keys"].([]any)[0].(map[string]any); first["retry_after_ms"].(float64) < 1 ||
		first["domain"] != "shop" || refused["note"] != "this replica only: replicas do not share this store" {
		t.Errorf("%v", refused)
	}
	near := keysOf(s.get(t, "/admin/top", "by", "near", "window", "1m"))
	want := "shop|plan=gold shop/plan:hourly token_bucket 100/1h burst 20 used 17 left 3 refused <nil> percent 85\n"
	if !strings.Contains(near, want) {
		t.Errorf("near:\n%swant\n%s", near, want)
	}
}

// TestTopOfReplicasTogether: refusals add up, and the answer names the replicas that it has seen.
func TestTopOfReplicasTogether(t *testing.T) {
	s, other := newServer(t, "memory://"), newServer(t, "memory://")
	shared := s.stack.Registry
	s.take(t, "shop|user=noisy", 15)
	other.take(t, "shop|user=noisy", 17)
	other.take(t, "shop|user=elsewhere", 11)
	s.handlers.Fleet = s.fleet(1, shared)
	second := other.fleet(2, shared)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan struct{})
	go func() { defer close(done); second.Run(ctx) }()
	deadline := time.Now().Add(10 * time.Second)
	for {
		top := s.get(t, "/admin/top")
		got := keysOf(top)
		if strings.Contains(got, "shop|user=noisy shop/user 10/1h used 10 left 0 refused 12 ") &&
			strings.Contains(got, "shop|user=elsewhere") && len(top["replicas"].([]any)) == 2 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s%v", got, top)
		}
		time.Sleep(50 * time.Millisecond)
	}
	cancel()
	<-done
	if rows, err := shared.List(t.Context(), "tops"); err != nil || len(rows) != 0 {
		t.Errorf("a replica that has ended leaves %v, %v", rows, err)
	}
}

// TestTopWithoutTheStore says what it does not know.
func TestTopWithoutTheStore(t *testing.T) {
	s := newServer(t, "memory://")
	s.take(t, "shop|user=noisy", 15)
	s.fail = backends.ErrUnavailable
	s.handlers.Fleet = s.fleet(1, awayRegistry{})
	top := s.get(t, "/admin/top")
	if got := keysOf(top); got != "shop|user=noisy shop/user 10/1h used <nil> left <nil> refused 5 percent <nil>\n" {
		t.Errorf("%s", got)
	}
	problem := fmt.Sprint(top["problem"])
	for _, part := range []string{"this replica only: the store does not answer", "used and left are not known"} {
		if !strings.Contains(problem, part) {
			t.Errorf("the problem is %q, want %q", problem, part)
		}
	}
	x := s.get(t, "/admin/explain", "key", "shop|user=noisy")
	if _, known := x["passes"]; known || x["rule"] != "shop/user" || x["on_store_error"] != "allow" ||
		!strings.Contains(fmt.Sprint(x["problem"]), "what limits have counted is not known") {
		t.Errorf("%v", x)
	}
}

// TestPeeksAreBounded: however many clients ask, and however often, a view asks the store once in five seconds.
func TestPeeksAreBounded(t *testing.T) {
	s := newServer(t, "memory://")
	s.take(t, "shop|user=noisy", 15)
	before := s.asked.Load()
	for range 20 {
		s.get(t, "/admin/top")
	}
	if n := s.asked.Load() - before; n != 1 {
		t.Errorf("the store was asked %d times for 20 looks", n)
	}
}

// TestExplain: which rule matches, which policy holds, what each limit says, and that it charges nothing.
func TestExplain(t *testing.T) {
	s := newServer(t, "memory://")
	s.take(t, "shop|user=alice", 9)
	for range 3 {
		before := s.asked.Load()
		x := s.get(t, "/admin/explain", "domain", "shop", "descriptor", "user=alice")
		l := x["limits"].([]any)[0].(map[string]any)
		if x["key"] != "shop|user=alice" || x["rule"] != "shop/user" || x["place"] != "rules.yaml:3" || x["passes"] != true ||
			l["used"] != 9.0 || l["left"] != 1.0 || l["limit"] != "10/1h" || l["retry_after_ms"] != 0.0 {
			t.Fatalf("%v", x)
		}
		if n := s.asked.Load() - before; n != 1 {
			t.Fatalf("the store was asked %d times", n)
		}
	}
	s.take(t, "shop|user=alice", 3)
	x := s.get(t, "/admin/explain", "key", "shop|user=alice")
	if l := x["limits"].([]any)[0].(map[string]any); x["passes"] != false || l["refused"] != 2.0 || l["passes"] != false ||
		len(x["refusals"].([]any)) != 2 {
		t.Errorf("%v", x)
	}
	var b policies.Builder
	b.Add("user:alice", policies.Figures{Algorithm: limit.FixedWindow, Capacity: 50, Window: 3600 * policies.One})
	s.policies.Install(b.Snapshot(), time.Now())
	x = s.get(t, "/admin/explain", "key", "shop|user=alice")
	const policy = "map[in_force:user:alice looked_up:[user:alice shop/user *]] true"
	if got := fmt.Sprint(x["policy"], x["passes"]); got != policy {
		t.Errorf("under a policy: %s", got)
	}
}

// TestExplainOfWhatNoRuleMatches says why, and which rules nearly do.
func TestExplainOfWhatNoRuleMatches(t *testing.T) {
	s := newServer(t, "memory://")
	x := s.get(t, "/admin/explain", "domain", "shop", "descriptor", "usr=alice")
	if x["why"] != `no rule has the key "usr" (entry 1); did you mean "user"?` || x["passes"] != true ||
		fmt.Sprint(x["nearly"]) != "[map[place:rules.yaml:3 rule:shop/user]]" {
		t.Errorf("%v", x)
	}
}

// TestExplainARequest by its id, as the client was told it.
func TestExplainARequest(t *testing.T) {
	s := newServer(t, "memory://")
	s.take(t, "shop|user=alice", 10)
	s.refuse(t, "shop|user=alice", "8f3b<script>")
	x := s.get(t, "/admin/explain", "request_id", "8f3b<script>")
	one := x["refusals"].([]any)[0].(map[string]any)
	if x["key"] != "shop|user=alice" || one["request_id"] != "8f3b<script>" || one["cause"] != "limit" {
		t.Errorf("%v", x)
	}
	s.do(t, "GET", "/admin/explain?request_id=other", "").Is(t, 404).Says(t, "no requests that pass")
	recent := s.get(t, "/admin/recent", "key", "shop|user=alice")
	if got := recent["refusals"].([]any); len(got) != 1 || got[0].(map[string]any)["limit"] != "10/1h" {
		t.Errorf("%v", recent)
	}
	if got := s.get(t, "/admin/recent", "key", "shop|user=bob")["refusals"].([]any); len(got) != 0 {
		t.Errorf("%v", got)
	}
}

// TestRulesInForce has a row for each limit, in pages.
func TestRulesInForce(t *testing.T) {
	s := newServer(t, "memory://")
	s.take(t, "shop|user=noisy", 15)
	var rows []string
	for after := ""; ; {
		query := []string{"limit", "2"}
		if after != "" {
			query = append(query, "after", after)
		}
		page := s.get(t, "/admin/rules", query...)
		for _, r := range page["rules"].([]any) {
			r := r.(map[string]any)
			rows = append(rows, fmt.Sprintf("%v %v %v %v %v %v", r["rule"], r["path"], r["limit"], r["policy"], r["refused"],
				r["used_percent"]))
		}
		next, more := page["next"].(string)
		after = next
		if !more {
			break
		}
	}
	if got, want := strings.Join(rows, "\n"), `shop/user [user] 10/1h user:{user} 5 100
shop/plan:hourly [plan] token_bucket 100/1h burst 20 <nil> 0 <nil>
shop/plan:daily [plan] 30/24h <nil> 0 <nil>
shop/model [model] 2 in flight <nil> 0 <nil>
shop/free [free] unlimited <nil> 0 <nil>
shop/v1.2.path_/pay [v1.2 path_/pay] 3/24h <nil> 0 <nil>
shop/v1.2.path_/get [v1.2 path_/get] 4/24h <nil> 0 <nil>
shop/GET:/v1/pay [GET:/v1/pay] 7/1h <nil> 0 <nil>`; got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	if got := s.get(t, "/admin/rules", "domain", "elsewhere")["rules"].([]any); len(got) != 0 {
		t.Errorf("%v", got)
	}
}

// TestHashedKeys: no answer and no line of the log has a value, and a hash can be asked about.
func TestHashedKeys(t *testing.T) {
	s := newServer(t, "memory://")
	s.handlers.HashKeys = true
	s.take(t, "shop|user=personal", 15)
	s.take(t, "shop|usr=personal", 1)
	hash := descriptors.HashedName("shop|user=personal")
	explained := url.QueryEscape(hash)
	for _, path := range []string{"/admin/top", "/admin/top?by=near", "/admin/recent", "/admin/coverage", "/admin/metrics",
		"/admin/explain?key=" + explained, metrics("shop|user=personal"), metrics(hash), "/admin/rules", "/admin/status"} {
		if a := s.do(t, "GET", path, "").Is(t, 200); strings.Contains(a.Body, "personal") {
			t.Errorf("%s: %s", path, a.Body)
		}
	}
	if x := s.get(t, "/admin/explain", "key", hash); x["key"] != hash || x["passes"] != false {
		t.Errorf("%v", x)
	}
	s.do(t, "POST", reset(hash), "").Is(t, 204)
	if log := s.log.String(); strings.Contains(log, "personal") || !strings.Contains(log, "key="+hash) {
		t.Errorf("the log is %s", log)
	}
	s.do(t, "GET", "/admin/explain?key=sha256:0000000000000000", "").Is(t, 404)
}

// TestBadQuestionsAboutKeys get an error that says what is wrong.
func TestBadQuestionsAboutKeys(t *testing.T) {
	s := newServer(t, "memory://")
	long := strings.Repeat("x", 8<<10)
	for path, says := range map[string]string{
		"/admin/top?by=all":                                        "want refused or near",
		"/admin/top?window=30s":                                    "whole minutes from 1m to 15m",
		"/admin/top?window=1h":                                     "whole minutes",
		"/admin/top?limit=51":                                      "limit",
		"/admin/explain":                                           "give domain and descriptor, or key, or request_id",
		"/admin/explain?domain=shop":                               "give domain",
		"/admin/explain?descriptor=user=a":                         "give domain",
		"/admin/explain?key=shop%7Cuser=a&request_id=x":            "give domain",
		"/admin/explain?domain=shop&descriptor=user":               "want KEY=VALUE",
		"/admin/explain?domain=shop&descriptor==a":                 "want KEY=VALUE",
		"/admin/explain?key=" + long:                               "more than 4096",
		"/admin/explain?domain=shop&descriptor=a=" + long:          "more than 4096",
		"/admin/explain?domain=shop&descriptor=headgate.op=return": "headgate.op",
		"/admin/rules?after=-1":                                    "no page has given",
		"/admin/recent?limit=0":                                    "limit",
	} {
		s.do(t, "GET", path, "").Is(t, 400).Says(t, says)
	}
}

// TestHostileKeysInAnswers: keys that are long, binary or markup are shown as text, and bounded.
func TestHostileKeysInAnswers(t *testing.T) {
	s := newServer(t, "memory://")
	for _, value := range []string{strings.Repeat("L", 8<<10), "\xff\xfe\x00", "<img src=x onerror=alert(1)>", `";|%=`} {
		for range 11 {
			req := &ratelimit.Request{Domain: "shop", Descriptors: []ratelimit.Descriptor{{
				Entries: []descriptors.Entry{{Key: "user", Value: value}}}}}
			s.service.Decide(t.Context(), []*ratelimit.Request{req}, []*ratelimit.Response{new(ratelimit.Response)})
		}
	}
	a := s.do(t, "GET", "/admin/top", "").Is(t, 200)
	if len(a.Body) > 8<<10 || strings.Contains(a.Body, "\xff") || strings.Contains(a.Body, "<") {
		t.Errorf("%d bytes: %s", len(a.Body), a.Body)
	}
	got := keysOf(a.Object(t))
	for _, want := range []string{"%FF%FE%00 shop/user 10/1h used <nil>",
		"<img%20src=x%20onerror=alert(1)> shop/user 10/1h used 10",
		`";%7C%25= shop/user 10/1h used 10`, "LLL…"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in\n%s", want, got)
		}
	}
}
