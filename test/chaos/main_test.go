//go:build chaos

// Package chaos takes the backend away from three headgate processes that are
// under load, in many ways, and looks at what their callers see: no call is
// late or ends in an error, limits hold, and the counters decide again as soon
// as the backend is back.
//
// The processes share this machine's clock. One that is wrong would change
// nothing: decisions are by the clock of the Redis server.
//
// The tests need the build tag chaos and a few minutes.
package chaos

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"

	"github.com/headgate-rls/headgate/internal/testenv"
)

// idleSocket is the environment variable that makes this program a server that
// does nothing, on the socket it names.
const idleSocket = "CHAOS_IDLE_SOCKET"

// program is the path of the headgate under test.
var program string

func TestMain(m *testing.M) {
	var code int
	var err error
	if socket := os.Getenv(idleSocket); socket != "" {
		err = serveNothing(socket)
	} else {
		code, err = buildAndRun(m)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		code = 1
	}
	os.Exit(code)
}

func buildAndRun(m *testing.M) (code int, err error) {
	dir, err := os.MkdirTemp("", "headgate-chaos-")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	sources, err := filepath.Abs("../..")
	if err != nil {
		return 0, err
	}
	if err := testenv.DependOnSources(sources); err != nil {
		return 0, err
	}
	program = filepath.Join(dir, "headgate")
	// Built as it is shipped, and without the race detector, under which times
	// mean little.
	build := exec.Command("go", "build", "-trimpath", "-o", program, "./cmd/headgate")
	build.Dir = sources
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("build headgate: %w\n%s", err, out)
	}
	return m.Run(), nil
}

// nothing answers every call at once. What a client sees of it is the noise of
// this machine: two processes that have to be woken, and gRPC.
type nothing struct {
	rls.UnimplementedRateLimitServiceServer
}

func (nothing) ShouldRateLimit(context.Context, *rls.RateLimitRequest) (*rls.RateLimitResponse, error) {
	return &rls.RateLimitResponse{OverallCode: rls.RateLimitResponse_OK}, nil
}

func serveNothing(socket string) error {
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	rls.RegisterRateLimitServiceServer(server, nothing{})
	return server.Serve(listener)
}

// startNothing runs a server that does nothing as a process of its own, as
// headgate is one, and returns its address.
func startNothing(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "idle-") // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := filepath.Join(dir, "s")
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), idleSocket+"="+socket)
	startProcess(t, cmd)
	eventually(t, 10*time.Second, "start the server that does nothing", func() string {
		conn, err := net.Dial("unix", socket)
		if err != nil {
			return err.Error()
		}
		conn.Close()
		return ""
	})
	return "unix:" + socket
}

// eventually polls check until it returns nothing to complain about. What it
// returned last is the failure when the time is over.
func eventually(t *testing.T, limit time.Duration, what string, check func() (wrong string)) {
	t.Helper()
	deadline := time.Now().Add(limit)
	for {
		wrong := check()
		if wrong == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v; last seen: %s", what, limit, wrong)
		}
		time.Sleep(20 * time.Millisecond)
	}
}
