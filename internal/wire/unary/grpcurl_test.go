package unary

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/test/testenv"
)

// TestGRPCurl uses github.com/fullstorydev/grpcurl as one does from a shell,
// against the whole program: its example rules give each client five requests a
// minute.
func TestGRPCurl(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and runs headgate")
	}
	tool := testenv.UseClient(t, testenv.GRPCurl)
	root := filepath.Join("..", "..", "..")
	if err := testenv.DependOnSources(root); err != nil {
		t.Fatal(err)
	}
	program, err := testenv.BuildHeadgate(root, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, transport := range []string{"unary", "grpc"} {
		t.Run(transport, func(t *testing.T) {
			h := testenv.StartHeadgate(t, program, "--example", "--rule-header", "x-headgate-rule", "--transport", transport)
			reflection := h.GRPC
			if transport == "unary" {
				reflection = h.Services
			}
			c := &curl{t: t, tool: tool, dir: t.TempDir()}
			c.explore(h, reflection)
			c.limit(h)
			c.fail(h)
		})
	}
}

// A curl runs grpcurl.
type curl struct {
	t    *testing.T
	tool string
	dir  string // with descriptors of services
}

const rlsName, healthName = "envoy.service.ratelimit.v3.RateLimitService", "grpc.health.v1.Health"

// protos is the file with the descriptors of a service.
func (c *curl) protos(service string) string { return filepath.Join(c.dir, service) }

// run returns what grpcurl prints.
func (c *curl) run(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, c.tool, append([]string{"-plaintext", "-max-time", "30"},
		args...)...).CombinedOutput()
	return string(out), err
}

// want wants grpcurl to succeed and to print some texts.
func (c *curl) want(texts []string, args ...string) {
	c.t.Helper()
	out, err := c.run(args...)
	if err != nil {
		c.t.Fatalf("grpcurl %q: %v\n%s", args, err, out)
	}
	for _, text := range texts {
		if !strings.Contains(out, text) {
			c.t.Errorf("grpcurl %q does not print %q, but:\n%s", args, text, out)
		}
	}
}

// explore asks what services there are and keeps their descriptors, by
// reflection.
func (c *curl) explore(h *testenv.Headgate, reflection string) {
	c.t.Helper()
	// A server lists what is on its own port, but can describe the others too.
	listed := []string{healthName}
	if reflection == h.GRPC {
		listed = append(listed, rlsName)
	}
	c.want(listed, reflection, "list")
	c.want([]string{"rpc ShouldRateLimit"}, "-protoset-out", c.protos(rlsName), reflection, "describe", rlsName)
	c.want([]string{"rpc Check"}, "-protoset-out", c.protos(healthName), reflection, "describe", healthName)
	check := []string{"-protoset", c.protos(healthName), "-d", `{"service":"ratelimit"}`, h.GRPC, healthName + "/Check"}
	c.want([]string{`"status": "SERVING"`}, check...)
}

// limit uses a limit of five up, with things that a shell can add to a call.
func (c *curl) limit(h *testenv.Headgate) {
	c.t.Helper()
	insideMinute()
	const bob = `{"domain":"example","descriptors":[{"entries":[{"key":"client","value":"bob"}]}]}`
	ask := []string{"-protoset", c.protos(rlsName), "-H", "x-request-id: 1", "-H", "trace-bin: AAEC", "-d", bob}
	for range 5 {
		c.want([]string{`"overallCode": "OK"`, `"requestsPerUnit": 5`}, append(ask, h.GRPC, rlsName+"/ShouldRateLimit")...)
	}
	c.want([]string{`"overallCode": "OVER_LIMIT"`, "x-headgate-rule"},
		append(ask, "-v", h.GRPC, rlsName+"/ShouldRateLimit")...)
}

// fail makes calls that cannot succeed.
func (c *curl) fail(h *testenv.Headgate) {
	c.t.Helper()
	for _, f := range []struct {
		text string
		args []string
	}{
		{"InvalidArgument", []string{"-protoset", c.protos(rlsName), "-d", `{}`, h.GRPC, rlsName + "/ShouldRateLimit"}},
		{"NotFound", []string{"-protoset", c.protos(healthName), "-d", `{"service":"other"}`, h.GRPC, healthName + "/Check"}},
	} {
		if out, err := c.run(f.args...); err == nil || !strings.Contains(out, f.text) {
			c.t.Errorf("grpcurl %q ends with %v, want %s:\n%s", f.args, err, f.text, out)
		}
	}
	if h.Services != "" { // the other transport has no reflection on this port
		if out, err := c.run(h.GRPC, "list"); err == nil || !strings.Contains(out, "does not support the reflection API") {
			c.t.Errorf("grpcurl list on the fast port ends with %v:\n%s", err, out)
		}
	}
}

// insideMinute waits if the clock's minute, and with it fixed windows of that
// length, would end during a test.
func insideMinute() {
	if left := time.Minute - time.Duration(time.Now().UnixNano())%time.Minute; left < 10*time.Second {
		time.Sleep(left)
	}
}
