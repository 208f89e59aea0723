// Package compat starts headgate under the name and the environment of envoyproxy/ratelimit, and
// asks it as that program's users do.
package compat

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/headgate-rls/headgate/test/testenv"
)

// program is headgate under the reference's name.
var program string

func TestMain(m *testing.M) {
	testenv.Main(m, func(root, dir string) error {
		built, err := testenv.BuildHeadgate(root, dir)
		if err != nil {
			return err
		}
		program = filepath.Join(dir, "ratelimit")
		return os.Link(built, program)
	})
}

// A service is a running program, by the addresses that the environment gave it.
type service struct {
	*testenv.Program
	t                 *testing.T
	grpc, http, debug string
	creds             credentials.TransportCredentials
}

// ports adds free ports to an environment, unless it has some.
func ports(t *testing.T, env map[string]string) map[string]string {
	t.Helper()
	env = maps.Clone(env)
	for _, name := range []string{"PORT", "GRPC_PORT", "DEBUG_PORT"} {
		if _, ok := env[name]; !ok {
			env[name] = strconv.Itoa(testenv.FreePort(t))
		}
	}
	return env
}

// list writes an environment as a process takes it.
func list(env map[string]string) (all []string) {
	for _, name := range slices.Sorted(maps.Keys(env)) {
		all = append(all, name+"="+env[name])
	}
	return all
}

// startWithin bounds the wait until a program serves.
const startWithin = 20 * time.Second

// start runs the program with an environment, and waits until /healthcheck says OK.
func start(t *testing.T, env map[string]string, args ...string) *service {
	t.Helper()
	return startProgram(t, program, env, args...)
}

// startProgram is start for another program, such as the reference.
func startProgram(t *testing.T, path string, env map[string]string, args ...string) *service {
	t.Helper()
	env = ports(t, env)
	s := at(t, env)
	s.Program = testenv.StartProgram(t, path, list(env), args...)
	s.ready()
	return s
}

// at is a service where an environment has it.
func at(t *testing.T, env map[string]string) *service {
	local := func(port string) string { return "127.0.0.1:" + env[port] }
	return &service{t: t, grpc: local("GRPC_PORT"), http: local("PORT"), debug: local("DEBUG_PORT"),
		creds: insecure.NewCredentials()}
}

func (s *service) ready() {
	s.t.Helper()
	s.eventually("it serves", func() bool {
		if s.Exited() {
			s.t.Fatalf("it ended:\n%s", s.Log())
		}
		code, body := s.get("http://" + s.http + "/healthcheck")
		return code == 200 && strings.TrimSpace(body) == "OK"
	})
}

// eventually waits until what becomes true.
func (s *service) eventually(what string, ok func() bool) {
	s.t.Helper()
	for deadline := time.Now().Add(startWithin); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.t.Fatalf("not in time: %s\n%s", what, s.Log())
		}
	}
}

var web = &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

// get returns the status and the body of a page, 0 if there is no answer.
func (s *service) get(url string) (int, string) {
	resp, err := web.Get(url)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body)
}

// post asks by /json.
func (s *service) post(body string) (int, string) {
	resp, err := web.Post("http://"+s.http+"/json", "application/json", strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text)
}

// descriptor makes one of key=value pairs.
func descriptor(pairs ...string) *common.RateLimitDescriptor {
	d := new(common.RateLimitDescriptor)
	for _, p := range pairs {
		key, value, _ := strings.Cut(p, "=")
		d.Entries = append(d.Entries, &common.RateLimitDescriptor_Entry{Key: key, Value: value})
	}
	return d
}

// call asks by gRPC.
func (s *service) call(domain string, hits uint32,
	list ...*common.RateLimitDescriptor) (*rls.RateLimitResponse, error) {
	conn, err := grpc.NewClient(s.grpc, grpc.WithTransportCredentials(s.creds))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(s.t.Context(), 10*time.Second)
	defer cancel()
	return rls.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx, &rls.RateLimitRequest{Domain: domain, HitsAddend: hits,
		Descriptors: list})
}

// codes asks several times, and returns what Envoy would answer: "200 200 429".
func (s *service) codes(n int, domain string, pairs ...string) string {
	s.t.Helper()
	var all []string
	for range n {
		resp, err := s.call(domain, 1, descriptor(pairs...))
		switch {
		case err != nil:
			s.t.Fatal(err)
		case resp.OverallCode == rls.RateLimitResponse_OVER_LIMIT:
			all = append(all, "429")
		default:
			all = append(all, "200")
		}
	}
	return strings.Join(all, " ")
}

// write writes a file with its directories.
func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// limited is a file of rules that admits n requests with a=b a day.
func limited(domain string, n int) string {
	return fmt.Sprintf("domain: %s\ndescriptors:\n  - key: a\n    value: b\n    rate_limit: {unit: day, "+
		"requests_per_unit: %d}\n", domain, n)
}

// rules are an environment that reads rules from a directory and needs no Redis.
func rules(root string, more ...string) map[string]string {
	env := map[string]string{"RUNTIME_ROOT": root, "RUNTIME_SUBDIRECTORY": "ratelimit", "BACKEND_TYPE": "memory",
		"HEADGATE_DRAIN_DELAY": "0s"}
	for i := 0; i < len(more); i += 2 {
		env[more[i]] = more[i+1]
	}
	return env
}
