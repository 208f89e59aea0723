package httpapi

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

const window = `{"type":"SLIDING_WINDOW","capacity":2,"refillRate":0,"windowSeconds":60}`

// TestLifeOfAPolicy: it is made, read, changed and removed as documented, and each change is one
// line of the log.
func TestLifeOfAPolicy(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	const one = "/admin/policies/user-123"
	s.do(t, "GET", one, "").Is(t, 404).Has(t, "user-123: there is no such policy")
	s.do(t, "PUT", one, window).Is(t, 404)
	s.do(t, "DELETE", one, "").Is(t, 404)

	made := s.do(t, "POST", "/admin/policies",
		`{"key":"user-123","type":"TOKEN_BUCKET","capacity":100,"refillRate":10,"windowSeconds":60}`).Is(t, 201)
	made.Has(t, `"policyKey":"user-123","type":"TOKEN_BUCKET","capacity":100,"refillRate":10,"windowSeconds":60,`+
		`"version":1,"changedBy":"admin-token"`)
	if id := made.Object(t)["id"]; id != 1.0 || made.Header.Get("Location") != one {
		t.Errorf("id %v, Location %q", id, made.Header.Get("Location"))
	}
	s.do(t, "POST", "/admin/policies", `{"key":"user-123","type":"FIXED_WINDOW","capacity":1,"windowSeconds":1}`).Is(t,
		409).Has(t, "already")

	if got := s.do(t, "GET", one, "").Is(t, 200); got.Body != made.Body ||
		got.Header.Get("ETag") != made.Header.Get("ETag") {
		t.Errorf("GET answers %s, and POST %s", got.Body, made.Body)
	}
	changed := s.do(t, "PUT", one, `{"key":"user-123","type":"TOKEN_BUCKET","capacity":5,"refillRate":2.5e-1}`).Is(t, 200)
	changed.Has(t,
		`"id":1,"policyKey":"user-123","type":"TOKEN_BUCKET","capacity":5,"refillRate":0.25,"windowSeconds":0,"version":2`)
	if changed.Header.Get("ETag") == made.Header.Get("ETag") {
		t.Error("a changed policy has the same ETag")
	}
	s.do(t, "PUT", one, `{"type":"TOKEN_BUCKET","capacity":5,"refillRate":0.25}`).Is(t, 200).Has(t, `"version":2`)
	s.do(t, "DELETE", one, "").Is(t, 204)
	s.do(t, "GET", one, "").Is(t, 404)

	lines := s.audit()
	if len(lines) != 3 {
		t.Fatalf("three changes are logged as\n%s", strings.Join(lines, "\n"))
	}
	for i, want := range []string{
		`key=user-123 by=admin-token before=none after="token_bucket 10/1s burst 100 version=1"`,
		`key=user-123 by=admin-token before="token_bucket 10/1s burst 100 version=1" after="token_bucket 1/4s ` +
			`burst 5 version=2"`,
		`key=user-123 by=admin-token before="token_bucket 1/4s burst 5 version=2" after=none`,
	} {
		if !strings.Contains(lines[i], want) {
			t.Errorf("line %d is %s, want %s", i, lines[i], want)
		}
	}
}

// TestWhatGETAnswersCanBeSentBack as it is, and changes nothing; and POST makes the same of it where there is
// none. Answers have both sets of words, whichever the policy was made with.
func TestWhatGETAnswersCanBeSentBack(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	for body, want := range map[string]string{
		`{"key":"a","algorithm":"token_bucket","rate":"10/s",` +
			`"burst":100}`: `{"key":"a","algorithm":"token_bucket","rate":"10/s","burst":100,"id":`,
		`{"key":"b","type":"TOKEN_BUCKET","capacity":100,"refillRate":10,` +
			`"windowSeconds":60}`: `{"key":"b","algorithm":"token_bucket","rate":"10/s","burst":100,"id":`,
		`{"policyKey":"c","algorithm":"sliding_log","limit":2,` +
			`"window":"60s"}`: `{"key":"c","algorithm":"sliding_log","limit":2,"window":"1m","id":`,
		`{"key":"d","type":"SLIDING_WINDOW_COUNTER","capacity":2,` +
			`"windowSeconds":0.5}`: `{"key":"d","algorithm":"sliding_window","limit":2,"window":"500ms","id":`,
		`{"key":"e","algorithm":"fixed_window",` +
			`"rate":"0/min"}`: `{"key":"e","algorithm":"fixed_window","limit":0,"window":"1m","id":`,
		`{"key":"f","algorithm":"fixed_window","limit":1e1,"window":"1d","type":"FIXED_WINDOW","capacity":10,` +
			`"windowSeconds":86400}`: `{"key":"f","algorithm":"fixed_window","limit":10,"window":"24h","id":`,
	} {
		made := s.do(t, "POST", "/admin/policies", body).Is(t, 201).Has(t, want)
		one := made.Header.Get("Location")
		if back := s.do(t, "PUT", one, made.Body).Is(t, 200); back.Body != made.Body {
			t.Errorf("%s became %s", made.Body, back.Body)
		}
		s.do(t, "PUT", one, strings.Replace(made.Body, `"version":1`, `"version":7`, 1)).Is(t, 200).Has(t, `"version":1`)
		s.do(t, "DELETE", one, "").Is(t, 204)
		s.do(t, "POST", "/admin/policies", made.Body).Is(t, 201).Has(t, want)
	}
	if n := len(s.audit()); n != 3*6 {
		t.Errorf("%d changes, want %d:\n%s", n, 3*6, s.log)
	}
}

// TestKeysAreDecodedOnce: what a path says is decoded once, and then has the one spelling of keys.
func TestKeysAreDecodedOnce(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.put(t, "user:a%20b", "user:a%2520b", "a:1|route:/v1/pay", "a:2|route:/v1/pay", "*",
		"user:50%25")
	for path, key := range map[string]string{
		"user:a%20b":              "user:a%20b",
		"user:a%2520b":            "user:a%20b",
		"user:a%252520b":          "user:a%2520b",
		"user%3Aa%20b":            "user:a%20b",
		"a:1%7Croute:%2Fv1%2Fpay": "a:1|route:/v1/pay",
		"a:2|route:/v1/pay":       "a:2|route:/v1/pay", // as it is printed
		"*":                       "*",
		"%2A":                     "*",
		"user:50%2525":            "user:50%25",
	} {
		s.do(t, "GET", "/admin/policies/"+path, "").Is(t, 200).Has(t, `"policyKey":"`+key+`"`)
	}
	made := s.do(t, "POST", "/admin/policies", `{"key":"é/b|c d%","type":"FIXED_WINDOW","capacity":1,"windowSeconds":1}`)
	made.Is(t, 400).Has(t, "no escape")
	made = s.do(t, "POST", "/admin/policies",
		`{"key":"é/b|c d%25","type":"FIXED_WINDOW","capacity":1,"windowSeconds":1}`).Is(t, 201)
	if at := made.Header.Get("Location"); at != "/admin/policies/%25C3%25A9%2Fb%7Cc%2520d%2525" {
		t.Errorf("Location is %s", at)
	}
	s.do(t, "GET", made.Header.Get("Location"), "").Is(t, 200).Has(t, `"policyKey":"%C3%A9/b|c%20d%25"`)
	long := strings.Repeat("x", 300)
	made = s.do(t, "POST", "/admin/policies",
		`{"key":"`+long+`","type":"FIXED_WINDOW","capacity":1,"windowSeconds":1}`).Is(t, 201)
	s.do(t, "GET", made.Header.Get("Location"), "").Is(t, 200)
	s.do(t, "GET", "/admin/policies/"+long, "").Is(t, 200)
}

// TestBadRequestsChangeNothing, and say what is wrong.
func TestBadRequestsChangeNothing(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.put(t, "a", "policies/x", "../a")
	before := s.state(t)
	body := func(more string) string {
		return `{"key":"b","type":"TOKEN_BUCKET","capacity":1,"refillRate":1` + more + `}`
	}
	for _, c := range []struct {
		method, path, body string
		code               int
		want               string
		header             []string
	}{
		{"POST", "", body(`,"burst":1`), 400, "burst is mixed with older words", nil},
		{"POST", "", `{"key":"b","algorithm":"sliding_log","capacity":2,"windowSeconds":60}`, 400,
			"algorithm is mixed with older words: algorithm with capacity, windowSeconds;", nil},
		{"POST", "", `{"key":"b","algorithm":"sliding_log","limit":2,"window":"1m","type":"SLIDING_WINDOW","capacity":3,` +
			`"windowSeconds":60}`, 400, "limit 2 and capacity 3 contradict", nil},
		{"POST", "", `{"key":"b","policyKey":"c","algorithm":"sliding_log","limit":2,"window":"1m"}`, 400, "policyKey", nil},
		{"POST", "", `{"policyKey":"../b","algorithm":"sliding_log","limit":2,"window":"1m"}`, 400, "between slashes", nil},
		{"POST", "", `{"key":"b","algorithm":"sliding_log","limit":"2","window":"1m"}`, 400,
			"limit must be a whole number", nil},
		{"POST", "", `{"key":"b","algorithm":"sliding_log","limit":null,"window":"1m"}`, 400,
			"limit must be a whole number", nil},
		{"POST", "", `{"key":"b","algorithm":"sliding_log","limit":2,"window":60}`, 400,
			"window must be a string, not 60", nil},
		{"POST", "", `{"key":"b","algorithm":"token_bucket","rate":"1/s","window":""}`, 400, "window is empty", nil},
		{"POST", "", `{"key":"b","algorithm":"token_bucket","rate":["1/s"]}`, 400, "rate must be a string", nil},
		{"POST", "", `{"key":"b","algorithm":"token_bucket","rate":"1/s","version":"1"}`, 400, "version must be", nil},
		{"PUT", "/a", `{"policyKey":"b",` + window[1:], 400, "keeps its key", nil},
		{"POST", "", body(`,"units":1`), 400, "units is an unknown field", nil},
		{"POST", "", body(`,"capacity":1`), 400, "capacity is there twice", nil},
		{"POST", "", `{"key":"b","type":"TOKEN_BUCKET","capacity":-1,"refillRate":1}`, 400, "capacity -1 is negative", nil},
		{"POST", "", `{"key":"b","type":"TOKEN_BUCKET","capacity":1.5,"refillRate":1}`, 400,
			"capacity must be a whole number", nil},
		{"POST", "", `{"key":"b","type":"TOKEN_BUCKET","capacity":1e300,"refillRate":1}`, 400,
			"capacity must be a whole number", nil},
		{"POST", "", `{"key":"b","type":"TOKEN_BUCKET","capacity":1,"refillRate":-1}`, 400, "refillRate", nil},
		{"POST", "", `{"key":"b","type":"TOKEN_BUCKET","capacity":1,"refillRate":"1"}`, 400, "refillRate", nil},
		{"POST", "", `{"key":"b","type":"TOKEN_BUCKET","capacity":1,"refillRate":null}`, 400, "refillRate", nil},
		{"POST", "", `{"key":"b","type":"TOKEN_BUCKET","capacity":1,"refillRate":1e-9}`, 400,
			"more than six decimal places", nil},
		{"POST", "", `{"key":"b","type":"TOKEN_BUCKET","capacity":1,"refillRate":1e999999999}`, 400, "refillRate", nil},
		{"POST", "", `{"key":"b","type":"TOKEN_BUCKET","capacity":1}`, 400, "refillRate is missing", nil},
		{"POST", "", `{"key":"b","type":"FIXED_WINDOW","capacity":1}`, 400, "windowSeconds", nil},
		{"POST", "", `{"key":"b","type":"LEAKY","capacity":1}`, 400, `LEAKY`, nil},
		{"POST", "", `{"key":"b","type":7,"capacity":1}`, 400, "type must be a string", nil},
		{"POST", "", window, 400, "key is missing", nil},
		{"POST", "", `{"key":"","type":"FIXED_WINDOW","capacity":1,"windowSeconds":1}`, 400, "the key is empty", nil},
		{"POST", "", `{"key":"../b","type":"FIXED_WINDOW","capacity":1,"windowSeconds":1}`, 400, "between slashes", nil},
		{"POST", "", `{"key":"` + strings.Repeat("k", maxKey+1) + `","type":"FIXED_WINDOW","capacity":1,"windowSeconds":1}`,
			400, "more than 4096", nil},
		{"POST", "", `{"key":"` + strings.Repeat("k", maxBody) + `"}`, 413, "larger than", nil},
		{"POST", "", "", 415, "Content-Type", nil},
		{"POST", "", "{", 400, "not a JSON object", nil},
		{"POST", "?dryrun=true", body(""), 400, "unknown parameter", nil},
		{"POST", "?dryRun=yes", body(""), 400, "want true or false", nil},
		{"POST", "?dryRun=false&dryRun=true", body(""), 400, "2 times", nil},
		{"POST", "", body(""), 400, "If-Match", []string{"If-Match", "*"}},
		{"PUT", "/a", window, 400, "If-None-Match", []string{"If-None-Match", "*"}},
		{"PUT", "/a", window, 400, "If-Match", []string{"If-Match", "1"}},
		{"PUT", "/a", window, 400, "If-Match", []string{"If-Match", `"1-1", "1-2"`}},
		{"PUT", "/a", `{"key":"b",` + window[1:], 400, "keeps its key", nil},
		{"PUT", "/a", `{"type":"FIXED_WINDOW"}`, 400, "capacity is missing", nil},
		{"DELETE", "/..%2fa", "", 400, "between slashes", nil},
		{"DELETE", "/..%252fa", "", 400, "between slashes", nil},
		{"DELETE", "/%2e%2e%2Fa", "", 400, "between slashes", nil},
		{"PUT", "/..%2fa", window, 400, "between slashes", nil},
		{"DELETE", "/%25zz", "", 400, "no escape", nil},
		{"DELETE", "/" + strings.Repeat("k", maxKey+1), "", 400, "more than 4096", nil},
		{"DELETE", "/policies/y", "", 404, "there is no such policy", nil},
		{"DELETE", "/policies//x", "", 404, "nothing at this path", nil}, // a proxy may have written policies/x
		{"DELETE", "/", "", 404, "nothing at this path", nil},
		{"DELETE", "", "", 405, "no DELETE", nil},
		{"PATCH", "/a", window, 405, "no PATCH", nil},
		{"GET", "?limit=0", "", 400, "limit", nil},
		{"GET", "?limit=1001", "", 400, "limit", nil},
		{"GET", "?after=%00", "", 400, "after", nil},
		{"GET", "?prefix=%C3%A9", "", 400, "prefix", nil},
		{"GET", "?key=a", "", 400, "unknown parameter", nil},
		{"GET", "-history?after=0", "", 400, "after", nil},
		{"GET", "-history?after=%2B1", "", 400, "after", nil},
		{"GET", "-history?after=9007199254740992", "", 400, "after", nil},
		{"GET", "-history?limit=1001", "", 400, "limit", nil},
		{"GET", "-history?key=", "", 400, "must not be empty", nil},
		{"GET", "-history?key=%25zz", "", 400, "no escape", nil},
		{"GET", "-history?key=" + strings.Repeat("k", maxKey+1), "", 400, "more than 4096", nil},
		{"GET", "-history?Key=a", "", 400, "unknown parameter", nil},
		{"GET", "-history/a", "", 404, "nothing at this path", nil},
		{"GET", "/a/history", "", 404, "there is no such policy", nil},
		{"DELETE", "-history", "", 405, "no DELETE", nil},
	} {
		path := "/admin/policies" + c.path
		a := s.do(t, c.method, path, c.body, c.header...)
		if a.Code != c.code || !strings.Contains(a.Body, c.want) {
			t.Errorf("%s %.60s %.90s: %d %s, want %d %s", c.method, path, c.body, a.Code, a.Body, c.code, c.want)
		}
	}
	if after := s.state(t); after != before || len(s.audit()) != 0 {
		t.Errorf("the policies have changed from\n%s\nto\n%s\n%s", before, after, s.log)
	}
}

// TestLostUpdates: who changes or removes a version that is no more is refused, also when the policy
// was made again meanwhile.
func TestLostUpdates(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.put(t, "a")
	const one = "/admin/policies/a"
	first := s.do(t, "GET", one, "").Is(t, 200).Header.Get("ETag")
	second := s.do(t, "PUT", one, `{"type":"SLIDING_WINDOW","capacity":3,"windowSeconds":60}`, "If-Match", first).Is(t,
		200).Header.Get("ETag")
	before := s.state(t)
	for _, old := range []string{first, "W/" + second, `"other"`, `""`, `"99999999999999999999-1"`, `"1-0"`} {
		s.do(t, "PUT", one, window, "If-Match", old).Is(t, 412)
		s.do(t, "DELETE", one, "", "If-Match", old).Is(t, 412)
		s.do(t, "PUT", one+"?dryRun=true", window, "If-Match", old).Is(t, 412)
		s.do(t, "DELETE", "/admin/policies/none", "", "If-Match", old).Is(t, 404)
	}
	if s.state(t) != before {
		t.Error("a refused change was made")
	}
	s.do(t, "DELETE", one, "", "If-Match", second).Is(t, 204)
	s.put(t, "a") // begins with version 1 again
	s.do(t, "DELETE", one, "", "If-Match", first).Is(t, 412).Has(t, "made again")
	s.do(t, "DELETE", one, "", "If-Match", "*").Is(t, 204)
	s.do(t, "DELETE", one, "", "If-Match", "*").Is(t, 404)
}

// TestOneOfManyUpdatesWins: of changes to the same version at the same time, one is made.
func TestOneOfManyUpdatesWins(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.put(t, "a")
	tag := s.do(t, "GET", "/admin/policies/a", "").Header.Get("ETag")
	codes := make(chan int, 4)
	for i := range cap(codes) {
		go func() {
			body := fmt.Sprintf(`{"type":"SLIDING_WINDOW","capacity":%d,"windowSeconds":60}`, 10+i)
			r := httptest.NewRequest("PUT", "/admin/policies/a", strings.NewReader(body))
			r.Header.Set("Authorization", "Bearer "+adminToken)
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("If-Match", tag)
			w := httptest.NewRecorder()
			s.handler.ServeHTTP(w, r)
			codes <- w.Code
		}()
	}
	got := map[int]int{}
	for range cap(codes) {
		got[<-codes]++
	}
	if got[200] != 1 || got[412] != cap(codes)-1 || len(s.audit()) != 1 {
		t.Errorf("the answers are %v, and the log has %d changes", got, len(s.audit()))
	}
}

// TestDryRun: it answers with what would change, refuses what would be refused, and changes nothing.
func TestDryRun(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.put(t, "a")
	before := s.state(t)
	s.do(t, "POST", "/admin/policies?dryRun=true", `{"key":"b",`+window[1:]).Is(t, 200).Has(t,
		`{"dryRun":true,"before":null,"after":{"key":"b","algorithm":"sliding_log","limit":2,"window":"1m","policyKey":"b"`)
	s.do(t, "POST", "/admin/policies?dryRun=true", `{"key":"a",`+window[1:]).Is(t, 409)
	s.do(t, "PUT", "/admin/policies/a?dryRun=true", `{"type":"SLIDING_WINDOW","capacity":9,"windowSeconds":60}`).Is(t,
		200).
		Has(t, `"version":1,"changedBy":"test"`).Has(t,
		`"capacity":9,"refillRate":0,"windowSeconds":60,"version":2,"changedBy":"admin-token"`)
	s.do(t, "DELETE", "/admin/policies/a?dryRun=true", "").Is(t, 200).Has(t, `"after":null`)
	s.do(t, "DELETE", "/admin/policies/b?dryRun=true", "").Is(t, 404)
	if s.state(t) != before || len(s.audit()) != 0 {
		t.Errorf("a dry run changed %s to %s", before, s.state(t))
	}
}

func TestPagesListEveryPolicyOnce(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.put(t, "user:a", "user:b", "user:c%20d", "route:x")
	first := s.do(t, "GET", "/admin/policies?limit=2&prefix=user:", "").Is(t, 200)
	if list := first.Object(t)["policies"].([]any); len(list) != 2 || first.Object(t)["next"] != "user:b" {
		t.Fatalf("the first page is %s", first.Body)
	}
	rest := s.do(t, "GET", "/admin/policies?limit=2&prefix=user:&after=user:b", "").Is(t, 200).Has(t,
		`"policyKey":"user:c%20d"`)
	if list := rest.Object(t)["policies"].([]any); len(list) != 1 || rest.Object(t)["next"] != nil {
		t.Errorf("the last page is %s", rest.Body)
	}
	s.do(t, "GET", "/admin/policies?prefix=none", "").Is(t, 200).Has(t, `{"policies":[]}`)
	if a := s.do(t, "HEAD", "/admin/policies/user:a", ""); a.Code != 200 || a.Header.Get("ETag") == "" {
		t.Errorf("HEAD: %d %v", a.Code, a.Header)
	}
}

// TestGuardKeepsStrangersOut: without the token, every route answers 401 and changes nothing.
func TestGuardKeepsStrangersOut(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.put(t, "user:alice")
	before := s.state(t)
	for _, r := range New(nil, nil).routes() {
		path := strings.ReplaceAll(r.Path, "{key}", "user:alice")
		s.do(t, r.Method, path, "", "Authorization", "Bearer x"+adminToken).Is(t, 401)
	}
	s.do(t, "DELETE", "/admin/policies/user:alice", "", "Origin", "https://other.example", "Sec-Fetch-Site",
		"cross-site").Is(t, 403)
	if s.state(t) != before {
		t.Error("a request without the token changed something")
	}
}

// TestDatabaseAway: requests that need it get 503 and the reason, without the words of the database,
// which the log has.
func TestDatabaseAway(t *testing.T) {
	t.Parallel()
	s := serverOn(t, "postgres://headgate:hidden@127.0.0.1:1/policies")
	for _, c := range []struct{ method, path, body, want string }{
		{"GET", "", "", awayMessage},
		{"GET", "/a", "", awayMessage},
		{"GET", "-history?key=a", "", awayMessage},
		{"POST", "", `{"key":"a",` + window[1:], "see whether it was changed"},
		{"POST", "?dryRun=true", `{"key":"a",` + window[1:], awayMessage},
		{"PUT", "/a", window, "see whether it was changed"},
		{"DELETE", "/a", "", "see whether it was changed"},
	} {
		a := s.do(t, c.method, "/admin/policies"+c.path, c.body).Is(t, 503).Has(t, c.want)
		if strings.Contains(a.Body, "127.0.0.1") {
			t.Errorf("the answer has the database's words: %s", a.Body)
		}
	}
	if log := s.log.String(); strings.Count(log, `msg="request for policies failed"`) != 7 ||
		!strings.Contains(log, "by=admin-token") ||
		!strings.Contains(log, "refused") || strings.Contains(log, "hidden") {
		t.Errorf("the log is\n%s", log)
	}
	s.do(t, "PUT", "/admin/policies/a", `{"type":"FIXED_WINDOW","capacity":-1,"windowSeconds":1}`).Is(t, 400)
}

// TestClientHangsUp: its change is made all the same, and logged.
func TestClientHangsUp(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.put(t, "a")
	ctx, hangUp := context.WithCancel(t.Context())
	hangUp()
	s.doWith(t, ctx, http.MethodDelete, "/admin/policies/a", "").Is(t, 204)
	if len(s.audit()) != 1 {
		t.Errorf("the log is %s", s.log)
	}
}
