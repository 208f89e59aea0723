package repo

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/test/testenv"
)

// TestLibraryNeedsNoGRPC: who limits in process, or by net/http, does not get gRPC,
// Envoy's API and the AWS SDK into the program, nor OpenTelemetry.
func TestLibraryNeedsNoGRPC(t *testing.T) {
	for _, dir := range []string{".", "./middleware"} {
		for _, path := range deps(t, dir) {
			for _, unwanted := range []string{"google.golang.org/grpc", "go.opentelemetry.io/",
				"github.com/envoyproxy/", awsSDK} {
				if strings.HasPrefix(path, unwanted) {
					t.Errorf("%s imports %s, directly or not", dir, path)
				}
			}
		}
	}
}

const awsSDK = "github.com/aws/"

// TestWhoHasTheAWSSDK: only the program that may keep limits in DynamoDB.
func TestWhoHasTheAWSSDK(t *testing.T) {
	for program, has := range map[string]bool{"headgate": true, "notify-gateway": false, "notify-sender": false} {
		found := false
		for _, path := range deps(t, "./cmd/"+program) {
			found = found || strings.HasPrefix(path, awsSDK)
		}
		if found != has {
			t.Errorf("cmd/%s contains the AWS SDK: %v, want %v", program, found, has)
		}
	}
}

// What a small program gets with the library, beside what it asks for. These figures are bounds: raise
// none of them, and lower what has become smaller.
const (
	smallSize  = 5_400_000 // bytes
	senderSize = 15_000_000
	rlsSize    = 20 << 20
)

// TestWhatASmallProgramHas: counters in memory bring no driver, no server and no client.
func TestWhatASmallProgramHas(t *testing.T) {
	const program = "./test/repo/testdata/small"
	all := deps(t, program)
	for _, unwanted := range []string{
		"modernc.org/", "github.com/jackc/", "github.com/go-sql-driver/", "github.com/redis/",
		"google.golang.org/grpc", "github.com/envoyproxy/", awsSDK, module + "/slots",
		"github.com/prometheus/", "database/sql", "go.opentelemetry.io/", "github.com/fsnotify/",
	} {
		for _, path := range all {
			if strings.HasPrefix(path, unwanted) {
				t.Errorf("a program with counters in memory has %s", path)
			}
		}
	}
	binary := build(t, program, smallSize)
	for _, c := range []struct{ args, want string }{
		{"", "true <nil>\ntrue <nil>\nfalse <nil>\n"},
		{"-backend redis://h", `Options.Backend: redis: needs the store of Redis in the program: import _ "` +
			module + `/backends/redis"`},
		{"-backend sqlite:x", `import _ "` + module + `/backends/sqlstore"`},
		{"-policies sqlite:x", `Options.Policies: a database of policies needs their store in the program: import _ "` +
			module + `/policies/sqlstore"`},
		{"-follow rules", `Options.Follow: following files needs what does so in the program: import _ "` +
			module + `/descriptors/watch"`},
	} {
		out, err := exec.Command(binary, strings.Fields(c.args)...).CombinedOutput()
		if !strings.Contains(string(out), c.want) || (err == nil) != (c.args == "") {
			t.Errorf("%q: %v %s, want %q", c.args, err, out, c.want)
		}
	}
}

// rlsTags build the program for the rate-limit service alone. Without the second one grpc-go brings templates of HTML,
// which keep every exported method of every package in the program. With the third one its pages speak HTTP/1.1 only.
// A release links it with rlsLink.
const (
	rlsTags = "rlsonly,grpcnotrace,nethttpomithttp2"
	rlsLink = "-s -w -funcalign=4"
)

// TestProgramForRateLimitsOnly: with its tags the program has no SQL, no slots and no commands for databases, and
// settings that ask for what is missing are errors.
func TestProgramForRateLimitsOnly(t *testing.T) {
	for _, path := range deps(t, "./cmd/headgate", "-tags="+rlsTags) {
		for _, unwanted := range []string{
			"modernc.org/", "github.com/jackc/", "github.com/go-sql-driver/", awsSDK,
			"html/template", "github.com/go-jose/", "go.opentelemetry.io/", "google.golang.org/grpc/reflection",
			module + "/slots/", module + "/notify", module + "/policies/",
			module + "/internal/kit/sqldb",
		} {
			if strings.HasPrefix(path, unwanted) && !slices.Contains(settingsOfOthers, path) {
				t.Errorf("the program has %s", path)
			}
		}
	}
	binary := build(t, "./cmd/headgate", rlsSize, "-tags="+rlsTags, "-ldflags="+rlsLink)
	for _, c := range []struct{ args, env, want string }{
		{"serve --example --slots sqlite:x", "", "--slots: is not in this build (rlsonly)"},
		{"serve --example", "HEADGATE_POLICIES=sqlite:x", "--policies: is not in this build (rlsonly)"},
		{"serve --example --backend postgres://h/d", "", "this build (rlsonly) has memory:// and redis:// only"},
		{"serve --example --admin-jwks https://idp/keys", "", "--admin-jwks: is not in this build (rlsonly)"},
		{"serve --example --candidate x", "", "--candidate: is not in this build (rlsonly)"},
		{"check --backend mysql://h/d ../../examples/envoy/rules.yaml", "",
			"this build (rlsonly) has memory:// and redis:// only"},
		{"serve --example --grpc-tls-cert x --grpc-tls-key x", "OTEL_TRACES_EXPORTER=Otpl",
			"OTEL_TRACES_EXPORTER has no effect: this build (rlsonly) sends no traces"},
		{"serve --example --grpc-tls-cert x --grpc-tls-key x", "OTEL_TRACES_EXPORTER=otlp",
			"OTEL_TRACES_EXPORTER has no effect: this build (rlsonly) sends no traces"},
		{"migrate", "", `unknown command "migrate"`},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		cmd := exec.CommandContext(ctx, binary, strings.Fields(c.args)...)
		cmd.Env = append(os.Environ(), c.env)
		if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), c.want) {
			t.Errorf("%s %s: %v %s, want %q", c.env, c.args, err, out, c.want)
		}
	}
}

// TestHTTPOfTheProgramForRateLimitsOnly: its pages and its commands work with programs that would rather speak HTTP/2.
func TestHTTPOfTheProgramForRateLimitsOnly(t *testing.T) {
	certs := testenv.TestCerts(t)
	pair := certs.Issue(t, "server")
	small := build(t, "./cmd/headgate", rlsSize, "-tags="+rlsTags, "-ldflags="+rlsLink)
	const token = "0123456789abcdef0123456789abcdef"
	t.Setenv("HEADGATE_ADMIN_TOKEN", token) // of the command
	for name, server := range map[string]string{"small": small, "full": build(t, "./cmd/headgate", 1<<30)} {
		address := fmt.Sprintf("127.0.0.1:%d", testenv.FreePort(t))
		served := testenv.ServeHeadgate(t, server, "--example", "--admin", address, "--admin-token", token,
			"--admin-tls-cert", pair.CertFile, "--admin-tls-key", pair.KeyFile)
		client := http.Client{Transport: &http.Transport{ForceAttemptHTTP2: true,
			TLSClientConfig: certs.ClientTLS(t)}}
		defer client.CloseIdleConnections()
		resp, err := client.Get("https://" + address + "/admin/status")
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		_ = resp.Body.Close()
		if want := map[string]int{"small": 1, "full": 2}[name]; resp.ProtoMajor != want || resp.StatusCode != 401 {
			t.Errorf("%s: %s by %s, want HTTP/%d", name, resp.Status, resp.Proto, want)
		}
		out, err := exec.CommandContext(t.Context(), small, "status", "--addr", "https://"+address, "--tls-ca",
			certs.CAFile).CombinedOutput()
		if err != nil || !strings.Contains(string(out), "rules") {
			t.Errorf("%s: status of it: %v\n%s", name, err, out)
		}
		// The smaller program has pages of its own for Go's tools.
		for _, page := range []string{"heap?gc=1", "goroutine", "profile?seconds=1"} {
			out, err := exec.CommandContext(t.Context(), "go", "tool", "pprof", "-raw",
				"http://"+served.Debug+"/debug/pprof/"+page).CombinedOutput()
			if err != nil || !strings.Contains(string(out), "PeriodType") {
				t.Errorf("%s: a profile %s: %v\n%s", name, page, err, out)
			}
		}
	}
}

// settingsOfOthers are packages of features that the program does not have, which describe settings and answers only.
var settingsOfOthers = []string{module + "/slots/plan", module + "/policies/table"}

// TestSizeOfNotifySender: what reads from Kafka and sends has no database and no Redis in it.
func TestSizeOfNotifySender(t *testing.T) {
	for _, path := range deps(t, "./cmd/notify-sender") {
		for _, unwanted := range []string{
			"modernc.org/", "github.com/jackc/", "github.com/redis/", module + "/backends/redis",
		} {
			if strings.HasPrefix(path, unwanted) {
				t.Errorf("notify-sender has %s", path)
			}
		}
	}
	build(t, "./cmd/notify-sender", senderSize)
}

// build builds a program as a release does, and compares its size with a bound.
func build(t *testing.T, program string, most int, flags ...string) (binary string) {
	t.Helper()
	binary = filepath.Join(t.TempDir(), "program")
	args := append([]string{"build", "-trimpath", "-ldflags=-s -w", "-o", binary}, flags...)
	cmd := exec.Command("go", append(args, program)...)
	cmd.Dir, cmd.Env = root(t), append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	info, err := os.Stat(binary)
	if err != nil {
		t.Fatal(err)
	}
	bounded(t, "bytes of "+program, int(info.Size()), most)
	return binary
}

// bounded holds a figure to its bound.
func bounded(t *testing.T, what string, n, most int) {
	t.Helper()
	t.Logf("%d %s", n, what)
	if n > most {
		t.Errorf("%d %s, want at most %d", n, what, most)
	}
}

// deps are the packages that one consists of.
func deps(t *testing.T, dir string, flags ...string) []string {
	t.Helper()
	cmd := exec.Command("go", slices.Concat([]string{"list", "-deps"}, flags, []string{dir})...)
	cmd.Dir = root(t)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", describe(err))
	}
	return strings.Fields(string(out))
}
