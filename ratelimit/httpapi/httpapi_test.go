package httpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/internal/kit/web"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/policies"
	"github.com/headgate-rls/headgate/test/testenv"
	"github.com/headgate-rls/headgate/test/webtest"
)

func metrics(key string) string { return "/admin/metrics/" + url.PathEscape(key) }
func reset(key string) string   { return "/admin/reset/" + url.PathEscape(key) }

// TestUsageOfOneKey: the figures are those of the documented example, and asking charges nothing.
func TestUsageOfOneKey(t *testing.T) {
	s := newServer(t, "memory://")
	s.take(t, "shop|user=alice", 3)
	for range 3 {
		got := s.do(t, "GET", metrics("shop|user=alice"), "").Is(t, 200).Body
		want := `{"key":"shop|user=alice","algorithm":"FIXED_WINDOW","currentTokens":7,"capacity":10,` +
			`"windowRequestCount":3,"windowSeconds":3600,"status":"OK","rule":"shop/user",` +
			`"inForce":{"algorithm":"fixed_window","limit":10,"window":"1h"}}`
		if strings.TrimSpace(got) != want {
			t.Fatalf("%s\nwant\n%s", got, want)
		}
	}
	if passed := s.take(t, "shop|user=alice", 10); passed != 7 {
		t.Errorf("%d of 10 requests pass, 7 were left", passed)
	}
	if a := s.do(t, "GET", metrics("shop|user=alice"), "").Is(t, 200).Object(t); a["status"] != "LIMITED" ||
		a["currentTokens"] != 0.0 {
		t.Errorf("%v", a)
	}
}

// TestUsageOfSeveralLimits: the one with the least left comes first, then each.
func TestUsageOfSeveralLimits(t *testing.T) {
	s := newServer(t, "memory://")
	s.take(t, "shop|plan=gold", 19)
	a := s.do(t, "GET", metrics("shop|plan=gold"), "").Is(t, 200).Object(t)
	limits := a["limits"].([]any)
	if a["rule"] != "shop/plan:hourly" || a["currentTokens"] != 1.0 || len(limits) != 2 {
		t.Errorf("%v", a)
	}
	if daily := limits[1].(map[string]any); daily["rule"] != "shop/plan:daily" || daily["currentTokens"] != 11.0 ||
		daily["windowSeconds"] != 86400.0 {
		t.Errorf("%v", limits)
	}
}

// TestKeysOfPolicies: counters are found and reset by the key of their policy, too.
func TestKeysOfPolicies(t *testing.T) {
	s := newServer(t, "memory://")
	s.take(t, "shop|user=a/b c", 4)
	for _, key := range []string{"user:a/b%20c", "shop|user=a/b%20c"} {
		a := s.do(t, "GET", metrics(key), "").Is(t, 200).Object(t)
		if a["windowRequestCount"] != 4.0 || a["key"] != "shop|user=a/b%20c" {
			t.Errorf("%s: %v", key, a)
		}
		s.do(t, "GET", "/admin/metrics/"+key, "").Is(t, 200).Has(t, `"key":"shop|user=a/b%20c"`) // as it is printed
	}
	s.do(t, "POST", reset("user:a/b%20c"), "").Is(t, 204)
	s.do(t, "GET", metrics("user:a/b%20c"), "").Is(t, 404)
	s.do(t, "GET", metrics("usr:a"), "").Is(t, 400)
}

// TestResetForgetsOneKey, and no other, whatever policy was in force.
func TestResetForgetsOneKey(t *testing.T) {
	s := newServer(t, "memory://")
	s.take(t, "shop|user=alice", 10)
	s.take(t, "shop|user=bob", 4)
	var b policies.Builder
	b.Add("user:alice", policies.Figures{Algorithm: limit.SlidingLog, Capacity: 2, Window: 3600 * policies.One})
	own := s.policies.Snapshot()
	s.policies.Install(b.Snapshot(), time.Now())
	if passed := s.take(t, "shop|user=alice", 5); passed != 2 {
		t.Fatalf("%d requests pass by a policy of 2", passed)
	}
	if a := s.do(t, "GET", metrics("shop|user=alice"), "").Is(t, 200).Object(t); a["algorithm"] != "SLIDING_WINDOW" ||
		a["capacity"] != 2.0 {
		t.Errorf("%v", a)
	}
	s.do(t, "POST", reset("shop|user=alice"), "").Is(t, 204)
	if passed := s.take(t, "shop|user=alice", 5); passed != 2 {
		t.Errorf("%d requests pass after the reset, want 2", passed)
	}
	s.policies.Install(own, time.Now())
	if passed := s.take(t, "shop|user=alice", 20); passed != 10 {
		t.Errorf("without the policy %d pass: the reset has not forgotten what the rule had counted", passed)
	}
	if a := s.do(t, "GET", metrics("shop|user=bob"), "").Is(t, 200).Object(t); a["windowRequestCount"] != 4.0 {
		t.Errorf("the reset has changed another key: %v", a)
	}
	log := s.log.String()
	if strings.Count(log, `msg="counters reset"`) != 1 ||
		!strings.Contains(log, "key="+descriptors.HashedName("shop|user=alice")+" rule=shop/user by=admin-token") {
		t.Errorf("the log is %s", log)
	}
}

// TestRefusedRequestsChangeNothing: each has its documented status.
func TestRefusedRequestsChangeNothing(t *testing.T) {
	s := newServer(t, "memory://")
	s.take(t, "shop|user=alice", 3)
	s.take(t, "shop|model=m", 1)
	for _, c := range []struct {
		method, target, body string
		want                 int
		says                 string
	}{
		{"GET", metrics("shop|user=nobody"), "", 404,
			"nothing is counted under shop|user=nobody; the limit of the rule shop/user is"},
		{"GET", metrics("shop|free=x"), "", 404, "no limit applies to shop|free=x"},
		{"GET", metrics("elsewhere|user=alice"), "", 404, "no limit applies"},
		{"GET", metrics("shop|user=alice|user=alice"), "", 404, "no limit applies"},
		{"GET", metrics("shop|headgate.op=return"), "", 404, "no limit applies"},
		{"GET", metrics("user-123"), "", 400, "want DOMAIN|ENTRY=VALUE"},
		{"GET", metrics("shop|=alice"), "", 400, "empty part"},
		{"GET", metrics("shop|user=100%"), "", 400, "%25"},
		{"GET", metrics("shop|user=%ff"), "", 400, "UTF-8"},
		{"GET", metrics("shop|user=" + strings.Repeat("x", 5000)), "", 400, "more than 4096"},
		{"GET", "/admin/metrics/..%2fshop%7Cuser=alice", "", 400, `".." between slashes`},
		{"POST", "/admin/reset/shop%7Cuser=alice%2f%2e%2e%2fx", "", 400, `".." between slashes`},
		{"POST", reset("shop|user=alice"), `{"all":true}`, 400, "no body"},
		{"POST", reset("shop|user=alice") + "?dryRun=true", "", 400, "unknown parameter"},
		{"POST", reset("shop|user=nobody"), "", 404, "nothing is counted"},
		{"POST", reset("shop|model=m"), "", 409, "requests in flight"},
		{"GET", "/admin/metrics?limit=0", "", 400, "limit"},
		{"GET", "/admin/metrics?limit=-1", "", 400, "limit"},
		{"GET", "/admin/metrics?limit=1001", "", 400, "limit"},
		{"GET", "/admin/metrics?after=..%2f", "", 400, "no page has given"},
		{"GET", "/admin/metrics?since=x", "", 400, "unknown parameter"},
		{"GET", "/admin/status?verbose=1", "", 400, "unknown parameter"},
		{"DELETE", metrics("shop|user=alice"), "", 405, "GET"},
		{"GET", reset("shop|user=alice"), "", 405, "POST"},
		{"GET", "/admin/metrics/", "", 404, "/admin/openapi.json"},
	} {
		a := webtest.Send(t, t.Context(), s.handler, c.method, c.target, c.body, "Authorization", "Bearer "+adminToken)
		a.Is(t, c.want).Says(t, c.says)
		webtest.Send(t, t.Context(), s.handler, c.method, c.target, c.body).Is(t, 401)
	}
	if a := s.do(t, "GET", metrics("shop|user=alice"), "").Is(t, 200).Object(t); a["windowRequestCount"] != 3.0 {
		t.Errorf("a request that was refused has changed %v", a)
	}
	if strings.Contains(s.log.String(), "counters reset") {
		t.Errorf("the log is %s", s.log)
	}
}

// TestPagesOfUsage: every key that is counted is on some page of every kind of store, and no other.
func TestPagesOfUsage(t *testing.T) {
	testenv.UseSQLite(t)
	for name, url := range map[string]string{
		"memory": "memory://",
		"sqlite": "sqlite:" + filepath.Join(t.TempDir(), "counters.db"),
		"redis":  testenv.StartRedis(t).URL(),
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, url)
			want := map[string]string{
				"shop|plan=gold": "hourly", "shop|model=m": "CONCURRENCY", "shop|method=GET|path=/v1/pay": "/v1/pay",
				"shop|user=a%7Cb%25%20=": "shop/user", "shop|user": "shop/user",
			}
			for i := range 25 {
				want[fmt.Sprintf("shop|user=u%d", i)] = "shop/user"
			}
			for key := range want {
				s.take(t, key, 1)
			}
			long := strings.Repeat("x", 500)
			s.take(t, "shop|user="+long, 1)
			s.do(t, "GET", metrics("shop|user="+long), "").Is(t, 200).Has(t, `"windowRequestCount":1`)
			got, unknown := s.allPages(t, 7)
			for key, about := range want {
				if !strings.Contains(got[key], about) {
					t.Errorf("%s is listed as %q, want %q in it", key, got[key], about)
				}
			}
			if len(got) != len(want) || len(unknown) != 1 || unknown[0][0] != 'h' {
				t.Errorf("listed are %v, and unknown %v", got, unknown)
			}
			s.do(t, "POST", reset("shop|plan=gold"), "").Is(t, 204)
			if got, _ := s.allPages(t, 1000); got["shop|plan=gold"] != "" || len(got) != len(want)-1 {
				t.Errorf("after a reset %v are listed", got)
			}
		})
	}
}

// allPages returns the answers of all pages by their keys, and the keys that are unknown.
func (s *server) allPages(t *testing.T, n int) (got map[string]string, unknown []string) {
	t.Helper()
	got = map[string]string{}
	for after := ""; ; {
		var page struct {
			Metrics []json.RawMessage
			Next    string
		}
		must(t, json.Unmarshal([]byte(s.do(t, "GET", fmt.Sprintf("/admin/metrics?limit=%d%s", n, after), "").Is(t, 200).Body),
			&page))
		for _, text := range page.Metrics {
			var m struct{ Key, Status string }
			must(t, json.Unmarshal(text, &m))
			if m.Status == "UNKNOWN" {
				unknown = append(unknown, m.Key)
				continue
			}
			got[m.Key] = string(text)
		}
		if page.Next == "" {
			return got, unknown
		}
		after = "&after=" + url.QueryEscape(page.Next)
	}
}

// TestForeignDataHidesNoOtherKey: where the store has foreign data under one key, the figures of the others are shown.
func TestForeignDataHidesNoOtherKey(t *testing.T) {
	redis := testenv.StartRedis(t)
	s := serverWith(t, redis.URL(), simpleRules)
	for _, key := range []string{"shop|user=alice", "shop|user=bob"} {
		s.take(t, key, 12)
	}
	names, err := redis.Client().Keys(t.Context(), "*bob*").Result()
	if err != nil || len(names) != 1 {
		t.Fatal(names, err)
	}
	must(t, redis.Client().Set(t.Context(), names[0], "foreign", 0).Err())
	got, unknown := s.allPages(t, 100)
	if !strings.Contains(got["shop|user=alice"], `"windowRequestCount":10`) || len(got) != 1 ||
		!slices.Equal(unknown, []string{"shop|user=bob"}) {
		t.Errorf("listed are %v, and unknown %v", got, unknown)
	}
	if log := s.log.String(); !strings.Contains(log, "is not known") || !strings.Contains(log, "not headgate's") {
		t.Errorf("the log is %s", log)
	}
	var top TopAnswer
	must(t, json.Unmarshal([]byte(s.do(t, "GET", "/admin/top", "").Is(t, 200).Body), &top))
	left := map[string]bool{}
	for _, k := range top.Keys {
		left[k.Key] = k.Left != nil
	}
	if known, there := left["shop|user=bob"]; !left["shop|user=alice"] || !there || known || top.Problem != "" {
		t.Errorf("it is known what is left of %v; the problem is %q", left, top.Problem)
	}
	s.do(t, "GET", metrics("shop|user=bob"), "").Is(t, 503)
	s.do(t, "GET", metrics("shop|user=alice"), "").Is(t, 200)
}

// TestStoresThatCannotList: the answer is 501 with the reason, and single keys work.
func TestStoresThatCannotList(t *testing.T) {
	s := serverWith(t, testenv.StartRedis(t).URL()+"?layout=envoy", simpleRules)
	s.take(t, "shop|user=alice", 3)
	s.do(t, "GET", "/admin/metrics", "").Is(t, 501).Says(t, "redis (layout=envoy) cannot list its keys")
	s.do(t, "GET", metrics("shop|user=alice"), "").Is(t, 200).Has(t, `"windowRequestCount":3`)
	s.do(t, "POST", reset("shop|user=alice"), "").Is(t, 204)
	s.do(t, "GET", metrics("shop|user=alice"), "").Is(t, 404)
}

// TestStoreThatIsAway: each answer is 503, within the deadline, and tells nothing of the store.
func TestStoreThatIsAway(t *testing.T) {
	redis := testenv.StartRedis(t)
	s := newServer(t, redis.URL())
	s.take(t, "shop|user=alice", 3)
	redis.Kill()
	for _, c := range [][2]string{{"GET", "/admin/metrics"}, {"GET", metrics("shop|user=alice")},
		{"POST", reset("shop|user=alice")}} {
		began := time.Now()
		a := s.do(t, c[0], c[1], "").Is(t, 503).Says(t, "the store of the counters does not answer")
		if a.Header.Get("Retry-After") != "1" || strings.Contains(a.Body, "127.0.0.1") || time.Since(began) > 2*timeout {
			t.Errorf("%v: %v %s after %v", c, a.Header, a.Body, time.Since(began))
		}
	}
	if !strings.Contains(s.log.String(), "request about counters failed") {
		t.Errorf("the log is %s", s.log)
	}
}

// TestStatus: the answer reports the version, and what works.
func TestStatus(t *testing.T) {
	s := newServer(t, "memory://")
	const traffic = `"traffic":{"answers_per_second":0,"refused_percent":0,"by_policy_percent":0,"unmatched_shapes":0,` +
		`"unmatched_percent":0},"unknown_domains":[]}`
	for _, c := range []struct {
		draining bool
		part     web.Part
		want     string
	}{
		{false, web.Part{Name: "backend memory"},
			`{"status":"READY","version":"1.2.3","parts":[{"name":"backend memory","status":"OK"}],` + traffic},
		{false, web.Part{Name: "rules", Problem: "old", Serving: true},
			`{"status":"READY","version":"1.2.3","parts":[{"name":"rules","status":"FAILING","problem":"old",` +
				`"detail":"7 rules in 1 domain"}],` + traffic},
		{false, web.Part{Name: "backend x", Problem: "away"}, `{"status":"NOT_READY","version":"1.2.3",` +
			`"parts":[{"name":"backend x","status":"FAILING","problem":"away"}],` + traffic},
		{true, web.Part{Name: "rules"},
			`{"status":"DRAINING","version":"1.2.3","parts":[{"name":"rules","status":"OK","detail":` +
				`"7 rules in 1 domain"}],` + traffic},
	} {
		s.draining, s.parts = c.draining, []web.Part{c.part}
		if got := strings.TrimSpace(s.do(t, "GET", "/admin/status", "").Is(t, 200).Body); got != c.want {
			t.Errorf("%s, want %s", got, c.want)
		}
	}
}

// TestOnePageAtATime: who lists while others do waits, and no longer than a request may take.
func TestOnePageAtATime(t *testing.T) {
	h := New(Config{Log: slog.New(slog.DiscardHandler)})
	h.listing <- struct{}{}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	webtest.Send(t, ctx, h, "GET", "/admin/metrics", "").Is(t, 503).Says(t, "listed for others")
}

// TestForeignDataHoldsUpNoPages: a page that has nothing but keys with foreign data is no failure, and the pages after
// it are shown.
func TestForeignDataHoldsUpNoPages(t *testing.T) {
	redis := testenv.StartRedis(t)
	s := serverWith(t, redis.URL(), simpleRules)
	s.take(t, "shop|user=alice", 12)
	var want []string
	for i := range 20 {
		want = append(want, fmt.Sprintf("shop|user=bob%02d", i))
		s.take(t, want[i], 12)
	}
	names, err := redis.Client().Keys(t.Context(), "*bob*").Result()
	if err != nil || len(names) != len(want) {
		t.Fatal(names, err)
	}
	for _, name := range names {
		must(t, redis.Client().Set(t.Context(), name, "foreign", 0).Err())
	}
	got, unknown := s.allPages(t, 1)
	slices.Sort(unknown)
	if !strings.Contains(got["shop|user=alice"], `"windowRequestCount":10`) || len(got) != 1 ||
		!slices.Equal(slices.Compact(unknown), want) {
		t.Errorf("listed are %v, and unknown %v", got, unknown)
	}
}
