package httpapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/internal/kit/web"
	"github.com/headgate-rls/headgate/notify"
	"github.com/headgate-rls/headgate/test/webtest"
)

// scripted is a gateway that does what a test says; the real one runs in test/notify.
type scripted struct {
	err     error
	hold    chan struct{} // if not nil, Send waits until it is closed
	entered chan struct{}
	config  notify.Config
	mu      sync.Mutex
	sent    [2]string
}

func (s *scripted) Configure(_ context.Context, c notify.Config) (time.Time, error) {
	s.config = c
	return time.UnixMicro(1_700_000_000_000_007).UTC(), s.err
}

func (s *scripted) Send(_ context.Context, user, text string) (notify.Accepted, error) {
	s.mu.Lock()
	s.sent = [2]string{user, text}
	s.mu.Unlock()
	if s.hold != nil {
		s.entered <- struct{}{}
		<-s.hold
	}
	return notify.Accepted{Limit: 10, Remaining: 7}, s.err
}

// fixture is the API on a server, with what it logs and counts.
type fixture struct {
	*scripted
	url      string
	log      bytes.Buffer
	outcomes []notify.Outcome
}

const token = "0123456789abcdef0123456789abcdef"

func start(t *testing.T, change func(*Config)) *fixture {
	t.Helper()
	f := &fixture{scripted: new(scripted)}
	c := Config{
		Gateway: f.scripted, Log: slog.New(slog.NewTextHandler(&f.log, nil)), Timeout: 10 * time.Second, Most: 100,
		Answer: f.answered,
	}
	if change != nil {
		change(&c)
	}
	server := httptest.NewServer(New(c))
	t.Cleanup(server.Close)
	f.url = server.URL
	return f
}

func (f *fixture) answered(o notify.Outcome, _ time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.outcomes = append(f.outcomes, o)
}

func (f *fixture) do(t *testing.T, method, path string, body io.Reader, header ...string) webtest.Answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, f.url+path, body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	return webtest.Read(t, resp)
}

const (
	configPath = "/api/config"
	sendPath   = "/api/send"
)

func TestRequestsThatAreRefused(t *testing.T) {
	f := start(t, nil)
	long := strings.Repeat("x", 256)
	for _, c := range []struct{ path, body, text string }{
		{configPath, ``, "empty"},
		{configPath, `hello`, "not a JSON object"},
		{configPath, `[]`, "object"},
		{configPath, `{"rateLimit":1,"timeWindow":1}`, "userId is missing"},
		{configPath, `{"userId":"u","timeWindow":1}`, "rateLimit is missing"},
		{configPath, `{"userId":"u","rateLimit":1}`, "timeWindow is missing"},
		{configPath, `{"userId":null,"rateLimit":1,"timeWindow":1}`, "userId is missing"},
		{configPath, `{"userId":"","rateLimit":1,"timeWindow":1}`, "userId must not be empty"},
		{configPath, `{"userId":"` + long + `","rateLimit":1,"timeWindow":1}`, "userId has 256 characters"},
		{configPath, `{"userId":"a\nb","rateLimit":1,"timeWindow":1}`, "userId must not have control characters"},
		{configPath, `{"userId":7,"rateLimit":1,"timeWindow":1}`, "userId"},
		{configPath, `{"userId":"u","rateLimit":"1","timeWindow":1}`, "rateLimit"},
		{configPath, `{"userId":"u","rateLimit":1.5,"timeWindow":1}`, "rateLimit"},
		{configPath, `{"userId":"u","rateLimit":-1,"timeWindow":1}`, "rateLimit is -1"},
		{configPath, `{"userId":"u","rateLimit":2147483648,"timeWindow":1}`, "rateLimit is 2147483648"},
		{configPath, `{"userId":"u","rateLimit":1e99,"timeWindow":1}`, "rateLimit"},
		{configPath, `{"userId":"u","rateLimit":true,"timeWindow":1}`, "rateLimit"},
		{configPath, `{"userId":"u","rateLimit":1,"timeWindow":0}`, "timeWindow is 0"},
		{configPath, `{"userId":"u","rateLimit":1,"timeWindow":-5}`, "timeWindow is -5"},
		{configPath, `{"userId":"u","rateLimit":1,"timeWindow":5256001}`, "timeWindow is 5256001"},
		{configPath, `{"userId":"u","rateLimit":1,"timeWindow":[1]}`, "timeWindow"},
		{configPath, `{"userId":"u","user_id":"u","rateLimit":1,"timeWindow":1}`, "userId is there twice, also as user_id"},
		{configPath, `{"userId":"u","userId":"v","rateLimit":1,"timeWindow":1}`, "userId"},
		{configPath, `{"userId":"u","rateLimit":1,"rate_limit":1,"timeWindow":1}`, "rateLimit is there twice"},
		{configPath, `{"userId":"u","rateLimit":1,"timeWindow":1,"time_window":1}`, "timeWindow is there twice"},
		{configPath, `{"userId":"u","rateLimit":1,"timeWindow":1,"timeWindw":1}`, "timeWindw"},
		{configPath, `{"userId":"u","rateLimit":1,"timeWindow":1} {}`, "not a JSON object"},
		{configPath + "?userId=u", `{}`, "no parameters in its URL"},
		{sendPath, `{"message":"x"}`, "userId is missing"},
		{sendPath, `{"userId":"u"}`, "message is missing"},
		{sendPath, `{"userId":"u","message":""}`, "message must not be empty"},
		{sendPath, `{"userId":"u","message":"a\u0000"}`, "message must not have the character U+0000"},
		{sendPath, `{"userId":"u","message":"\ud800"}`, "surrogate"},
		{sendPath, `{"userId":"u","message":"` + strings.Repeat("x", notify.MaxText+1) + `"}`, "message has 16385 bytes"},
		{sendPath, `{"userId":"u","message":{"text":"x"}}`, "message"},
		{sendPath, `{"userId":"u","message":"x","payload":"x"}`, "message is there twice, also as payload"},
		{sendPath, "{\"userId\":\"u\",\"message\":\"\xff\"}", "UTF-8"},
	} {
		expectError(t, f.do(t, "POST", c.path, strings.NewReader(c.body)), 400, c.text)
	}
	if f.config.UserID != "" || f.sent[0] != "" {
		t.Errorf("the gateway was asked about %+v, %v", f.config, f.sent)
	}
	for _, o := range f.outcomes {
		if o != notify.Invalid {
			t.Errorf("a refused request counts as %s", o)
		}
	}
}

const (
	goodConfig = `{"userId":"u","rateLimit":1,"timeWindow":2}`
	goodSend   = `{"userId":"u","message":"x"}`
)

func TestOtherRefusals(t *testing.T) {
	f := start(t, nil)
	post := func(path, body string, header ...string) webtest.Answer {
		return f.do(t, "POST", path, strings.NewReader(body), header...)
	}
	for path, body := range map[string]string{configPath: goodConfig, sendPath: goodSend} {
		expectError(t, post(path, body, "Content-Type", "text/plain"), 415, "Content-Type")
		expectError(t, post(path, body, "Content-Type", "application/json; charset=latin1"), 415, "Content-Type")
		expectError(t, post(path, body, "Content-Encoding", "gzip"), 415, "Content-Encoding")
		huge := `{"userId":"` + strings.Repeat("x", maxBody) + `"}`
		expectError(t, post(path, huge), 413, "larger than 65536 bytes")
		// Without a length: it is refused although it never ends.
		expectError(t, f.do(t, "POST", path, io.MultiReader(strings.NewReader(`{"userId":"`), &endless{left: 10 << 20})), 413,
			"larger than 65536 bytes")
		a := f.do(t, "GET", path, nil)
		expectError(t, a, 405, "POST only")
		if a.Header.Get("Allow") != "POST" {
			t.Errorf("Allow is %q", a.Header.Get("Allow"))
		}
	}
	expectError(t, f.do(t, "PUT", "/openapi.json", nil), 405, "GET only")
	if a := f.do(t, "GET", "/api/users", nil); a.Code != 404 || !strings.Contains(a.Body, "/openapi.json") {
		t.Errorf("an unknown path: %+v", a)
	}
}

// endless is a body that would be long.
type endless struct{ left int }

func (e *endless) Read(p []byte) (int, error) {
	if e.left -= len(p); e.left < 0 {
		return 0, io.EOF
	}
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

func TestABodyThatDoesNotArriveInTime(t *testing.T) {
	f := start(t, func(c *Config) { c.Timeout = 200 * time.Millisecond })
	body, write := io.Pipe()
	defer write.Close()
	go func() { _, _ = write.Write([]byte(`{"userId":`)) }()
	expectError(t, f.do(t, "POST", sendPath, body), 408, "did not arrive in time")
}

func TestBothNamesOfAField(t *testing.T) {
	f := start(t, nil)
	for _, body := range []string{`{"userId":"ü","rateLimit":0,"timeWindow":5256000}`,
		`{"user_id":"ü","rate_limit":0,"time_window":5256000}`, `{"user_id":"ü","rateLimit":0,"time_window":5256000}`} {
		a := f.do(t, "POST", configPath, strings.NewReader(body))
		want := `{"userId":"ü","rateLimit":0,"timeWindow":5256000,"currentCount":0,` +
			`"lastRefreshTime":"2023-11-14T22:13:20.000007Z"}`
		if a.Code != 200 || strings.TrimSpace(a.Body) != want || f.config != (notify.Config{UserID: "ü", Minutes: 5256000}) {
			t.Errorf("%s: %d %s, %+v", body, a.Code, a.Body, f.config)
		}
		checkDocumented(t, a)
	}
	for _, body := range []string{`{"userId":"u","message":"hi"}`, `{"user_id":"u","payload":"hi"}`,
		`{"userId":"u","payload":"hi","message":null}`} {
		a := f.do(t, "POST", sendPath, strings.NewReader(body))
		if a.Code != 200 || strings.TrimSpace(a.Body) != `{"userId":"u","status":"QUEUED","limit":10,"remaining":7}` ||
			f.sent != [2]string{"u", "hi"} {
			t.Errorf("%s: %d %s, %v", body, a.Code, a.Body, f.sent)
		}
		checkDocumented(t, a)
	}
}

// TestWhatTheGatewaySays: its errors get a status each. The answer has no word of a server;
// the log has.
func TestWhatTheGatewaySays(t *testing.T) {
	away := &notify.UnavailableError{Part: notify.Store, Err: errors.New("dial tcp 10.1.2.3")}
	for _, c := range []struct {
		err     error
		status  int
		text    string
		retry   string
		outcome notify.Outcome
		logged  bool
	}{
		{notify.ErrNoConfig, 404, "no configuration exists for the user", "", notify.Unknown, false},
		{&notify.LimitedError{Limit: 5, Rest: 61*time.Second + 1}, 429,
			"rate limit exceeded: 5 messages per window; the window ends in 62 s", "62", notify.Limited, false},
		{away, 503, "temporarily unavailable", "1", notify.Unavailable, true},
		{fmt.Errorf("publish: %w", &notify.UnavailableError{Part: notify.Broker, Err: errors.New("dial tcp 10.1.2.3")}), 503,
			"temporarily unavailable", "1", notify.Unavailable, true},
		{context.DeadlineExceeded, 503, "temporarily unavailable", "1", notify.Unavailable, true},
		{errors.New("broken at 10.1.2.3"), 500, "something failed inside the gateway", "", notify.Failed, true},
	} {
		f := start(t, nil)
		f.err = c.err
		a := f.do(t, "POST", sendPath, strings.NewReader(goodSend))
		expectError(t, a, c.status, c.text)
		if a.Header.Get("Retry-After") != c.retry || strings.Contains(a.Body, "10.1.2.3") {
			t.Errorf("%v: Retry-After %q, %s", c.err, a.Header.Get("Retry-After"), a.Body)
		}
		if len(f.outcomes) != 1 || f.outcomes[0] != c.outcome {
			t.Errorf("%v counts as %v", c.err, f.outcomes)
		}
		if got := strings.Contains(f.log.String(), "request failed"); got != c.logged {
			t.Errorf("%v: the log has %q", c.err, f.log.String())
		}
	}
	f := start(t, nil)
	f.err = away
	expectError(t, f.do(t, "POST", configPath, strings.NewReader(goodConfig)), 503, "temporarily unavailable")
}

func TestTooManyRequestsAtTheSameTime(t *testing.T) {
	f := start(t, func(c *Config) { c.Most = 1 })
	f.hold, f.entered = make(chan struct{}), make(chan struct{}, 1)
	done := make(chan webtest.Answer)
	go func() { done <- f.do(t, "POST", sendPath, strings.NewReader(goodSend)) }()
	<-f.entered
	a := f.do(t, "POST", sendPath, strings.NewReader(goodSend))
	expectError(t, a, 503, "too many requests at the same time")
	if a.Header.Get("Retry-After") != "1" {
		t.Errorf("Retry-After is %q", a.Header.Get("Retry-After"))
	}
	f.mu.Lock()
	if !slices.Equal(f.outcomes, []notify.Outcome{notify.Unavailable}) {
		t.Errorf("outcomes are %v: the refusal does not count", f.outcomes)
	}
	f.mu.Unlock()
	close(f.hold)
	if a := <-done; a.Code != 200 {
		t.Errorf("the first request: %+v", a)
	}
}

func TestBodiesThatDoNotArriveTakeNoPlace(t *testing.T) {
	f := start(t, func(c *Config) { c.Most = 1 })
	body, half := io.Pipe()
	slow := make(chan webtest.Answer, 1)
	go func() { slow <- f.do(t, "POST", sendPath, body) }()
	if _, err := io.WriteString(half, goodSend[:1]); err != nil { // the request is on its way
		t.Fatal(err)
	}
	time.Sleep(50 * time.Millisecond)
	if a := f.do(t, "POST", sendPath, strings.NewReader(goodSend)); a.Code != 200 {
		t.Errorf("a send beside a body that does not arrive: %+v", a)
	}
	if _, err := io.WriteString(half, goodSend[1:]); err != nil {
		t.Fatal(err)
	}
	half.Close()
	if a := <-slow; a.Code != 200 {
		t.Errorf("a send whose body arrives at last: %+v", a)
	}
}

// The sends of one user wait for each other, and the places of all requests are few.
func TestAUserLeavesPlacesToOthers(t *testing.T) {
	f := start(t, func(c *Config) { c.Most = 8 })
	f.hold, f.entered = make(chan struct{}), make(chan struct{}, 8)
	send := func(user string) webtest.Answer {
		return f.do(t, "POST", sendPath, strings.NewReader(fmt.Sprintf(`{"userId": %q, "message": "x"}`, user)))
	}
	done := make(chan webtest.Answer, 8)
	begin := func(user string) {
		go func() { done <- send(user) }()
		<-f.entered
	}
	begin("hot")
	begin("hot")
	third := make(chan webtest.Answer, 1)
	go func() { third <- send("hot") }()
	select {
	case a := <-third:
		expectError(t, a, 503, "too many requests at the same time for this user")
	case <-f.entered:
		close(f.hold)
		t.Fatal("one user has more than a quarter of the places")
	}
	begin("other")
	close(f.hold)
	for range 3 {
		if a := <-done; a.Code != 200 {
			t.Errorf("a send: %+v", a)
		}
	}
	if a := send("hot"); a.Code != 200 {
		t.Errorf("a send of the user after all others: %+v", a)
	}
}

func TestTheTokenGuardsTheLimitsOnly(t *testing.T) {
	f := start(t, func(c *Config) {
		guard, err := web.NewGuard(web.GuardConfig{Token: token, Setting: "X"})
		if err != nil {
			t.Fatal(err)
		}
		c.Guard = guard
	})
	config := func(header ...string) webtest.Answer {
		return f.do(t, "POST", configPath, strings.NewReader(goodConfig), header...)
	}
	expectError(t, config(), 401, "")
	expectError(t, config("Authorization", "Bearer "+token[1:]), 401, "")
	if f.config.UserID != "" {
		t.Error("saved without the token")
	}
	if a := config("Authorization", "Bearer "+token); a.Code != 200 {
		t.Errorf("with the token: %+v", a)
	}
	if a := f.do(t, "POST", sendPath, strings.NewReader(goodSend)); a.Code != 200 {
		t.Errorf("a send: %+v", a)
	}
}
