package server

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	rlsconf "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/headgate-rls/headgate/test/controlplane"
	"github.com/headgate-rls/headgate/test/serving"
	"github.com/headgate-rls/headgate/test/testenv"
)

// limitsOf returns a domain in which k admits that many requests a year.
func limitsOf(domain string, most uint32) *rlsconf.RateLimitConfig {
	return controlplane.Config(domain, controlplane.Rule("k", "", most, rlsconf.RateLimitUnit_YEAR))
}

// ask asks about one request of the domain.
func ask(r *serving.Server, domain string) (*rls.RateLimitResponse, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	req := exampleRequest()
	req.Domain = domain
	req.Descriptors[0].Entries[0].Key = "k"
	return rls.NewRateLimitServiceClient(r.Dial(r.GRPC)).ShouldRateLimit(ctx, req)
}

// Without rules calls fail, so that Envoy's failure mode decides, and the service is not
// ready, but healthy; with the first rules it decides.
func TestXDSDecidesWithTheFirstRules(t *testing.T) {
	onTransports(t, func(t *testing.T, transport []string) {
		plane := controlplane.Start(t)
		r := startServe(t, append(transport, "--xds", plane.Addr, "--xds-wait", "0s")...)
		if _, err := ask(r, "pay"); status.Code(err) != codes.Unavailable ||
			!strings.Contains(err.Error(), "no rules have come yet") {
			t.Errorf("before the rules: %v", err)
		}
		if code, _ := r.Get(r.HTTP, "/healthcheck"); code != 200 {
			t.Errorf("/healthcheck: %d", code)
		}
		if code, body := r.Get(r.HTTP, "/readyz"); code != 503 || !strings.Contains(body, "none have come") {
			t.Errorf("/readyz: %d %s", code, body)
		}
		resp, err := http.Post("http://"+r.HTTP+"/json", "application/json",
			strings.NewReader(`{"domain":"pay","descriptors":[{"entries":[{"key":"k","value":"v"}]}]}`))
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusServiceUnavailable {
			t.Errorf("/json: %s", resp.Status)
		}
		plane.Send(limitsOf("pay", 0), limitsOf("shop", 5))
		testenv.Eventually(t, 20*time.Second, "become ready", func() string {
			if code, body := r.Get(r.HTTP, "/readyz"); code != 200 {
				return body
			}
			return ""
		})
		settles(r, "follow the control plane", true, false)
		if code, body := r.Get(r.HTTP, "/readyz?verbose"); code != 200 || !strings.Contains(body, "rules: ok\n") {
			t.Errorf("/readyz: %d %s", code, body)
		}
		plane.Send(limitsOf("pay", 5), limitsOf("shop", 0), controlplane.Config("bad", controlplane.Rule("k", "", 1, 99)))
		settles(r, "follow the good domains", false, true)
		says(r, "/rlconfig", "# source: xds\n", "# connected: yes\n", `# rejected: "bad", not limited`, "unit number 99",
			"pay.k: unit=YEAR requests_per_unit=5")
		says(r, "/metrics", "headgate_xds_connected 1\n", "headgate_xds_domains 2\n",
			"headgate_xds_rejected_domains 1\n", "headgate_xds_accepted_updates_total 1\n",
			"headgate_xds_rejected_updates_total 1\n", "headgate_rules_last_load_successful 0\n", "headgate_rules 2\n")
		plane.Stop()
		testenv.Eventually(t, 20*time.Second, "tell of the lost connection", func() string {
			if _, body := r.Get(r.HTTP, "/readyz?verbose"); !strings.Contains(body, "the control plane is not connected") {
				return body
			}
			return ""
		})
		if code, _ := r.Get(r.HTTP, "/readyz"); code != 200 || !over(r, "shop") {
			t.Errorf("without the control plane: /readyz %d", code)
		}
	})
}

// TestXDSRemovesADomainInUse: the control plane is believed, and a log line and a metric say that requests are not
// limited any more.
func TestXDSRemovesADomainInUse(t *testing.T) {
	plane := controlplane.Start(t)
	plane.Send(limitsOf("pay", 0), limitsOf("shop", 0))
	r := startServe(t, "--xds", plane.Addr, "--xds-wait", "20s")
	const metric = "headgate_xds_removed_domains_in_use_total "
	if !over(r, "pay") {
		t.Fatal("the rules are not in force")
	}
	plane.Send(limitsOf("pay", 0))
	says(r, "/metrics", "headgate_xds_domains 1\n", metric+"0\n") // nobody has asked about the domain shop
	plane.Send(limitsOf("shop", 0))
	says(r, "/metrics", "headgate_xds_domains 1\n", metric+"1\n")
	if over(r, "pay") || !over(r, "shop") {
		t.Error("the control plane is not believed")
	}
	if log := r.Log.String(); !strings.Contains(log, `level=WARN msg="the control plane has removed domains in use: `+
		`their requests are not limited any more" removed=1 domains=pay`) {
		t.Errorf("the log:\n%s", log)
	}
}

// says waits until a page of the debug port has all of these texts: rules are in force before it has them.
func says(r *serving.Server, page string, texts ...string) {
	r.Helper()
	testenv.Eventually(r, 20*time.Second, "say so at "+page, func() string {
		_, body := r.Get(r.Debug, page)
		for _, text := range texts {
			if !strings.Contains(body, text) {
				return fmt.Sprintf("no %q in\n%s", text, body)
			}
		}
		return ""
	})
}

// The start waits for the first rules: nobody is served without them.
func TestXDSStartWaits(t *testing.T) {
	plane := controlplane.Start(t)
	time.AfterFunc(300*time.Millisecond, func() { plane.Send(limitsOf("pay", 0)) })
	r := startServe(t, "--xds", plane.Addr, "--xds-wait", "20s")
	if !over(r, "pay") {
		t.Error("the rules are not in force")
	}
}

// If no rules arrive within the wait, the service starts and logs that. The setting decides
// whether it is healthy before it has rules.
func TestXDSStartServesAfterTheWait(t *testing.T) {
	plane := controlplane.Start(t)
	r := startServe(t, "--xds", plane.Addr, "--xds-wait", "50ms", "--xds-health", "rules")
	if !strings.Contains(r.Log.String(), "no rules received") {
		t.Errorf("log:\n%s", r.Log)
	}
	if code, body := r.Get(r.HTTP, "/healthcheck"); code != 500 || !strings.Contains(body, "waiting for rules") {
		t.Errorf("/healthcheck: %d %s", code, body)
	}
	plane.Send(limitsOf("pay", 0))
	testenv.Eventually(t, 20*time.Second, "become healthy", func() string {
		if code, body := r.Get(r.HTTP, "/healthcheck"); code != 200 {
			return body
		}
		return ""
	})
	if !over(r, "pay") {
		t.Error("the rules are not in force")
	}
}

// The settings of the connection reach it, and a service that starts while the control plane is away has the rules of
// its cache in force.
func TestXDSConnectionAndCache(t *testing.T) {
	certs := testenv.TestCerts(t)
	pair, err := tls.LoadX509KeyPair(certs.Server.CertFile, certs.Server.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	tokens := make(chan []string, 100)
	plane := controlplane.Start(t, grpc.Creds(credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS13,
		Certificates: []tls.Certificate{pair}, ClientCAs: certs.Pool(), ClientAuth: tls.RequireAndVerifyClientCert})),
		grpc.StreamInterceptor(func(srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			headers, _ := metadata.FromIncomingContext(s.Context())
			tokens <- headers.Get("x-token")
			return next(srv, s)
		}))
	plane.Node = "gateway"
	plane.Send(limitsOf("pay", 0))
	flags := []string{"--xds", plane.Addr, "--xds-node-id", "gateway", "--xds-node-metadata", "zone=a", "--xds-header",
		"x-token:sesame", "--xds-cache", filepath.Join(t.TempDir(), "rules"), "--xds-tls", "--xds-tls-ca", certs.CAFile,
		"--xds-tls-cert", certs.Client.CertFile, "--xds-tls-key", certs.Client.KeyFile}
	name := func(name string) []string { return append(slices.Clip(flags), "--xds-tls-server-name", name) }
	stranger := startServe(t, append(name("elsewhere"), "--xds-wait", "50ms")...)
	testenv.Eventually(t, 20*time.Second, "refuse a control plane of another name", func() string {
		if log := stranger.Log.String(); !strings.Contains(log, "certificate is valid for localhost, not elsewhere") {
			return log
		}
		return ""
	})
	r := startServe(t, append(name("localhost"), "--xds-wait", "20s")...)
	if !over(r, "pay") {
		t.Error("the rules are not in force")
	}
	if token := <-tokens; !slices.Equal(token, []string{"sesame"}) {
		t.Errorf("the control plane gets the header %q", token)
	}
	if node := plane.Requests()[0].Node; node.Id != "gateway" || node.Metadata.Fields["zone"].GetStringValue() != "a" {
		t.Errorf("the control plane knows the node as %v", node)
	}
	r.Stop()
	r.Ends(20 * time.Second)
	plane.Stop()
	if again := startServe(t, name("localhost")...); !over(again, "pay") {
		t.Errorf("without the control plane the rules of the cache are not in force: %s", again.Log)
	}
}

// An overlay gives xDS rules what their source cannot say, is followed as its file
// changes, and stays as it is while the file has errors.
func TestXDSOverlayIsFollowed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "overlay.yaml")
	put(t, file, "overlay:\n- {domain: 'p*', rule: k, algorithm: sliding_window, unit_multiplier: 2}\n")
	plane := controlplane.Start(t)
	plane.Send(limitsOf("pay", 4), limitsOf("shop", 4))
	r := startServe(t, "--xds", plane.Addr, "--xds-overlay", file)
	has := func(want string) {
		t.Helper()
		testenv.Eventually(t, 20*time.Second, "say "+want, func() string {
			if _, config := r.Get(r.Debug, "/rlconfig"); !strings.Contains(config, want) {
				return config + r.Log.String()
			}
			return ""
		})
	}
	has("pay.k: algorithm=sliding_window limit=4 window=17520h")
	has("shop.k: unit=YEAR requests_per_unit=4,")
	put(t, file, "overlay:\n- {domain: '*', rule: k, window: 15m, on_backend_error: deny}\n")
	has("pay.k: unit=MINUTE requests_per_unit=4 unit_multiplier=15, shadow_mode: false, on_backend_error: deny")
	put(t, file, "overlay:\n- {domain: '*', rule: k, windows: 15m}\n")
	testenv.Eventually(t, 20*time.Second, "refuse the bad overlay", func() string {
		if log := r.Log.String(); !strings.Contains(log, "overlay.yaml:2:26") || !strings.Contains(log, "window") {
			return log
		}
		return ""
	})
	has("on_backend_error: deny")
	says(r, "/metrics", "headgate_rules_last_load_successful 0\n")
	if _, text := r.Get(r.HTTP, "/readyz?verbose"); !strings.Contains(text,
		"rules: the files of the overlay have errors; the old overlay is in force\n") {
		t.Errorf("/readyz?verbose:\n%s", text)
	}
	if text := startError(t, "--xds", plane.Addr, "--xds-overlay", file); !strings.Contains(text, file+":2:26") {
		t.Errorf("a start with a bad overlay: %s", text)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	has("on_backend_error: deny")
}

// TestXDSBounds: messages above --xds-max-message change nothing, and domains that are not sent any more are kept for
// --xds-removal-grace.
func TestXDSBounds(t *testing.T) {
	plane := controlplane.Start(t)
	plane.Send(limitsOf("pay", 0), limitsOf("shop", 0))
	r := startServe(t, "--xds", plane.Addr, "--xds-max-message", fmt.Sprint(4<<20), "--xds-removal-grace", "1h")
	settles(r, "follow the control plane", true, true)
	plane.Send(limitsOf("pay", 0))
	says(r, "/rlconfig", `# kept although not sent: "shop"`)
	plane.Send(limitsOf("pay", 5), limitsOf(strings.Repeat("x", 5<<20), 0))
	testenv.Eventually(t, 20*time.Second, "refuse the message", func() string {
		if log := r.Log.String(); !strings.Contains(log, "larger than max") {
			return log
		}
		return ""
	})
	if !over(r, "pay") || !over(r, "shop") {
		t.Error("the rules of before are not in force")
	}
}

// A cost that is reported after the response takes what is left: then the next request is
// refused, as with the reference service.
func TestXDSCostsKnownAfterwardsAreCounted(t *testing.T) {
	plane := controlplane.Start(t)
	plane.Send(limitsOf("llm", 21))
	r := startServe(t, "--xds", plane.Addr)
	client := rls.NewRateLimitServiceClient(r.Dial(r.GRPC))
	spend := func(hits uint64) rls.RateLimitResponse_Code {
		t.Helper()
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		req := exampleRequest()
		req.Domain, req.Descriptors[0].Entries[0].Key = "llm", "k"
		req.Descriptors[0].HitsAddend = wrapperspb.UInt64(hits)
		resp, err := client.ShouldRateLimit(ctx, req)
		if err != nil {
			t.Fatal(err)
		}
		return resp.OverallCode
	}
	var codes []string
	for range 4 {
		codes = append(codes, spend(0).String())
		spend(10) // Envoy does not look at the answer
	}
	if got := strings.Join(codes, " "); got != "OK OK OK OVER_LIMIT" {
		t.Errorf("requests: %s", got)
	}
}
