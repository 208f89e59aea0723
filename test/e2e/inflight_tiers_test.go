package e2e

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

const tierRules = `
domain: e2e
resources:
- method: POST
  path: /heavy/*
  reject_hold: 2m
  concurrency:
  - {threshold: 2, response: {delay: {exact: 400}}}
  - threshold: 4
    name: busy
    response: {statusCode: 503, headers: {Retry-After: "30", x-reason: busy}, content: Service temporarily overloaded}
  - {threshold: 6, response: {statusCode: 429, content: Rate limit exceeded}}
- path: /plans/*
  match: {headers: {x-plan: gold}, query: {size: large}}
  concurrency: [{threshold: 1, response: {statusCode: 500}}]
- operation: getUserDetails
  concurrency:
  - threshold: 1
    response:
      statusCode: 503
      headers: {content-type: text/xml}
      content: <soap:Fault><faultcode>Server</faultcode></soap:Fault>
`

// ask sends a request with headers, given as name and value in turn.
func (s *stage) ask(method, path string, headers ...string) (answer, error) {
	req, err := http.NewRequest(method, "http://"+s.addr+path, strings.NewReader("a body"))
	if err != nil {
		return answer{}, err
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return answer{Code: resp.StatusCode, Header: resp.Header, Body: string(body)}, err
}

// hold sends a request that stays in the application until that lets go.
func (s *stage) hold(clients *sync.WaitGroup, method, path string, headers ...string) {
	clients.Go(func() {
		if a, err := s.ask(method, path, headers...); err != nil || a.Code != 200 {
			s.t.Errorf("%s %s: %v (%v)", method, path, a, err)
		}
	})
}

// wantRefused sends a request that must be refused as a tier says.
func (s *stage) wantRefused(code int, body, rule string, method, path string, headers ...string) answer {
	s.t.Helper()
	a, err := s.ask(method, path, headers...)
	if err != nil || a.Code != code || a.Body != body || a.Rule() != rule {
		s.t.Errorf("%s %s: %v (%v), want %d %q by %s", method, path, a, err, code, body, rule)
	}
	return a
}

const (
	delayHeader   = "x-envoy-fault-delay-request"
	percentHeader = "x-envoy-fault-delay-request-percentage"
)

// TestInFlightTiers: what tiers say is what the client gets: two pass at once,
// two after a while, two are refused with 503, and more with 429.
func TestInFlightTiers(t *testing.T) {
	besides(t, func(t *testing.T, env environment) {
		s := startStage(t, env, staging{rules: tierRules})
		var clients sync.WaitGroup
		defer clients.Wait()
		defer s.app.LetGo()

		// Clients choose no delay: with this one it would be for ten minutes.
		s.hold(&clients, "POST", "/heavy/hold", delayHeader, "600000")
		s.app.wantInside(t, 1)
		s.hold(&clients, "POST", "/heavy/hold", percentHeader, "0")
		s.app.wantInside(t, 2)
		for n := 3; n <= 4; n++ {
			start := time.Now()
			s.hold(&clients, "POST", "/heavy/hold", delayHeader, "0", percentHeader, "0")
			s.app.wantInside(t, n)
			if took := time.Since(start); took < 400*time.Millisecond {
				t.Errorf("request %d came in after %v, want 400 ms", n, took)
			}
			for _, name := range []string{delayHeader, percentHeader} {
				if v := s.app.Header(name); v != "" {
					t.Errorf("the application got %s: %s", name, v)
				}
			}
		}
		for range 2 {
			a := s.wantRefused(503, "Service temporarily overloaded", "e2e/POST:/heavy/*", "POST", "/heavy/hold")
			wantHeader(t, a, "retry-after", "30")
			wantHeader(t, a, "x-reason", "busy")
			if v := a.Header.Get(delayHeader); v != "" {
				t.Errorf("the client got %s: %s", delayHeader, v)
			}
		}
		a := s.wantRefused(429, "Rate limit exceeded", "e2e/POST:/heavy/*", "POST", "/heavy/hold")
		wantHeader(t, a, "retry-after", "1")

		// Other requests are not those of the resource.
		if a, err := s.ask("GET", "/heavy/work"); err != nil || a.Code != 200 {
			t.Errorf("another method: %v (%v)", a, err)
		}
	})
}

// TestInFlightCriteria: what resources match on reaches headgate, and the
// status of one that nothing is said about is its own.
func TestInFlightCriteria(t *testing.T) {
	besides(t, func(t *testing.T, env environment) {
		s := startStage(t, env, staging{rules: tierRules})
		var clients sync.WaitGroup
		defer clients.Wait()
		defer s.app.LetGo()
		s.hold(&clients, "GET", "/plans/hold?size=large", "x-plan", "gold")
		s.hold(&clients, "POST", "/soap/hold", "soapaction", `"urn:users#getUserDetails"`)
		s.app.wantInside(t, 2)
		a, err := s.ask("GET", "/plans/x?size=large", "x-plan", "gold")
		if err != nil || a.Code != 500 || !strings.HasPrefix(a.Rule(), "e2e/*:/plans/*:") {
			t.Errorf("the second one is answered with %v (%v)", a, err)
		}
		for _, headers := range [][]string{{"x-plan", "silver"}, nil} {
			if a, err := s.ask("GET", "/plans/work?size=large", headers...); err != nil || a.Code != 200 {
				t.Errorf("with %v: %v (%v)", headers, a, err)
			}
		}
		a = s.wantRefused(503, "<soap:Fault><faultcode>Server</faultcode></soap:Fault>", "e2e/POST:getUserDetails", "POST",
			"/soap/elsewhere", "soapaction", "getUserDetails")
		wantHeader(t, a, "content-type", "text/xml")
		if a, err := s.ask("POST", "/soap/work", "soapaction", `"urn:users#getUserNames"`); err != nil || a.Code != 200 {
			t.Errorf("another operation: %v (%v)", a, err)
		}
	})
}
