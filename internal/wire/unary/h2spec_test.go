package unary

import (
	"context"
	"encoding/xml"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// needsBody are the cases of h2spec that a gRPC server passes only if a translator
// makes calls of h2spec's requests: what they get otherwise is an answer without a body
// (405 or 415), and at once.
var needsBody = map[string]string{
	"generic/2: Sends a WINDOW_UPDATE frame on half-closed " +
		"(remote) stream": "waits for DATA",
	"generic/2: Sends a PRIORITY frame on half-closed " +
		"(remote) stream": "waits for DATA",
	"http2/5.1.2: Sends HEADERS frames that causes their advertised concurrent stream limit to " +
		"be exceeded": "no request stays in flight",
	"http2/6.5.3: Sends multiple values of SETTINGS_INITIAL_WINDOW_SIZE":                            "waits for DATA",
	"http2/6.9.1: Sends SETTINGS frame to set the initial window size to 1 and sends HEADERS frame": "waits for DATA",
	"http2/6.9.2: Changes SETTINGS_INITIAL_WINDOW_SIZE after sending HEADERS frame":                 "waits for DATA",
	"http2/6.9.2: Sends a SETTINGS frame for window size to be negative":                            "waits for DATA",
}

// TestH2Spec runs github.com/summerwind/h2spec, which lives in a module of its
// own, against a server: as it is, and through a translator that makes gRPC of
// h2spec's requests, for the cases that need a body. The handler is slow, for the case
// that wants more calls in flight than are allowed.
func TestH2Spec(t *testing.T) {
	if testing.Short() {
		t.Skip("builds another module")
	}
	tool := buildH2Spec(t)
	t.Run("as it is", func(t *testing.T) {
		_, addr := start(t, nil)
		passed := runH2Spec(t, tool, addr)
		if len(passed) < 100 {
			t.Errorf("only %d kinds of cases were run", len(passed))
		}
		for name, ok := range passed {
			if _, excluded := needsBody[name]; ok == excluded {
				t.Errorf("%s: passes: %v", name, ok)
			}
		}
	})
	t.Run("translated to gRPC", func(t *testing.T) {
		_, addr := start(t, func(conf *Config) {
			conf.MaxConcurrentStreams = 16
			conf.Handlers[methodTranslated] = Handler{Serve: func(_ context.Context, calls []*Call) {
				time.Sleep(20 * time.Millisecond)
				for _, call := range calls {
					call.Reply = append(call.Reply, "a reply of some length"...)
				}
			}}
		})
		var sections []string // the others wait for an answer that the translator does not give
		for name := range needsBody {
			section, _, _ := strings.Cut(name, ":")
			sections = append(sections, section)
		}
		passed := runH2Spec(t, tool, translator(t, addr), sections...)
		for name := range needsBody {
			if !passed[name] {
				t.Errorf("%s does not pass", name)
			}
		}
	})
}

func buildH2Spec(t *testing.T) string {
	t.Helper()
	tool := filepath.Join(t.TempDir(), "h2spec")
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	build := exec.CommandContext(ctx, "go", "build", "-o", tool, ".")
	build.Dir = filepath.Join("..", "..", "..", "tools", "h2spec")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build h2spec: %v\n%s", err, out)
	}
	return tool
}

// runH2Spec runs the cases of the sections, without any of all, and returns which kinds pass.
func runH2Spec(t *testing.T, tool, addr string, sections ...string) (passed map[string]bool) {
	t.Helper()
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	report := filepath.Join(t.TempDir(), "report.xml")
	out, err := exec.CommandContext(ctx, tool, append([]string{"-port", port, "-report", report},
		sections...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("h2spec: %v\n%s", err, out)
	}
	cases := readReport(t, report)
	passed = map[string]bool{}
	for _, c := range cases {
		name := c.Package + ": " + c.Class
		ok := c.Failure == nil && c.Error == nil && c.Skipped == nil
		if before, again := passed[name]; again {
			ok = ok && before
		}
		passed[name] = ok
		if !ok {
			t.Logf("%s fails: %+v %+v", name, c.Failure, c.Error)
		}
	}
	t.Logf("%d cases were run", len(cases))
	return passed
}

type h2specCase struct {
	Package string    `xml:"package,attr"`
	Class   string    `xml:"classname,attr"`
	Failure *innerXML `xml:"failure"`
	Error   *innerXML `xml:"error"`
	Skipped *innerXML `xml:"skipped"`
}

type innerXML struct {
	Text string `xml:",innerxml"`
}

func readReport(t *testing.T, file string) []h2specCase {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var report struct {
		Suites []struct {
			Cases []h2specCase `xml:"testcase"`
		} `xml:"testsuite"`
	}
	if err := xml.Unmarshal(content, &report); err != nil {
		t.Fatal(err)
	}
	var cases []h2specCase
	for _, suite := range report.Suites {
		cases = append(cases, suite.Cases...)
	}
	return cases
}
