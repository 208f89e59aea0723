// Package e2e tests headgate as its users meet it: the program itself, as a
// process, behind real Envoys that speak to it over real sockets, with its
// counters in memory or in a real Redis.
//
// Tests ask Envoy and look at what a client sees. Envoy is configured to refuse
// requests when headgate does not answer, unless a test is about just that, so
// that an answer that went missing cannot pass for an admission.
package e2e

import (
	"flag"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/test/random"
	"github.com/headgate-rls/headgate/test/testenv"
)

// version is linked into the program under test.
const version = "v1.2.3-e2e"

// program is the path of the headgate under test, demo that of the program that
// `make demo` runs, and sources the directory of the repository.
var program, demo, sources string

func TestMain(m *testing.M) {
	// They wait for timers and Envoys most of the time. An argument -parallel has the last word.
	if err := flag.Set("test.parallel", strconv.Itoa(2*runtime.GOMAXPROCS(0))); err != nil {
		panic(err)
	}
	testenv.Main(m, func(root, dir string) (err error) {
		sources = root
		if program, err = testenv.BuildHeadgate(root, dir, "-ldflags", "-X main.version="+version); err != nil {
			return err
		}
		demo, err = testenv.Build(root, dir, "./test/demo")
		return err
	})
}

// An environment is what a test runs against.
type environment struct {
	envoy   string // version
	backend string // URL
}

var envoyVersions = []string{"1.40.0", "1.36.4"}

// onAll are the tests that meet every version of Envoy, and both transports, also in the short form:
// some of each kind. The others meet the newest.
var onAll = []string{
	"TestAlgorithmsRefuseInTheirOrder", "TestRefusalHasTheRulesResponse", "TestExampleFiles", "TestServiceDown", "TestTLS",
	"TestInFlightProxyGone", "TestInFlightReload", "TestInFlightEnvoyTerminates",
}

// among returns those of the versions that a test meets.
func among(t *testing.T, versions []string) []string {
	name, _, _ := strings.Cut(t.Name(), "/")
	if random.Long() || slices.Contains(onAll, name) {
		return versions
	}
	return versions[:1]
}

// onGRPC ends the names of tests whose headgate is served by grpc-go.
const onGRPC = "-grpc-go"

// onEnvoys runs f against the Envoys, and with either transport, with the
// counters in memory.
func onEnvoys(t *testing.T, f func(*testing.T, environment)) {
	t.Parallel()
	run := func(name, version string) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testenv.Require(t, "envoy-"+version)
			f(t, environment{envoy: version, backend: "memory://"})
		})
	}
	versions := among(t, envoyVersions)
	for _, v := range versions {
		run("envoy-"+v, v)
	}
	if len(versions) > 1 {
		run("envoy-"+envoyVersions[0]+onGRPC, envoyVersions[0])
	}
}

// onBackends runs f against the Envoys with every backend.
func onBackends(t *testing.T, f func(*testing.T, environment)) {
	onEnvoys(t, func(t *testing.T, env environment) {
		t.Run("memory", func(t *testing.T) {
			t.Parallel()
			f(t, env)
		})
		t.Run("redis", func(t *testing.T) {
			t.Parallel()
			f(t, environment{envoy: env.envoy, backend: testenv.StartRedis(t).URL()})
		})
	})
}

// insideHour waits if the clock hour, and with it the fixed windows of that
// length, would end during a test.
func insideHour() {
	if left := time.Hour - time.Duration(time.Now().UnixNano())%time.Hour; left < 10*time.Second {
		time.Sleep(left)
	}
}

// writeFile writes a file of the test and returns its path.
func writeFile(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// readSource returns a file of the repository.
func readSource(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(sources, filepath.FromSlash(path)))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
