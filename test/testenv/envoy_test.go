package testenv

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

const helloBootstrap = `
admin: {address: {socket_address: {address: 127.0.0.1, port_value: %d}}}
static_resources:
  listeners:
  - name: front
    address: {socket_address: {address: 127.0.0.1, port_value: 0}}
    filter_chains:
    - filters:
      - name: hcm
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: front
          http_filters:
          - name: envoy.filters.http.router
            typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}
          route_config:
            virtual_hosts:
            - name: all
              domains: ["*"]
              routes:
              - match: {prefix: /}
                direct_response: {status: 200, body: {inline_string: hello}}
`

func TestEnvoyStartsAndEndsWithTheTest(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"1.40.0", "1.38.3", "1.36.4"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			Require(t, "envoy-"+version)
			start := time.Now()
			e := StartEnvoy(t, version, fmt.Sprintf(helloBootstrap, 0))
			t.Logf("Envoy took %v", time.Since(start).Round(time.Millisecond))
			// A second one beside it, on a port of ours.
			port := FreePort(t)
			other := StartEnvoy(t, version, fmt.Sprintf(helloBootstrap, port), WithConcurrency(2),
				WithEnvoyArgs("--log-level", "info"))
			if want := fmt.Sprintf("127.0.0.1:%d", port); other.AdminAddr != want {
				t.Errorf("the admin address is %s, want %s", other.AdminAddr, want)
			}
			if info := e.Admin("/server_info"); !strings.Contains(info, "/"+version+"/") {
				t.Errorf("this is not Envoy %s: %s", version, info)
			}
			client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
			for _, envoy := range []*Envoy{e, other} {
				resp, err := client.Get("http://" + envoy.ListenerAddr("front"))
				if err != nil {
					t.Fatal(err)
				}
				body, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				if err != nil || string(body) != "hello" {
					t.Errorf("Envoy says %q (%v)", body, err)
				}
			}
			other.Kill()
			e.Stop()
			if e.Running() || other.Running() {
				t.Error("an Envoy still runs")
			}
			if !strings.Contains(other.Log(), "all dependencies initialized") {
				t.Errorf("the log lacks a line of the start: %s", other.Log())
			}
		})
	}
}

func TestEnvoyThatDoesNotStart(t *testing.T) {
	t.Parallel()
	Require(t, Envoy1400)
	for _, c := range []struct{ name, bootstrap, want string }{
		{"no admin", "static_resources: {}", "no admin address"},
		{"no YAML", "admin: [", "no YAML"},
		{"a field Envoy does not know", fmt.Sprintf(helloBootstrap, 0) + "nonsense: 1\n", "ended by itself"},
	} {
		t.Run(c.name, func(t *testing.T) {
			tb := pretend(t, func(tb TB) { StartEnvoy(tb, "1.40.0", c.bootstrap) })
			mustContain(t, "the failure", tb.fatal, []string{c.want})
		})
	}
}
