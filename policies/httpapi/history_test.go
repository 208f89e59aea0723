package httpapi

import (
	"fmt"
	"net/url"
	"testing"

	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/policies"
	"github.com/headgate-rls/headgate/policies/table"
)

// TestHistoryOfAPolicy: it says who changed what, when, from what to what, also after the policy is gone.
func TestHistoryOfAPolicy(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	const past = "/admin/policies-history?key=user:alice"
	s.do(t, "GET", past, "").Is(t, 200).Has(t, `{"changes":[]}`)
	s.put(t, "user:alice", "user:bob")
	s.do(t, "PUT", "/admin/policies/user:alice?dryRun=true",
		`{"type":"TOKEN_BUCKET","capacity":9,"refillRate":1}`).Is(t, 200)
	s.do(t, "PUT", "/admin/policies/user:alice", `{"type":"TOKEN_BUCKET","capacity":5,"refillRate":0.25}`).Is(t, 200)
	s.do(t, "DELETE", "/admin/policies/user:alice", "").Is(t, 204)
	s.do(t, "DELETE", "/admin/policies/user:alice", "").Is(t, 404)

	a := s.do(t, "GET", past, "").Is(t, 200)
	a.Has(t, `{"changes":[{"number":4,"generation":3,"key":"user:alice","policyKey":"user:alice",`+
		`"changedBy":"admin-token","changedAt":"`)
	a.Has(t, `"before":{"algorithm":"token_bucket","rate":"1/4s","burst":5,"type":"TOKEN_BUCKET","capacity":5,`+
		`"refillRate":0.25,"windowSeconds":0,"version":2},"after":null},{"number":3,`)
	a.Has(t, `"before":{"algorithm":"sliding_log","limit":2,"window":"1m","type":"SLIDING_WINDOW","capacity":2,`+
		`"refillRate":0,"windowSeconds":60,"version":1},"after":{"algorithm":"token_bucket",`)
	a.Has(t, `"changedBy":"test"`).Has(t, `"before":null,"after":{"algorithm":"sliding_log"`)
	if n := len(a.Object(t)["changes"].([]any)); n != 3 {
		t.Errorf("%d changes, want 3: %s", n, a.Body)
	}
}

// TestPagesOfTheHistory have each change once, the newest first, also while more are made.
func TestPagesOfTheHistory(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	const changes = 7
	for i := range changes {
		s.put(t, fmt.Sprint("user:", i))
	}
	var got []string
	path := "/admin/policies-history?limit=3"
	for next := any(""); next != nil; {
		page := s.do(t, "GET", path, "").Is(t, 200).Object(t)
		for _, c := range page["changes"].([]any) {
			got = append(got, c.(map[string]any)["policyKey"].(string))
		}
		next = page["next"]
		path = fmt.Sprintf("/admin/policies-history?limit=3&after=%v", next)
		s.put(t, fmt.Sprint("later:", len(got)))
	}
	if want := "[user:6 user:5 user:4 user:3 user:2 user:1 user:0]"; fmt.Sprint(got) != want {
		t.Errorf("the pages have %v, want %v", got, want)
	}
	s.do(t, "GET", "/admin/policies-history?after=1", "").Is(t, 200).Has(t, `{"changes":[]}`)
}

// TestKeysOfTheHistory: every key can be asked for, in each of its spellings, also those that look like
// paths, and answers have the one spelling.
func TestKeysOfTheHistory(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	for _, key := range []string{"a/history", "history", "../a", "user:a%20b", "a:1|route:/v1/pay", "*"} {
		s.put(t, key)
		s.do(t, "GET", "/admin/policies-history?key="+url.QueryEscape(key), "").Is(t, 200).Has(t, `"policyKey":"`+key+`"`)
	}
	s.do(t, "GET", "/admin/policies-history?key=user:a%20b", "").Is(t, 200).Has(t, `"policyKey":"user:a%20b"`)
	s.do(t, "GET", "/admin/policies/history", "").Is(t, 200).Has(t, `"policyKey":"history"`)
	s.do(t, "GET", "/admin/policies/a%2Fhistory", "").Is(t, 200).Has(t, `"policyKey":"a/history"`)
}

// TestHostileTextsInTheHistory come back as they are, as JSON that no browser takes for a page.
func TestHostileTextsInTheHistory(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	key, err := policies.Normalize(`user:</script><img src=x onerror=alert(1)>`)
	check(t, err)
	who := "shell:<b>\"\n\x1b[31m\u202e'"
	f := policies.Figures{Algorithm: limit.SlidingLog, Capacity: 2, Window: 60 * policies.One}
	_, err = s.store.Apply(soon(t), []table.Edit{{Key: key, Figures: f}}, who, 0, false)
	check(t, err)
	a := s.do(t, "GET", "/admin/policies-history?key="+url.QueryEscape(key), "").Is(t, 200)
	change := a.Object(t)["changes"].([]any)[0].(map[string]any)
	if change["changedBy"] != who || change["policyKey"] != key || a.Header.Get("X-Content-Type-Options") != "nosniff" ||
		a.Header.Get("Content-Type") != "application/json" {
		t.Errorf("the answer is %v %s", a.Header, a.Body)
	}
}
