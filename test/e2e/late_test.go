package e2e

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	rlsconf "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"

	"github.com/headgate-rls/headgate/test/controlplane"
	"github.com/headgate-rls/headgate/test/testenv"
)

// TestNoPortOpensBeforeTheRules: with --xds-wait connections are refused at once until the control plane has sent
// rules. On a port that is open and not served, Envoy's calls would wait for their deadlines.
func TestNoPortOpensBeforeTheRules(t *testing.T) {
	t.Parallel()
	plane := controlplane.Start(t)
	local := func() string { return fmt.Sprintf("127.0.0.1:%d", testenv.FreePort(t)) }
	grpc, services, page := local(), local(), local()
	testenv.StartProgram(t, program, nil, "serve", "--xds", plane.Addr, "--xds-wait", "1m", "--grpc", grpc, "--services",
		services, "--http", page, "--debug", "")
	testenv.Eventually(t, 20*time.Second, "wait for rules", func() string {
		resp, err := http.Get("http://" + page + "/readyz")
		if err != nil {
			return err.Error()
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		if resp.StatusCode != http.StatusServiceUnavailable {
			t.Fatalf("/readyz: %s %s", resp.Status, body)
		}
		return ""
	})
	for _, address := range []string{grpc, services} {
		if conn, err := net.Dial("tcp", address); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("%s takes %v before there are rules: %v", address, conn, err)
		}
	}
	plane.Send(controlplane.Config("pay", controlplane.Rule("k", "", 0, rlsconf.RateLimitUnit_YEAR)))
	testenv.Eventually(t, 20*time.Second, "open the ports with the first rules", func() string {
		conn, err := net.Dial("tcp", services)
		if err != nil {
			return err.Error()
		}
		_ = conn.Close()
		_, out, errOut := testenv.RunProgram(t, program, nil, "ask", "--addr", grpc, "pay", "k=v")
		if !strings.Contains(out, "OVER_LIMIT") {
			return out + errOut
		}
		return ""
	})
}
