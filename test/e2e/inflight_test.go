package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/test/testenv"
)

// Requests in flight behind real Envoys, which have what `headgate envoy`
// prints.

var inFlightVersions = []string{"1.40.0", "1.38.3", "1.36.4"}

// onInFlight runs f against the Envoys, one after the other and before all
// that is parallel: what it is about is crowds.
func onInFlight(t *testing.T, f func(*testing.T, environment)) {
	for _, v := range among(t, inFlightVersions) {
		t.Run("envoy-"+v, func(t *testing.T) {
			testenv.Require(t, "envoy-"+v)
			f(t, environment{envoy: v, backend: "memory://"})
		})
	}
}

// besides runs f against the Envoys, beside other tests.
func besides(t *testing.T, f func(*testing.T, environment)) {
	t.Parallel()
	onInFlight(t, func(t *testing.T, env environment) {
		t.Parallel()
		f(t, env)
	})
}

const inFlightRules = `
domain: e2e
resources:
- path: /five/*
  concurrency: [{threshold: 5, response: {statusCode: 503, headers: {x-reason: crowded}, content: five are inside}}]
`

// A stage is an application behind Envoy and one or more headgates.
type stage struct {
	*front
	t        *testing.T
	app      *slowApp
	services []*service
	rules    string // path
}

// A staging says what differs from the printed configuration.
type staging struct {
	rules    string
	services int      // headgates; default 1
	serve    []string // more flags of serve
	print    []string // more flags of headgate envoy
	routes   string   // instead of the one route, in flow style
	envoy    []string // more arguments of Envoy

	// logs, if set, says where the access log of a headgate is found.
	logs func(addr string) string
}

// startStage starts everything. The configuration of Envoy is what headgate
// prints, but for the routes' timeouts and retries.
func startStage(t *testing.T, env environment, st staging) *stage {
	t.Helper()
	if st.rules == "" {
		st.rules = inFlightRules
	}
	s := &stage{t: t, app: startSlowApp(t), rules: writeFile(t, "rules.yaml", st.rules)}
	args := []string{"envoy", s.rules, "--envoy-version", env.envoy, "--listen", "0", "--admin", "127.0.0.1:0",
		"--upstream", s.app.addr,
		// The machine is busy, and an answer that went missing is not an admission.
		"--timeout", "10s", "--deny-without-answer"}
	for range max(st.services, 1) {
		h := startService(t, append([]string{"--rules", s.rules, "--backend", env.backend}, st.serve...)...)
		s.services = append(s.services, h)
		args = append(args, "--address", h.GRPC)
		if h.Services != "" {
			logs := h.Services
			if st.logs != nil {
				logs = st.logs(logs)
			}
			args = append(args, "--services", logs)
		}
	}
	config := command(t, nil, append(args, st.print...)...)
	if config.code != 0 {
		t.Fatalf("headgate envoy: %v", config)
	}
	text := config.out
	if st.routes != "" {
		text = substitute(t, text, printedRoute, "                        "+st.routes+"\n")
	}
	e := testenv.StartEnvoy(t, env.envoy, text, testenv.WithEnvoyArgs(st.envoy...))
	transport := &http.Transport{MaxIdleConnsPerHost: 300}
	t.Cleanup(transport.CloseIdleConnections)
	s.front = &front{Envoy: e, t: t, addr: strings.Replace(e.ListenerAddr("ingress"), "0.0.0.0", "127.0.0.1", 1),
		client: &http.Client{Timeout: time.Minute, Transport: transport}}
	return s
}

const printedRoute = "                        - match: {prefix: /}\n                          route: {cluster: " +
	"application}\n"

// An outcome is what became of requests that a client sent.
type outcome struct{ sent, admitted, refused, failed int }

// tally counts outcomes of many clients.
type tally struct {
	mu sync.Mutex
	outcome
	odd  []string // answers that are none of the three
	last string   // failure
}

// add counts an answer: admitted, refused by headgate, or failed on the way.
func (c *tally) add(a answer, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent++
	switch {
	case err != nil:
		c.failed++
		c.last = err.Error()
	case a.Rule() != "":
		c.refused++
		if a.Code != 503 || a.Body != "five are inside" || a.Header.Get("x-reason") != "crowded" ||
			a.Header.Get("retry-after") == "" {
			c.odd = append(c.odd, a.String())
		}
	case a.Code == 200 && strings.HasPrefix(a.Body, "hello"):
		c.admitted++
	case a.Code >= 500:
		c.failed++
		c.last = a.String()
	default:
		c.odd = append(c.odd, a.String())
	}
}

func (c *tally) get() outcome {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.outcome
}

// why returns what failed last.
func (c *tally) why() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last
}

// want checks that every request is accounted for.
func (c *tally) want(t *testing.T) outcome {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.admitted+c.refused+c.failed != c.sent || len(c.odd) > 0 {
		t.Errorf("of %d requests %d were admitted, %d refused and %d failed; these were neither: %q", c.sent, c.admitted,
			c.refused, c.failed, c.odd)
	}
	return c.outcome
}

// left asks, without taking anything, how many more requests to a path could
// be in flight.
func (s *stage) left(path string) int {
	s.t.Helper()
	question := `{"domain": "e2e", "descriptors": [{"hitsAddend": "0", "entries": [{"key": "method", "value": "GET"}, ` +
		`{"key": "path", "value": "` + path + `"}]}]}`
	client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Post("http://"+s.services[0].HTTP+"/json", "application/json", bytes.NewBufferString(question))
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	var a struct {
		Statuses []struct{ LimitRemaining int }
	}
	if err := json.NewDecoder(resp.Body).Decode(&a); err != nil || len(a.Statuses) != 1 {
		s.t.Fatalf("headgate's answer about %s: %v %v", path, err, a)
	}
	return a.Statuses[0].LimitRemaining
}

// wantLeft waits until n more requests could be in flight: far less long than
// leases live, which must not be what ends them.
func (s *stage) wantLeft(n int, path string) {
	s.t.Helper()
	testenv.Eventually(s.t, 20*time.Second, fmt.Sprintf("have %d places left", n), func() string {
		if got := s.left(path); got != n {
			return fmt.Sprintf("%d are left", got)
		}
		return ""
	})
}

// leases returns how often something happened to leases, all headgates
// together.
func (s *stage) leases(event string) int {
	n := 0.0
	for _, h := range s.services {
		if !h.Exited() {
			n += h.Metric("headgate_leases_total", `event="`+event+`"`)
		}
	}
	return int(n)
}

// wantAllBack checks that every lease that was granted was given back, by
// report of the request's end and not by expiring.
func (s *stage) wantAllBack(path string) {
	s.t.Helper()
	s.wantLeft(5, path)
	testenv.Eventually(s.t, 10*time.Second, "have as many leases given back as granted", func() string {
		granted, back := s.leases("acquired"), s.leases("released")+s.leases("abandoned")
		if granted != back {
			return fmt.Sprintf("%d granted, %d given back", granted, back)
		}
		return ""
	})
	if n := s.leases("expired") + s.leases("lost"); n != 0 {
		s.t.Errorf("%d leases were left to expire", n)
	}
}

// wantFive checks that exactly five requests fit: no lease is left over, and
// none is missing.
func (s *stage) wantFive() {
	s.t.Helper()
	s.app.Hold()
	var c tally
	var clients sync.WaitGroup
	for range 5 {
		clients.Go(func() { c.add(s.try("/five/hold")) })
	}
	testenv.Eventually(s.t, 20*time.Second, "have five requests inside", func() string {
		if n := s.app.Inside(); n != 5 {
			return fmt.Sprintf("%d are inside, and %+v: %s", n, c.get(), c.why())
		}
		return ""
	})
	c.add(s.try("/five/hold"))
	s.app.LetGo()
	clients.Wait()
	if got := c.want(s.t); got != (outcome{sent: 6, admitted: 5, refused: 1}) {
		s.t.Errorf("of six at once: %+v", got)
	}
	s.wantLeft(5, "/five/x")
}

// TestInFlightStorm: of 200 clients at once who all want in, and ask until they
// get in, never more than five are inside, and the five places do not stay
// empty.
func TestInFlightStorm(t *testing.T) {
	onInFlight(t, func(t *testing.T, env environment) {
		s := startStage(t, env, staging{})
		s.stormOfFive(200, "/five/work?ms=60")
	})
}

// stormOfFive is a storm on five places: never more than five are inside, the places do not
// stay empty, and every lease is given back.
func (s *stage) stormOfFive(clients int, path string) {
	s.t.Helper()
	s.storm(clients, path)
	if most := s.app.Most(); most != 5 {
		s.t.Errorf("%d were inside at once, want 5", most)
	}
	// It is nine tenths where nothing else runs. Who is refused waits for a tenth of a
	// second on average, and for the machine.
	busy := 100 * s.app.busy(5)
	s.t.Logf("the places were taken for %.0f %% of the time", busy)
	if busy < 25 {
		s.t.Errorf("the places were empty for %.0f %% of the time", 100-busy)
	}
	// By the call at a request's end, or by the access log a little later.
	s.wantAllBack("/five/x")
	if granted, back := s.leases("acquired"), s.leases("abandoned"); granted-back != clients {
		s.t.Errorf("%d leases were granted and %d of them taken back, want %d for those who got in", granted, back, clients)
	}
	s.wantFive()
}

// storm has clients ask for path at once, each until it is admitted.
func (s *stage) storm(clients int, path string) {
	s.t.Helper()
	var c tally
	var all sync.WaitGroup
	for range clients {
		all.Go(func() {
			for {
				a, err := s.try(path)
				c.add(a, err)
				if err != nil || a.Code == 200 {
					return
				}
				time.Sleep(time.Duration(50+rand.IntN(100)) * time.Millisecond)
			}
		})
	}
	all.Wait()
	got := c.want(s.t)
	if got.admitted != clients || got.failed != 0 || s.app.Seen() != clients {
		s.t.Errorf("%+v, and %d came through; want %d admitted, none failed", got, s.app.Seen(), clients)
	}
	s.t.Logf("%+v", got)
}

// TestInFlightBadEnds: a request's end is reported however it comes.
func TestInFlightBadEnds(t *testing.T) {
	onInFlight(t, func(t *testing.T, env environment) {
		s := startStage(t, env,
			staging{routes: `- {match: {prefix: /five/short/}, route: {cluster: application, timeout: 0.1s}}
                        - match: {prefix: /five/again/}
                          route:
                            cluster: application
                            retry_policy: {retry_on: 5xx, num_retries: 3, retry_back_off: {base_interval: 0.01s}}
                        - {match: {prefix: /}, route: {cluster: application}}`})
		for _, c := range []struct {
			name     string
			do       func() (answer, error)
			admitted bool // some may succeed
		}{
			{"the client leaves while it waits", func() (answer, error) {
				return s.leave("/five/hold", false)
			}, false},
			{"the client leaves in the middle of the response",
				func() (answer, error) { return s.leave("/five/drip", true) }, false},
			{"the application cuts the connection", func() (answer, error) { return s.try("/five/cut?ms=20") }, false},
			{"the application is too slow", func() (answer, error) { return s.try("/five/short/work?ms=60000") }, false},
			{"the application wants another try", func() (answer, error) {
				return s.try(fmt.Sprintf("/five/again/flaky?ms=10&n=2&id=%d", rand.Uint64()))
			}, true},
			{"the application never answers well", func() (answer, error) {
				return s.try(fmt.Sprintf("/five/again/flaky?ms=5&n=99&id=%d", rand.Uint64()))
			}, false},
		} {
			t.Run(strings.ReplaceAll(c.name, " ", "_"), func(t *testing.T) {
				s.t, s.front.t = t, t
				s.app.Hold()
				before := s.leases("acquired")
				var all tally
				var clients sync.WaitGroup
				for range 12 {
					clients.Go(func() {
						for range 3 {
							all.add(c.do())
						}
					})
				}
				clients.Wait()
				s.app.LetGo()
				s.wantAllBack("/five/x")
				got := all.want(t)
				granted := s.leases("acquired") - before
				// Not all retries succeed: Envoy makes but three at once.
				if in := got.admitted + got.failed; in < granted || (got.admitted > 0) != c.admitted {
					t.Errorf("%+v, and %d leases were granted", got, granted)
				}
				if crowd := s.app.Crowd(); crowd > 5 {
					t.Errorf("%d were inside at once", crowd)
				}
			})
		}
		s.t, s.front.t = t, t
		s.wantFive()
	})
}

// leave asks for path and leaves after a while, or when the response begins.
func (s *stage) leave(path string, begun bool) (answer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	sent := make(chan struct{}, 1)
	ctx = httptrace.WithClientTrace(ctx,
		&httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { sent <- struct{}{} }})
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.addr+path, nil)
	if err != nil {
		return answer{}, err
	}
	if !begun {
		go func() {
			select {
			case <-sent:
				time.Sleep(time.Duration(rand.IntN(30)) * time.Millisecond)
				cancel()
			case <-ctx.Done():
			}
		}()
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	if begun && resp.StatusCode == http.StatusOK {
		cancel()
		return answer{}, errors.New("left")
	}
	body, err := io.ReadAll(resp.Body)
	return answer{Code: resp.StatusCode, Header: resp.Header, Body: string(body)}, err
}
