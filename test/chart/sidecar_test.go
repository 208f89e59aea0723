package chart

import (
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/test/testenv"
)

const (
	sidecarThreshold = 64
	sidecarRules     = `domain: shop
resources:
  - {path: /work, concurrency: [{threshold: 64, response: {statusCode: 429}}]}
`
)

// TestSidecarUnderLoad: headgate as the chart has it beside an Envoy, each a user of its own,
// answers a stream of requests. Then all stop in the order of a kubelet: the application
// when its last request has ended, headgate in the same moment, Envoy after headgate. No
// request fails, and no lease is left.
func TestSidecarUnderLoad(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("not run: only root can start programs as other users")
	}
	if _, err := exec.LookPath("setpriv"); err != nil {
		t.Skip("not run: there is no setpriv on this system")
	}
	envoy := testenv.Require(t, "envoy-1.40.0")
	for kind, socket := range map[string]string{"abstract": "@headgate", "path": "/run/headgate/headgate.sock"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := startSidecar(t, envoy, socket)
			stop := s.load(t)
			testenv.Eventually(t, patience, "many requests are answered", func() string {
				if n := s.answered.Load(); n < 500 {
					return fmt.Sprint(n)
				}
				return ""
			})
			if kind == "path" {
				info, err := os.Stat(strings.TrimPrefix(s.headgate.address("grpc"), "unix:"))
				if err != nil || info.Mode().Perm() != 0o666 {
					t.Errorf("the socket is %v, %v", info, err)
				}
			}
			s.runAs(t, s.headgate.PID(), "65532")
			s.runAs(t, s.envoy.PID(), "1337")

			stop() // no new requests; those in flight end
			s.application.Close()
			s.headgate.Terminate()
			if code := s.headgate.Wait(17 * time.Second); code != 0 { // the pod's grace period
				t.Errorf("headgate: exit code %d", code)
			}
			stats := s.stats(t)
			s.envoy.Terminate()
			if code := s.envoy.Wait(patience); code != 0 {
				t.Errorf("Envoy: exit code %d", code)
			}
			if n := s.failed.Load(); n > 0 {
				t.Errorf("%d of %d requests failed, the last: %v", n, s.failed.Load()+s.answered.Load(), s.last.Load())
			}
			for line := range strings.Lines(stats) {
				name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
				if (strings.HasSuffix(name, "ratelimit.error") || strings.HasSuffix(name, "ratelimit.failure_mode_allowed")) &&
					value != "0" {
					t.Errorf("Envoy: %s", line)
				}
			}
			if !strings.Contains(stats, "ratelimit.ok: ") {
				t.Errorf("Envoy has asked nothing:\n%s", stats)
			}
			if left := sidecarThreshold - s.room(t); left != 0 {
				t.Errorf("%d leases are left", left)
			}
		})
	}
}

// A sidecar is what runs in a pod.
type sidecar struct {
	redis       *testenv.RedisServer
	rules       string
	headgate    *pod
	envoy       *testenv.Program
	admin       string // of Envoy
	address     string // where requests go
	application *httptest.Server

	answered, failed atomic.Int64
	last             atomic.Value // what failed
}

func startSidecar(t *testing.T, envoy, socket string) *sidecar {
	t.Helper()
	s := &sidecar{redis: testenv.StartRedis(t), rules: filepath.Join(t.TempDir(), "shop.yaml")}
	write(t, s.rules, sidecarRules)
	// A lease that is lost must not expire before the test looks for it.
	all := objects(t,
		render(t, features(t)["sidecar"], "--set", "sidecar.inject=istio,sidecar.leaseTTL=10m,sidecar.socket="+socket,
			"--set-file", `rules.files.shop\.yaml=`+s.rules))
	c, volumes := container(t, all)
	var env []string
	s.headgate, env = newPod(t, all, c, volumes, map[string]string{"HEADGATE_BACKEND": s.redis.URL()}, nil)
	// theirs is a directory that others cannot enter
	for name, from := range map[string]string{"headgate": program, "envoy": envoy} {
		if text, err := exec.Command("cp", from, filepath.Join(s.headgate.root, name)).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
	}
	s.headgate.open(t)
	s.headgate.Program = as(t, "65532", env, filepath.Join(s.headgate.root, "headgate"),
		s.headgate.place(asStrings(c["args"]))...)
	testenv.Eventually(t, patience, "headgate starts", func() string {
		if s.headgate.Exited() {
			t.Fatalf("headgate has ended:\n%s", s.headgate.Log())
		}
		return s.headgate.probe(t, "startupProbe")
	})

	s.application = httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		time.Sleep(time.Duration(rand.IntN(200)) * time.Millisecond)
	}))
	t.Cleanup(s.application.Close)
	listen := testenv.FreePort(t)
	s.admin, s.address = fmt.Sprintf("127.0.0.1:%d", testenv.FreePort(t)), fmt.Sprintf("http://127.0.0.1:%d", listen)
	code, config, errOut := testenv.RunProgram(t, program, nil, "envoy", s.rules, "--address", s.headgate.address("grpc"),
		"--services", s.headgate.address("services"),
		"--upstream", strings.TrimPrefix(s.application.URL, "http://"), "--listen", fmt.Sprint(listen), "--admin", s.admin,
		"--timeout", "5s")
	if code != 0 {
		t.Fatal(errOut)
	}
	file := filepath.Join(s.headgate.root, "envoy.yaml")
	write(t, file, config)
	s.headgate.open(t)
	s.envoy = as(t, "1337", nil, filepath.Join(s.headgate.root, "envoy"), "--config-path", file, "--concurrency", "2",
		"--disable-hot-restart", "--log-level", "warning")
	testenv.Eventually(t, patience, "Envoy is ready", func() string {
		if s.envoy.Exited() {
			t.Fatalf("Envoy has ended:\n%s", s.envoy.Log())
		}
		code, err := get("http://" + s.admin + "/ready")
		if code != http.StatusOK {
			return fmt.Sprint(code, err)
		}
		return ""
	})
	return s
}

// as starts a program as another user, without rights of root's.
func as(t *testing.T, user string, env []string, path string, args ...string) *testenv.Program {
	t.Helper()
	return testenv.StartProgram(t, "setpriv", env,
		append([]string{"--reuid=" + user, "--regid=" + user, "--clear-groups", "--no-new-privs", path}, args...)...)
}

// open lets other users read what is mounted, and write to emptyDir volumes, as a kubelet does.
func (p *pod) open(t *testing.T) {
	t.Helper()
	err := filepath.WalkDir(p.root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil || d.Type()&(fs.ModeSymlink|fs.ModeSocket) != 0:
			return err
		case strings.HasSuffix(path, "/run/headgate"):
			return os.Chmod(path, 0o777)
		}
		return os.Chmod(path, 0o755)
	})
	if err != nil {
		t.Fatal(err)
	}
}

func (s *sidecar) runAs(t *testing.T, pid int, user string) {
	t.Helper()
	if status := read(t, fmt.Sprintf("/proc/%d/status", pid)); !strings.Contains(status,
		"\nUid:\t"+user+"\t"+user+"\t"+user) {
		t.Errorf("process %d is not that of user %s:\n%s", pid, user, status)
	}
}

// load has many clients ask, until it is stopped and their last requests have been answered.
func (s *sidecar) load(t *testing.T) (stop func()) {
	t.Helper()
	stopped := make(chan struct{})
	var wg sync.WaitGroup
	client := http.Client{Timeout: patience, Transport: &http.Transport{MaxIdleConnsPerHost: sidecarThreshold}}
	for range sidecarThreshold / 2 {
		wg.Go(func() {
			for {
				select {
				case <-stopped:
					return
				default:
				}
				resp, err := client.Get(s.address + "/work")
				if err == nil {
					_, err = io.Copy(io.Discard, resp.Body)
					_ = resp.Body.Close()
				}
				if err == nil && resp.StatusCode != http.StatusOK {
					err = fmt.Errorf("%s", resp.Status)
				}
				if err != nil {
					s.last.Store(err.Error())
					s.failed.Add(1)
					continue
				}
				s.answered.Add(1)
			}
		})
	}
	return func() { close(stopped); wg.Wait() }
}

func (s *sidecar) stats(t *testing.T) string {
	t.Helper()
	resp, err := http.Get("http://" + s.admin + "/stats?filter=ratelimit")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// room returns how many requests another headgate on the same store admits at once.
func (s *sidecar) room(t *testing.T) (n int) {
	t.Helper()
	h := testenv.StartHeadgate(t, program, "--rules", s.rules, "--backend", s.redis.URL())
	for ; n <= sidecarThreshold; n++ {
		resp, err := http.Post("http://"+h.HTTP+"/json", "application/json", strings.NewReader(
			`{"domain":"shop","descriptors":[{"entries":[{"key":"method","value":"GET"},{"key":"path","value":"/work"}]}]}`))
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode == http.StatusTooManyRequests {
			return n
		}
		if resp.StatusCode != http.StatusOK {
			t.Fatal(resp.Status)
		}
	}
	return n
}
