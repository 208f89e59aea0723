package testenv

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
)

// envIdle makes a test program a server that does nothing, on the socket it
// names.
const envIdle = "HEADGATE_TESTENV_IDLE"

// idle answers every call at once. What a client sees of it is the noise of
// this machine: two processes that have to be woken, and gRPC.
type idle struct {
	rls.UnimplementedRateLimitServiceServer
}

func (idle) ShouldRateLimit(context.Context, *rls.RateLimitRequest) (*rls.RateLimitResponse, error) {
	return &rls.RateLimitResponse{OverallCode: rls.RateLimitResponse_OK}, nil
}

// serveIdle is for the beginning of Main: it returns false at once, except in the
// process that StartIdle starts, where it serves until the end.
func serveIdle() (served bool, err error) {
	socket := os.Getenv(envIdle)
	if socket == "" {
		return false, nil
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return true, err
	}
	server := grpc.NewServer()
	rls.RegisterRateLimitServiceServer(server, idle{})
	return true, server.Serve(listener)
}

// StartIdle starts a RateLimitService that does nothing, as a process of its
// own, as headgate is one, and returns its address. A client of both shows how
// much of what it sees is this machine's doing. TestMain must call Main.
func StartIdle(tb TB) string {
	tb.Helper()
	self, err := os.Executable()
	if err != nil {
		tb.Fatalf("testenv: %v", err)
	}
	socket := filepath.Join(socketDir(tb), "idle.sock")
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), envIdle+"="+socket)
	log := filepath.Join(tb.TempDir(), "idle.log")
	proc, err := startCommand("the server that does nothing", log, cmd)
	if err != nil {
		tb.Fatalf("testenv: %v", err)
	}
	tb.Cleanup(func() {
		if err := proc.kill(); err != nil {
			tb.Errorf("testenv: %v", err)
		}
	})
	err = waitFor(10*time.Second, "start "+proc.name, func() (bool, string, error) {
		if proc.exited() {
			return false, "", errors.New("it ended by itself; its log ends with:\n" + tail(log, 10))
		}
		conn, err := net.Dial("unix", socket)
		if err != nil {
			return false, err.Error(), nil
		}
		_ = conn.Close()
		return true, "", nil
	})
	if err != nil {
		tb.Fatalf("testenv: %v", err)
	}
	return "unix:" + socket
}
