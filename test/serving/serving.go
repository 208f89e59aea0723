// Package serving runs headgate's server inside a test, on ports of its own.
package serving

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/headgate-rls/headgate/test/testenv"
)

// startWithin bounds the wait until the server serves.
const startWithin = 20 * time.Second

// A Server is a running server. Its methods fail the test that started it.
type Server struct {
	testing.TB
	Log *testenv.Log

	GRPC, HTTP, Debug string
	Services          string // address of the other gRPC services, or GRPC if they have none
	Metrics, Admin    string // empty without a listener of their own

	Stop  func() // as SIGTERM does
	ended chan error
}

var servingLine = regexp.MustCompile(`msg=serving grpc=(\S+) http=(\S+) debug=(\S+)(?: metrics=(\S+))?(?: ` +
	`admin=(\S+))?(?: services=(\S+))?`)

// Start calls run with the flags of a server and waits until the log says that it
// serves. Unless flags name rules, it serves the example. The test's cleanup stops it.
func Start(t testing.TB, run func(ctx context.Context, flags []string, log io.Writer) error, flags ...string) *Server {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	s := &Server{TB: t, Log: new(testenv.Log), Stop: cancel, ended: make(chan error, 1)}
	flags = append([]string{"--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0", "--debug", "127.0.0.1:0", "--services",
		"127.0.0.1:0", "--drain-delay", "0s"}, flags...)
	if !slices.Contains(flags, "--rules") && !slices.Contains(flags, "--xds") &&
		!slices.Contains(flags, "--example=false") {
		flags = append(flags, "--example")
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.ended <- run(ctx, flags, s.Log)
	}()
	t.Cleanup(func() { cancel(); <-done })
	for deadline := time.Now().Add(startWithin); !s.announced(); time.Sleep(5 * time.Millisecond) {
		select {
		case err := <-s.ended:
			t.Fatalf("the server ended with %v:\n%s", err, s.Log)
		default:
		}
		if time.Now().After(deadline) {
			t.Fatalf("the server does not start:\n%s", s.Log)
		}
	}
	return s
}

// announced reads the addresses from the log, once they are there.
func (s *Server) announced() bool {
	m := servingLine.FindStringSubmatch(s.Log.String())
	if m == nil {
		return false
	}
	s.GRPC, s.HTTP, s.Debug, s.Metrics, s.Admin, s.Services = m[1], m[2], m[3], m[4], m[5], m[6]
	if s.Services == "" {
		s.Services = s.GRPC
	}
	return true
}

// Ends waits until the server has ended, which must be without an error.
func (s *Server) Ends(within time.Duration) {
	s.Helper()
	select {
	case err := <-s.ended:
		if err != nil {
			s.Errorf("the server ended with %v:\n%s", err, s.Log)
		}
	case <-time.After(within):
		s.Fatalf("still running after %v:\n%s", within, s.Log)
	}
}

// Dial returns a plain connection to addr, which the cleanup closes.
func (s *Server) Dial(addr string) *grpc.ClientConn {
	s.Helper()
	conn, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = conn.Close() })
	return conn
}

// Get returns the status and the page at http://addr/path.
func (s *Server) Get(addr, path string) (int, string) {
	s.Helper()
	client := http.Client{Timeout: 10 * time.Second}
	resp, err := client.Get("http://" + addr + path)
	if err != nil {
		s.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		s.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// Post sends JSON to http://addr/path, with a token unless that is empty, and returns
// the status, what is in the answer, and its header.
func (s *Server) Post(addr, path, token, body string) (int, map[string]any, http.Header) {
	s.Helper()
	req, err := http.NewRequest(http.MethodPost, "http://"+addr+path, strings.NewReader(body))
	if err != nil {
		s.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	client := http.Client{Timeout: 20 * time.Second}
	resp, err := client.Do(req)
	if err != nil {
		s.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		s.Fatal(err)
	}
	var answer map[string]any
	if len(data) > 0 {
		if err := json.Unmarshal(data, &answer); err != nil {
			s.Fatalf("%s: %v", data, err)
		}
	}
	return resp.StatusCode, answer, resp.Header
}

// Slot assigns a slot of the default config to the event and returns the answer.
func (s *Server) Slot(event string) map[string]any {
	s.Helper()
	code, answer, _ := s.Post(s.HTTP, "/api/v1/slots", "",
		`{"eventId":"`+event+`","configName":"default","requestedTime":"2025-06-01T12:00:00Z"}`)
	if code != http.StatusOK {
		s.Fatalf("%d %v\n%s", code, answer, s.Log)
	}
	return answer
}
