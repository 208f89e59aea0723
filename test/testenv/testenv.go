// Package testenv finds and starts the real servers that headgate's tests talk
// to: Redis in its several shapes, Valkey and Envoy, databases, a browser, headgate
// itself, and clients that are not ours. It also has the odds and ends such tests need: certificates,
// free ports and a TCP proxy that misbehaves on command.
//
// Every server and client has a name, its engine. A test that needs an engine whose binary
// is missing is skipped, so that a plain "go test ./..." works everywhere; the
// engines named in HEADGATE_TEST_MUSTRUN (comma separated) turn that skip into a
// failure, so that a complete run cannot lose tests in silence. "make setup"
// installs all binaries, "make test" demands all engines and ends with a table
// of those that ran.
//
// Everything started here is stopped by the test's cleanup, and is killed by the
// kernel when the test process dies without one.
package testenv

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// TB is the part of testing.TB that testenv uses. It is an interface of its own
// so that programs which are not tests, such as benchmarks, can start servers
// too.
type TB interface {
	Helper()
	Name() string
	Failed() bool
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Skipf(format string, args ...any)
	Cleanup(func())
	TempDir() string
}

// The environment variables that testenv reads.
const (
	// EnvDir is the directory scripts/setup-testenv.sh installs to.
	EnvDir = "HEADGATE_TESTENV_DIR"
	// EnvMustRun lists engines whose absence is a failure instead of a skip.
	EnvMustRun = "HEADGATE_TEST_MUSTRUN"
	// EnvServers set to [NoServers] skips the tests that need a program, for a
	// quick check.
	EnvServers = "HEADGATE_TEST_SERVERS"
	NoServers  = "none"
	// EnvReport is a directory to note in which engines ran.
	EnvReport = "HEADGATE_TEST_REPORT"
)

// The engines. A test names one of these; so does HEADGATE_TEST_MUSTRUN.
const (
	Memory        = "memory"
	Redis         = "redis"
	RedisTLS      = "redis-tls"
	RedisCluster  = "redis-cluster"
	RedisSentinel = "redis-sentinel"
	Redis62       = "redis62"
	Valkey        = "valkey"
	Nutcracker    = "nutcracker"
	Envoy1400     = "envoy-1.40.0"
	Envoy1383     = "envoy-1.38.3"
	Envoy1364     = "envoy-1.36.4"
	GRPCIO        = "grpcio"
	GRPCurl       = "grpcurl"
	Postgres      = "postgres"
	PgBouncer     = "pgbouncer"
	MariaDB       = "mariadb"
	MariaDBOracle = "mariadb-oracle"
	SQLite        = "sqlite"
	Oracle        = "oracle"
	MySQL         = "mysql"
	Chromium      = "chromium"
	Schemathesis  = "schemathesis"
	PLSQLGrammar  = "plsql-grammar"
	Helm          = "helm"
	Manifests     = "manifests"
	Kubeconform   = "kubeconform"
	Prometheus    = "prometheus"
	Promtool      = "promtool"
	Kafka         = "kafka"
	DynamoDB      = "dynamodb"
	KubeAPIServer = "kube-apiserver"
	Etcd          = "etcd"
	Istioctl      = "istioctl"
	Istiod        = "istiod"
	Former        = "former"
	Reference     = "reference"
)

// Engine describes a server, or a client, that tests can ask for.
type Engine struct {
	Name string
	What string
	// version are the arguments that make a client print its version, as the first
	// word with numbers and points, or as the last word. Servers print theirs when
	// they are started.
	version []string
	// system is the name of a program on PATH, or, first, in one of the places,
	// which are patterns of paths; installed is a file under the directory of
	// EnvDir. Without any the engine needs no program.
	system    string
	places    string
	installed string
	// moving reports that set-up can install the engine on some days only, or installs it
	// only if setup is run: it is demanded where it is installed.
	moving bool
	// setup is the command that installs the engine; empty: make setup.
	setup string
	// dsn is the environment variable with the address of a server that set-up
	// cannot install. Such an engine is never demanded by "make test".
	dsn string
}

// Engines lists every engine there is, in the order of the report.
func Engines() []Engine {
	return []Engine{
		{Name: Memory, What: "the memory of the process"},
		{Name: Redis, What: "Redis of the system, one server", system: "redis-server"},
		{Name: RedisTLS, What: "Redis of the system, TLS only", system: "redis-server"},
		{Name: RedisCluster, What: "Redis Cluster, 3 masters and 3 replicas", system: "redis-server"},
		{Name: RedisSentinel, What: "Redis with 2 replicas and 3 sentinels", system: "redis-server"},
		{Name: Redis62, What: "Redis 6.2", installed: "redis62/redis-server"},
		{Name: Valkey, What: "Valkey", installed: "valkey/valkey-server"},
		{Name: Nutcracker, What: "twemproxy of the system", system: "nutcracker"},
		{Name: Envoy1400, What: "Envoy 1.40.0", installed: "envoy-1.40.0/envoy"},
		{Name: Envoy1383, What: "Envoy 1.38.3", installed: "envoy-1.38.3/envoy"},
		{Name: Envoy1364, What: "Envoy 1.36.4", installed: "envoy-1.36.4/envoy"},
		{Name: GRPCIO, What: "gRPC of Python", installed: "grpcio/python",
			version: []string{"-c", "import grpc; print(grpc.__version__)"}},
		{Name: GRPCurl, What: "gRPC from a shell", installed: "grpcurl/grpcurl", version: []string{"-version"}},
		{Name: Postgres, What: "PostgreSQL of the system", system: "postgres", places: "/usr/lib/postgresql/*/bin/postgres"},
		{Name: PgBouncer, What: "PgBouncer, in session and transaction mode", system: "pgbouncer"},
		{Name: MariaDB, What: "MariaDB of the system", system: "mariadbd"},
		{Name: MariaDBOracle, What: "MariaDB in Oracle's dialect", system: "mariadbd"},
		{Name: MySQL, What: "MySQL of Debian unstable", installed: "mysql/mysqld", moving: true},
		{Name: SQLite, What: "SQLite in the process"},
		{Name: Oracle, What: "Oracle Database", dsn: "TEST_ORACLE_DSN"},
		{Name: Chromium, What: "Chromium of the system", system: "chromium"},
		{Name: Schemathesis, What: "Schemathesis, against HTTP APIs", installed: "schemathesis/schemathesis",
			version: []string{"--version"}},
		{Name: Kafka, What: "Apache Kafka, one broker", installed: "kafka/kafka", moving: true},
		{Name: DynamoDB, What: "DynamoDB Local", installed: "dynamodb/dynamodb", moving: true},
		{Name: PLSQLGrammar, What: "the grammar of PL/SQL", installed: "plsql/plsql-check", version: []string{"--version"}},
		{Name: Helm, What: "Helm", installed: "kubernetes/helm", version: []string{"version", "--short"}},
		{Name: Manifests, What: "Go types of Kubernetes objects, Pod Security", installed: "kubernetes/manifests",
			version: []string{"version"}},
		{Name: Kubeconform, What: "schemas of Kubernetes objects", installed: "kubernetes/kubeconform",
			version: []string{"-v"}},
		{Name: Prometheus, What: "Prometheus of the system", system: "prometheus"},
		{Name: Promtool, What: "the checks of Prometheus' rules", system: "promtool", version: []string{"--version"}},
		{Name: KubeAPIServer, What: "the API server of Kubernetes", installed: "kube-apiserver/kube-apiserver", moving: true,
			setup: "make charttest"},
		{Name: Etcd, What: "etcd of the system", system: "etcd", moving: true, setup: "make charttest"},
		{Name: Istioctl, What: "the checks of Istio", installed: "istio/istioctl",
			version: []string{"version", "--remote=false"}, moving: true, setup: "make charttest"},
		{Name: Istiod, What: "the control plane of Istio", installed: "istio/istiod", version: []string{"version"},
			moving: true, setup: "make charttest"},
		{Name: Former, What: "headgate of the commit in test/former/COMMIT", installed: "former/headgate",
			version: []string{"version"}, moving: true, setup: "go test ./test/former, in a clone with that commit"},
		{Name: Reference, What: "tests of envoyproxy/ratelimit", installed: "reference/integration.test", moving: true,
			setup: "go test ./test/reference"},
	}
}

// Installable lists the engines that set-up installs.
func Installable() []string {
	var names []string
	for _, e := range Engines() {
		if e.demanded() {
			names = append(names, e.Name)
		}
	}
	return names
}

func (e Engine) installedBy() string { return cmp.Or(e.setup, "make setup") }

// demanded reports whether make test may not do without it. What has a set-up of its own is
// demanded by the target that runs that.
func (e Engine) demanded() bool {
	if e.setup != "" {
		return false
	}
	if e.moving {
		_, err := e.binary()
		return err == nil
	}
	return e.dsn == ""
}

func engineNamed(name string) (Engine, error) {
	var known []string
	for _, e := range Engines() {
		if e.Name == name {
			return e, nil
		}
		known = append(known, e.Name)
	}
	return Engine{}, fmt.Errorf("there is no engine %q; the engines are %s", name, strings.Join(known, ", "))
}

// binary returns the path of the engine's program.
func (e Engine) binary() (string, error) {
	if e.system == "" && e.installed == "" {
		return "", nil
	}
	if e.system != "" {
		if path := newest(e.places); path != "" {
			return path, nil
		}
		// Debian puts some servers where a user's PATH does not look.
		for _, candidate := range []string{e.system, "/usr/bin/" + e.system, "/usr/sbin/" + e.system,
			"/usr/local/bin/" + e.system} {
			if path, err := exec.LookPath(candidate); err == nil {
				return path, nil
			}
		}
		return "", fmt.Errorf("the program %s is not on PATH", e.system)
	}
	dir, err := installDir()
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, filepath.FromSlash(e.installed))
	if _, err := exec.LookPath(path); err != nil {
		return "", fmt.Errorf("there is no program %s", path)
	}
	return path, nil
}

// installDir is where set-up installs.
func installDir() (string, error) {
	if dir := os.Getenv(EnvDir); dir != "" {
		return dir, nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("%s is not set and there is no home directory to look into instead: %w", EnvDir, err)
	}
	return filepath.Join(home, ".cache", "headgate-testenv"), nil
}

// newest returns the last of the files that match the pattern, by the numbers in
// their names, or nothing.
func newest(pattern string) string {
	paths, err := filepath.Glob(pattern)
	if err != nil || len(paths) == 0 {
		return ""
	}
	// Of two numbers the longer one is the greater.
	return slices.MaxFunc(paths, func(a, b string) int {
		return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
	})
}

// mustRun returns the engines that HEADGATE_TEST_MUSTRUN names. A misspelt name
// is an error: it would demand nothing.
func mustRun(list string) ([]string, error) {
	var names []string
	for _, name := range strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' }) {
		if _, err := engineNamed(name); err != nil {
			return nil, fmt.Errorf("%s: %w", EnvMustRun, err)
		}
		names = append(names, name)
	}
	return names, nil
}

// Require skips the test unless the engine can be started here, or fails it if
// HEADGATE_TEST_MUSTRUN names the engine. It returns the path of the engine's
// program. The Start functions call it themselves; a test calls it to skip
// before doing other work.
func Require(tb TB, engine string) string {
	tb.Helper()
	e, err := engineNamed(engine)
	if err != nil {
		tb.Fatalf("testenv: %v", err)
	}
	demanded, err := mustRun(os.Getenv(EnvMustRun))
	if err != nil {
		tb.Fatalf("testenv: %v", err)
	}
	if e.dsn != "" {
		tb.Fatalf("testenv: %s is no program; ask for its address with RequireDSN", engine)
	}
	path, err := e.binary()
	if path != "" && os.Getenv(EnvServers) == NoServers {
		err = fmt.Errorf("%s is %s", EnvServers, NoServers)
	}
	if err == nil {
		return path
	}
	note(tb, engine, noteMissing, err.Error())
	if slices.Contains(demanded, engine) {
		tb.Fatalf("testenv: %s names %s (%s), but %v. Install it with: %s", EnvMustRun, engine, e.What, err, e.installedBy())
	}
	tb.Skipf("needs %s (%s), but %v. Install it with: %s", engine, e.What, err, e.installedBy())
	return ""
}

// RequireDSN returns the address of a server that cannot be started here, such as
// Oracle. Where nobody has given one, the test is skipped, or fails if
// HEADGATE_TEST_MUSTRUN names the engine. The address may hold a password: it
// belongs into no message.
func RequireDSN(tb TB, engine string) string {
	tb.Helper()
	e, err := engineNamed(engine)
	if err != nil {
		tb.Fatalf("testenv: %v", err)
	}
	if e.dsn == "" {
		tb.Fatalf("testenv: %s has no address to ask for; start it", engine)
	}
	demanded, err := mustRun(os.Getenv(EnvMustRun))
	if err != nil {
		tb.Fatalf("testenv: %v", err)
	}
	dsn := os.Getenv(e.dsn)
	switch {
	case dsn != "":
		ran(tb, engine, "of "+e.dsn)
	case slices.Contains(demanded, engine):
		tb.Fatalf("testenv: %s names %s (%s), but %s is not set. Set it to the address of a server for tests", EnvMustRun,
			engine, e.What, e.dsn)
	default:
		tb.Skipf("needs %s (%s). Set %s to the address of a server for tests", engine, e.What, e.dsn)
	}
	return dsn
}

// UseSQLite notes for the report that SQLite is tested.
func UseSQLite(tb TB) {
	tb.Helper()
	Require(tb, SQLite)
	ran(tb, SQLite, "in process")
}

// UseMemory notes for the report that the memory backend is tested.
func UseMemory(tb TB) {
	tb.Helper()
	Require(tb, Memory)
	ran(tb, Memory, "in process")
}

// UseClient returns the path of a client program, such as GRPCurl, and notes for
// the report that the test runs it. Like Require it skips the test, or fails it,
// where the program is missing.
func UseClient(tb TB, engine string) string {
	tb.Helper()
	path := Require(tb, engine)
	e, err := engineNamed(engine)
	if err != nil {
		tb.Fatalf("testenv: %v", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, path, e.version...).CombinedOutput()
	words := strings.Fields(string(out))
	if err != nil || len(words) == 0 {
		tb.Fatalf("testenv: %s does not print its version: %v\n%s", path, err, out)
	}
	version := words[len(words)-1]
	if i := slices.IndexFunc(words, versionWord.MatchString); i >= 0 {
		version = words[i]
	}
	ran(tb, engine, version)
	return path
}

var versionWord = regexp.MustCompile(`^v?\d+\.\d`)

// waitFor polls check until it reports done. A check that returns an error
// gives up at once; otherwise the last thing it said goes into the error when
// the time is over.
func waitFor(limit time.Duration, what string, check func() (done bool, state string, err error)) error {
	deadline := time.Now().Add(limit)
	for pause := 2 * time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		done, state, err := check()
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		if done {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s: not within %v; last seen: %s", what, limit, state)
		}
		time.Sleep(pause)
	}
}

// Eventually polls check until it returns nothing to complain about. What it
// returned last is the failure when the time is over.
func Eventually(tb TB, limit time.Duration, what string, check func() (wrong string)) {
	tb.Helper()
	if err := waitFor(limit, what, func() (bool, string, error) {
		wrong := check()
		return wrong == "", wrong, nil
	}); err != nil {
		tb.Fatalf("%v", err)
	}
}

// tail returns the last lines of a log file, for error messages.
func tail(path string, lines int) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return fmt.Sprintf("(no log: %v)", err)
	}
	data = bytes.TrimRight(data, "\n")
	if len(data) == 0 {
		return "(the log is empty)"
	}
	all := bytes.Split(data, []byte("\n"))
	if len(all) > lines {
		all = all[len(all)-lines:]
	}
	return string(bytes.Join(all, []byte("\n")))
}
