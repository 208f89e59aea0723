package e2e

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// The rule that everybody writes first: five requests a minute for each client, behind an Envoy that has what
// `headgate envoy` prints. Clients have addresses of their own in 127.0.0.0/8.

const perClientRules = `
domain: e2e
paths: any_case
resources:
- method: POST
  path: /login
  by: [remote_address]
  except: {network: [127.0.9.0/24, "2001:db8::/32"]}
  rate_limit: {unit: hour, requests_per_unit: 5}
- path: /users/{id}
  by: [header.x-api-key, pathParams.id]
  rate_limit: {unit: hour, requests_per_unit: 2}
- path: /claim
  by: jwt.sub
  max_keys: 3
  rate_limit: {unit: hour, requests_per_unit: 1}
`

// loginSpellings are what servers may take for /login.
var loginSpellings = []string{"/login", "/login/", "/LOGIN", "/login;a", "/login%2f", "//login", "/x/../login",
	"/Login?x=1", "/%6cogin", "/./login", "/login;a=b/", "/LOGIN%2F", "/login%252f", "/x/%2e%2e/login",
	"/login%3Ba", "/login%00"}

// asClaim stands for the filter that reads tokens: the header x-sub is the claim.
const asClaim = `                  - name: claims
                    typed_config:
                      '@type': type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua
                      default_source_code:
                        inline_string: |
                          function envoy_on_request(handle)
                            local sub = handle:headers():get("x-sub")
                            if sub then
                              local metadata = handle:streamInfo():dynamicMetadata()
                              metadata:set("envoy.filters.http.jwt_authn", "payload", {sub = sub})
                            end
                          end
`

// startPerClient runs an Envoy that has what headgate prints. raw: it leaves paths as they are.
func startPerClient(t *testing.T, env environment, raw bool) *front {
	t.Helper()
	rules := writeFile(t, "rules.yaml", perClientRules)
	s := startService(t, "--rules", rules)
	config := command(t, nil, "envoy", rules, "--envoy-version", env.envoy, "--listen", "0", "--admin", "127.0.0.1:0",
		"--upstream", startApplication(t), "--timeout", "10s", "--deny-without-answer", "--address", s.GRPC)
	if config.code != 0 {
		t.Fatalf("headgate envoy: %v", config)
	}
	const filters = "                http_filters:\n"
	text := substitute(t, config.out, filters, filters+asClaim)
	if raw {
		text = substitute(t, text, "normalize_path: true", "normalize_path: false", "merge_slashes: true",
			"merge_slashes: false")
	}
	return newFront(t, env.envoy, text)
}

// send sends a request as it is, from an address of this machine, and returns the status of its answer.
func (f *front) send(from, method, target string, headers ...string) int {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), 20*time.Second)
	defer cancel()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	conn, err := dialer.DialContext(ctx, "tcp", f.addr)
	if err != nil {
		f.t.Fatal(err)
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	_ = conn.SetDeadline(deadline)
	fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: e2e\r\nConnection: close\r\nContent-Length: 0\r\n", method, target)
	for i := 0; i+1 < len(headers); i += 2 {
		fmt.Fprintf(conn, "%s: %s\r\n", headers[i], headers[i+1])
	}
	fmt.Fprint(conn, "\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		f.t.Fatalf("%s %s: %v", method, target, err)
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

// TestEachClientHasALimitOfItsOwn: by no spelling of the path, and by no header, a client has more than five requests
// to /login, or takes some of another's.
func TestEachClientHasALimitOfItsOwn(t *testing.T) {
	onEnvoys(t, func(t *testing.T, env environment) {
		for _, raw := range []bool{false, true} {
			t.Run(fmt.Sprintf("raw paths %v", raw), func(t *testing.T) {
				f := startPerClient(t, env, raw)
				for n := range len(loginSpellings) {
					f.wantFive(t, fmt.Sprintf("127.0.1.%d", 1+n), n)
				}
				f.wantExempt(t)
			})
		}
	})
}

// wantFive has a client send five requests in different spellings, of which each passes, and more.
func (f *front) wantFive(t *testing.T, client string, first int) {
	t.Helper()
	passed := 0
	for i := range 2 * len(loginSpellings) {
		path := loginSpellings[(first+i)%len(loginSpellings)]
		switch code := f.send(client, "POST", path, "x-forwarded-for", fmt.Sprintf("127.0.9.%d", i)); code {
		case http.StatusOK:
			if passed++; passed > 5 {
				t.Errorf("request %d of %s, to %s, passes", i+1, client, path)
			}
		case http.StatusTooManyRequests:
		case http.StatusBadRequest: // Envoy itself refuses %00 where it normalizes paths
		default:
			t.Errorf("%s: %d", path, code)
		}
	}
	if passed != 5 {
		t.Errorf("%d requests of %s pass, want 5", passed, client)
	}
	if code := f.send(client, "GET", "/login"); code != http.StatusOK {
		t.Errorf("another method: %d", code)
	}
}

// wantExempt has clients of the exempt network, and of one beside it, send requests.
func (f *front) wantExempt(t *testing.T) {
	t.Helper()
	for client, want := range map[string]int{"127.0.9.1": 200, "127.0.9.255": 200, "127.0.8.255": 429, "127.0.10.0": 429} {
		last := 0
		for range 12 {
			last = f.send(client, "POST", "/login", "x-forwarded-for", "127.0.9.1", "x-envoy-external-address", "127.0.9.1")
		}
		if last != want {
			t.Errorf("the last of 12 requests of %s is answered %d, want %d", client, last, want)
		}
	}
}

// TestLimitsByOtherValues: a header, a part of the path and a claim. Requests without them count together, and so do
// values beyond max_keys.
func TestLimitsByOtherValues(t *testing.T) {
	onEnvoys(t, func(t *testing.T, env environment) {
		f := startPerClient(t, env, true)
		for _, c := range []struct {
			path, header, value string
			want                string
		}{
			{"/users/1", "x-api-key", "a", "200 200 429"},
			{"/users/%31", "x-api-key", "a", "429"},
			{"/users/2", "x-api-key", "a", "200 200 429"},
			{"/users/1", "x-api-key", "b", "200 200 429"},
			{"/users/1", "x-other", "b", "200 200 429"}, // no key: together
			{"/users/1?x", "x-api-key", "", "429"},
			{"/users/1;x", "x-api-key", "a", "200 200 429"}, // all odd spellings together
			{"/users/1;y", "x-api-key", "a", "429"},
			{"/users/2;y", "x-api-key", "a", "429"},
			{"/claim", "x-sub", "alice", "200 429"},
			{"/claim", "x-sub", "bob", "200 429"},
			{"/claim", "x-other", "", "200 429"},
			{"/claim", "x-sub", "carol", "200 429"}, // with all that follow
			{"/claim", "x-sub", "dave", "429"},
			{"/claim", "x-sub", "alice", "429"},
		} {
			var got []string
			for range strings.Fields(c.want) {
				got = append(got, fmt.Sprint(f.send("127.0.0.1", "GET", c.path, c.header, c.value)))
			}
			if strings.Join(got, " ") != c.want {
				t.Errorf("%s with %s: %s: %v, want %s", c.path, c.header, c.value, got, c.want)
			}
		}
	})
}

// TestDescriptorsByNetwork: a rule of descriptors that leads from a route to the client's address, without the exempt
// networks, and a stricter one for a network.
func TestDescriptorsByNetwork(t *testing.T) {
	onEnvoys(t, func(t *testing.T, env environment) {
		s := startService(t, "--rules", writeFile(t, "rules.yaml", `
domain: e2e
descriptors:
- key: remote_address
  except: {network: 127.0.9.0/24}
  rate_limit: {unit: hour, requests_per_unit: 5}
- key: remote_address
  network: [127.0.7.0/24, 127.0.8.0/22]
  rate_limit: {unit: hour, requests_per_unit: 2}
- {key: remote_address, network: 127.0.8.128/25, rate_limit: {unlimited: true}}
`))
		f := startFront(t, env.envoy, setup{Services: []string{s.GRPC},
			Routes: []route{{"/limited", "[{actions: [{remote_address: {}}]}]"}}})
		for client, want := range map[string]int{"127.0.0.1": 5, "127.0.0.2": 5, "127.0.7.1": 2, "127.0.7.2": 2,
			"127.0.8.1": 2, "127.0.8.200": 12, "127.0.9.1": 2, "127.0.11.1": 2, "127.0.12.1": 5} {
			passed := 0
			for range 12 {
				if f.send(client, "GET", "/limited") == http.StatusOK {
					passed++
				}
			}
			if passed != want {
				t.Errorf("%d requests of %s pass, want %d", passed, client, want)
			}
		}
	})
}
