package compat

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/grpc/credentials"

	"github.com/headgate-rls/headgate/internal/app/config"
	"github.com/headgate-rls/headgate/test/documented"
	"github.com/headgate-rls/headgate/test/testenv"
)

// The reference has three ports, and a fourth for Prometheus; headgate opens no other.
func TestOnlyTheReferencesPortsAreOpen(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	write(t, filepath.Join(root, "ratelimit/config/a.yaml"), limited("d", 2))
	metrics := testenv.FreePort(t)
	s := start(t, rules(root, "USE_PROMETHEUS", "true", "PROMETHEUS_ADDR", fmt.Sprintf("127.0.0.1:%d", metrics),
		"PROMETHEUS_PATH", "/stats"), "--quotaRateLimitServiceAddr=geheim")
	if n := listening(t, s.PID()); n != 4 {
		t.Errorf("%d ports are open, want 4", n)
	}
	if got := s.codes(3, "d", "a=b"); got != "200 200 429" {
		t.Errorf("gRPC: %s", got)
	}
	if code, body := s.post(`{"domain": "d", "descriptors": [{"entries": [{"key": "a", "value": "b"}]}]}`); code != 429 ||
		!strings.Contains(body, `"overallCode":"OVER_LIMIT"`) {
		t.Errorf("/json: %d %s", code, body)
	}
	if code, body := s.get("http://" + s.debug + "/rlconfig"); code != 200 ||
		!strings.Contains(body, "d.a_b: unit=DAY requests_per_unit=2") {
		t.Errorf("/rlconfig: %d %s", code, body)
	}
	if code, body := s.get(fmt.Sprintf("http://127.0.0.1:%d/stats", metrics)); code != 200 ||
		!strings.Contains(body, "headgate_decisions_total") {
		t.Errorf("metrics: %d %s", code, body)
	}
	log := s.Log()
	if !strings.Contains(log, "arguments have no effect under the name ratelimit, and are ignored: "+
		"--quotaRateLimitServiceAddr") || strings.Contains(log, "geheim") {
		t.Errorf("the log does not tell of the argument, or tells too much:\n%s", log)
	}
	s.Terminate()
	if code := s.Wait(startWithin); code != 0 {
		t.Errorf("it ended on SIGTERM with %d", code)
	}
}

// listening counts the TCP ports that a process listens on.
func listening(t *testing.T, pid int) int {
	t.Helper()
	mine := map[string]bool{}
	fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil || len(fds) == 0 {
		t.Skip("not run: this system does not tell which sockets a process has")
	}
	for _, fd := range fds {
		if to, err := os.Readlink(fd); err == nil && strings.HasPrefix(to, "socket:[") {
			mine[strings.Trim(to[len("socket:"):], "[]")] = true
		}
	}
	n := 0
	for _, file := range []string{"tcp", "tcp6"} {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", pid, file))
		for line := range strings.SplitSeq(string(text), "\n") {
			if f := strings.Fields(line); len(f) > 9 && f[3] == "0A" && mine[f[9]] { // 0A is LISTEN
				n++
			}
		}
	}
	return n
}

// Files are those that the reference reads, whatever they are called.
func TestFilesOfTheReference(t *testing.T) {
	t.Parallel()
	domain := func(name string) string { return limited(name, 1) }
	for _, c := range []struct {
		name  string
		files map[string]string // to the domain that they have
		env   []string
		want  string // the domains that are limited
	}{
		{"every extension, and directories below", map[string]string{"config/config": "a", "config/x.txt": "b",
			"config/deep/er/y.yaml": "c"}, nil, "a b c"},
		{"no dot files", map[string]string{"config/a.yaml": "a", "config/.b.yaml": "b", "config/.c/c.yaml": "c"},
			[]string{"RUNTIME_IGNOREDOTFILES", "true"}, "a"},
		{"dot files", map[string]string{"config/a.yaml": "a", "config/.b.yaml": "b", "config/.c/c.yaml": "c"}, nil, "a b c"},
		{"versions of a ConfigMap are read once", map[string]string{"config/..2026_01/a.yaml": "a",
			"config/a.yaml": "->..2026_01/a.yaml"}, nil, "a"},
		{"another directory", map[string]string{"config/a.yaml": "a", "limits/b.yaml": "b"},
			[]string{"RUNTIME_APPDIRECTORY", "limits"}, "b"},
		{"files beside the directory", map[string]string{"config/a.yaml": "a", "config.yaml": "b", "configs/c.yaml": "c"},
			nil, "a b"},
		{"no files beside it without the root", map[string]string{"config/a.yaml": "a", "config.yaml": "b"},
			[]string{"RUNTIME_WATCH_ROOT", "false"}, "a"},
		{"files of one domain", map[string]string{"config/a.yaml": "a"}, []string{"MERGE_DOMAIN_CONFIG", "true"}, "a"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			for file, content := range c.files {
				path := filepath.Join(root, "ratelimit", file)
				if to, link := strings.CutPrefix(content, "->"); link {
					if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
						t.Fatal(err)
					}
					if err := os.Symlink(to, path); err != nil {
						t.Fatal(err)
					}
				} else {
					write(t, path, domain(content))
				}
			}
			s := start(t, rules(root, c.env...))
			var got []string
			for _, name := range []string{"a", "b", "c"} {
				if s.codes(2, name, "a=b") == "200 429" {
					got = append(got, name)
				}
			}
			if strings.Join(got, " ") != c.want {
				t.Errorf("%q are limited, want %q", got, c.want)
			}
		})
	}
}

// An empty directory is legal, and its rules are in force when they come; a directory that does
// not exist is not.
func TestEmptyAndMissingDirectories(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	file := filepath.Join(root, "ratelimit/config/config.yaml")
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	s := start(t, rules(root))
	if got := s.codes(2, "d", "a=b"); got != "200 200" {
		t.Errorf("without rules: %s", got)
	}
	if !strings.Contains(s.Log(), "nothing is limited") {
		t.Error("the log does not say that nothing is limited")
	}
	write(t, file, limited("d", 0))
	s.eventually("the rules are in force", func() bool { return s.codes(1, "d", "a=b") == "429" })

	for _, c := range []struct {
		env  map[string]string
		want string
	}{
		{rules(filepath.Join(root, "none")), "directory " + root + "/none/ratelimit/config does not exist"},
		{rules(t.TempDir()), "/ratelimit/config does not exist"},
		{rules(emptyRoot(t), "HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED", "true"), "the directory has no file"},
		{map[string]string{"RUNTIME_ROOT": root, "RUNTIME_SUBDIRECTORY": "ratelimit"}, "REDIS_URL: must be set"},
		{rules(root, "REDIS_TYPE", "x", "BACKEND_TYPE", "redis", "REDIS_URL", "h:1", "REDIS_SOCKET_TYPE", "tcp"),
			"REDIS_TYPE"},
		{rules(root, "BACKEND_TYPE", "redis", "REDIS_URL", "h:1", "REDIS_SOCKET_TYPE", "tcp", "CACHE_KEY_PREFIX", "{a}"),
			"REDIS_URL, CACHE_KEY_PREFIX: redis URL: parameter prefix"},
	} {
		code, out, errOut := testenv.RunProgram(t, program, list(ports(t, c.env)))
		if code != 2 || !strings.Contains(errOut, c.want) {
			t.Errorf("%v: exit %d, %s%s, want %s", c.env, code, out, errOut, c.want)
		}
	}
}

func emptyRoot(t *testing.T) string {
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "ratelimit/config"), 0o755); err != nil {
		t.Fatal(err)
	}
	return root
}

// Both ways to change files are followed in both modes.
func TestRulesAreFollowed(t *testing.T) {
	t.Parallel()
	for _, watchRoot := range []string{"true", "false"} {
		t.Run("RUNTIME_WATCH_ROOT="+watchRoot, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for i := range 3 {
				write(t, filepath.Join(dir, strconv.Itoa(i), "ratelimit/config/a.yaml"), limited("d", 100+i))
			}
			current := filepath.Join(dir, "current")
			swap := func(to string) {
				t.Helper()
				if err := os.Symlink(to, current+".new"); err != nil {
					t.Fatal(err)
				}
				if err := os.Rename(current+".new", current); err != nil {
					t.Fatal(err)
				}
			}
			swap("0")
			s := start(t, rules(current, "RUNTIME_WATCH_ROOT", watchRoot))
			limit := func() uint32 {
				resp, err := s.call("d", 1, descriptor("a=b"))
				if err != nil {
					t.Fatal(err)
				}
				return resp.Statuses[0].GetCurrentLimit().GetRequestsPerUnit()
			}
			if got := limit(); got != 100 {
				t.Fatalf("the limit is %d, want 100", got)
			}
			swap("1")
			s.eventually("the symlink was exchanged", func() bool { return limit() == 101 })
			write(t, filepath.Join(dir, "1/ratelimit/config/a.yaml"), limited("d", 7))
			s.eventually("the file was written", func() bool { return limit() == 7 })
			write(t, filepath.Join(dir, "1/ratelimit/config/a.yaml"), "domain: [")
			s.eventually("the error is logged", func() bool { return strings.Contains(s.Log(), "rules not reloaded") })
			if got := limit(); got != 7 {
				t.Errorf("after an error the limit is %d, want 7", got)
			}
		})
	}
}

// A misspelt HEADGATE_* variable is refused by its name, and its value is not shown: else
// what it should have beaten would be in force in silence.
func TestMisspeltOwnVariableIsRefused(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	write(t, filepath.Join(root, "ratelimit/config/a.yaml"), limited("d", 2))
	for _, args := range [][]string{{"--print-config"}, nil} {
		code, out, errOut := testenv.RunProgram(t, program, list(rules(root, "HEADGATE_SHADOWMODE", "geheim")), args...)
		if code != 2 || !strings.Contains(errOut, "HEADGATE_SHADOWMODE") ||
			!strings.Contains(errOut, "did you mean HEADGATE_SHADOW_MODE?") || strings.Contains(out+errOut, "geheim") {
			t.Errorf("%v: exit %d: %s%s", args, code, out, errOut)
		}
	}
	// Kubernetes sets variables like these for a Service called headgate.
	env := rules(root, "HEADGATE_PORT", "tcp://10.0.0.1:8081", "HEADGATE_SERVICE_HOST", "10.0.0.1")
	if code, _, errOut := testenv.RunProgram(t, program, list(env), "--print-config"); code != 0 {
		t.Errorf("variables of Kubernetes: exit %d: %s", code, errOut)
	}
}

// HEADGATE_* variables and the file of HEADGATE_CONFIG beat the reference's.
func TestOwnNamesBeatTheReferences(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	write(t, filepath.Join(root, "ratelimit/config/a.yaml"), limited("d", 2))
	write(t, filepath.Join(root, "conf.yaml"), "shadow-mode: true\nlimit-header: from-file\n")
	env := rules(root, "SHADOW_MODE", "false", "LIMIT_LIMIT_HEADER", "x", "LIMIT_RESET_HEADER", "y", "HEADGATE_CONFIG",
		filepath.Join(root, "conf.yaml"),
		"HEADGATE_RESET_HEADER", "from-env", "REDIS_URL", "redis://:geheim@h:1", "REDIS_SOCKET_TYPE", "tcp", "BACKEND_TYPE",
		"redis", "REDIS_AUTH", "geheim",
		"HEADGATE_ADMIN_TOKEN", "geheim-geheim-geheim")
	code, out, errOut := testenv.RunProgram(t, program, list(env), "--print-config")
	if code != 0 {
		t.Fatalf("exit %d: %s", code, errOut)
	}
	for _, want := range []string{`shadow-mode: "true" # HEADGATE_CONFIG`, `limit-header: "from-file" # HEADGATE_CONFIG`,
		`reset-header: "from-env" # HEADGATE_RESET_HEADER`,
		`backend: "redis://:***@h:1" # BACKEND_TYPE, REDIS_SOCKET_TYPE, REDIS_URL, REDIS_AUTH`,
		`services: "" # as envoyproxy/ratelimit`, `admin-token: "***"`} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in:\n%s", want, out)
		}
	}
	if strings.Contains(out+errOut, "geheim") {
		t.Errorf("a secret is shown:\n%s%s", out, errOut)
	}
	// What it prints is a file for headgate serve.
	file := filepath.Join(t.TempDir(), "printed.yaml")
	write(t, file, regexp.MustCompile(`(?m)^(admin-token|backend): .*\n`).ReplaceAllString(out, ""))
	env = ports(t, rules(root, "HEADGATE_CONFIG", file))
	if code, again, errOut := testenv.RunProgram(t, program, list(env), "--print-config"); code != 0 ||
		!strings.Contains(again, `limit-header: "from-file"`) {
		t.Errorf("the printed settings cannot be read: %d %s%s", code, again, errOut)
	}
	s := start(t, rules(root, "SHADOW_MODE", "false", "HEADGATE_SHADOW_MODE", "true"))
	if got := s.codes(4, "d", "a=b"); got != "200 200 200 200" {
		t.Errorf("under HEADGATE_SHADOW_MODE: %s", got)
	}
}

// Every setting that the mode makes is one of headgate's.
func TestSettingsExist(t *testing.T) {
	t.Parallel()
	root := emptyRoot(t)
	all := map[string]string{
		"HOST": "127.0.0.1", "GRPC_HOST": "127.0.0.1", "DEBUG_HOST": "127.0.0.1", "GRPC_MAX_CONNECTION_AGE": "1h",
		"GRPC_MAX_CONNECTION_AGE_GRACE": "1h",
		"GRPC_SERVER_USE_TLS":           "true", "GRPC_SERVER_TLS_CERT": "c", "GRPC_SERVER_TLS_KEY": "k",
		"GRPC_CLIENT_TLS_CACERT": "a", "GRPC_CLIENT_TLS_SAN": "a.example.com",
		"LOG_LEVEL": "warn", "LOG_FORMAT": "json", "MERGE_DOMAIN_CONFIG": "true", "SHADOW_MODE": "true", "QUOTA_MODE": "true",
		"RESPONSE_DYNAMIC_METADATA":      "true",
		"LIMIT_RESPONSE_HEADERS_ENABLED": "true", "LIMIT_LIMIT_HEADER": "l", "LIMIT_REMAINING_HEADER": "m",
		"LIMIT_RESET_HEADER": "r",
		"USE_PROMETHEUS":     "true", "PROMETHEUS_ADDR": ":1", "PROMETHEUS_PATH": "/m", "NEAR_LIMIT_RATIO": "0.7",
	}
	xds := map[string]string{
		"CONFIG_TYPE": "GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_NODE_ID": "n", "CONFIG_GRPC_XDS_NODE_METADATA": "a=b",
		"CONFIG_GRPC_XDS_SERVER_URL":                "h:1",
		"CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS": "a:geheim", "CONFIG_GRPC_XDS_SERVER_USE_TLS": "true",
		"CONFIG_GRPC_XDS_CLIENT_TLS_CERT": "c", "CONFIG_GRPC_XDS_CLIENT_TLS_KEY": "k",
		"CONFIG_GRPC_XDS_SERVER_TLS_CACERT": "a", "CONFIG_GRPC_XDS_SERVER_TLS_SAN": "s",
		"XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES": "100000000", "FORCE_START_WITHOUT_INITIAL_CONFIG": "true",
		"HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED": "true", "GRPC_SERVER_USE_TLS": "true", "GRPC_SERVER_TLS_CERT": "c",
		"GRPC_SERVER_TLS_KEY": "k", "GRPC_SERVER_TLS_CA_CERT": "a",
	}
	for _, env := range []map[string]string{all, xds} {
		for name, value := range rules(root) {
			env[name] = value
		}
		code, out, errOut := testenv.RunProgram(t, program, list(env), "--print-config")
		if code != 0 || strings.Contains(out, "geheim") {
			t.Errorf("exit %d: %s\n%s", code, errOut, out)
		}
		for name := range env {
			if !strings.Contains(out, name) && !(env["CONFIG_TYPE"] != "" && strings.HasPrefix(name, "RUNTIME_")) {
				t.Errorf("%s is not in:\n%s", name, out)
			}
		}
		for _, m := range regexp.MustCompile(`(?m)^([a-z-]+):`).FindAllStringSubmatch(out, -1) {
			if !strings.Contains(documented.Settings(config.Settings()), "`--"+m[1]+"`") {
				t.Errorf("--unknown setting %s", m[1])
			}
		}
	}
}

// Under Envoy Gateway's names clients may show no certificate, but none of a stranger; under
// GRPC_CLIENT_TLS_CACERT they must show one, with GRPC_CLIENT_TLS_SAN a certain one.
func TestTLSOfTheReference(t *testing.T) {
	t.Parallel()
	certs := testenv.TestCerts(t)
	strangers := testenv.TestCerts(t)
	root := t.TempDir()
	write(t, filepath.Join(root, "ratelimit/config/a.yaml"), limited("d", 1000))
	server := certs.Issue(t, "envoy-rate-limit")
	tlsEnv := func(more ...string) map[string]string {
		return rules(root, append([]string{"GRPC_SERVER_USE_TLS", "true", "GRPC_SERVER_TLS_CERT", server.CertFile,
			"GRPC_SERVER_TLS_KEY", server.KeyFile}, more...)...)
	}
	friend, stranger := certs.ClientTLS(t), strangers.ClientTLS(t)
	stranger.RootCAs = certs.Pool()
	nobody := friend.Clone()
	nobody.Certificates = nil
	for _, c := range []struct {
		name                     string
		env                      map[string]string
		friend, stranger, nobody bool
	}{
		{"TLS", tlsEnv(), true, true, true},
		{"GRPC_SERVER_TLS_CA_CERT", tlsEnv("GRPC_SERVER_TLS_CA_CERT", certs.CAFile), true, false, true},
		{"GRPC_CLIENT_TLS_CACERT", tlsEnv("GRPC_CLIENT_TLS_CACERT", certs.CAFile), true, false, false},
		{"GRPC_CLIENT_TLS_SAN", tlsEnv("GRPC_CLIENT_TLS_CACERT", certs.CAFile, "GRPC_CLIENT_TLS_SAN", "localhost"), true,
			false, false},
		{"an address as GRPC_CLIENT_TLS_SAN", tlsEnv("GRPC_CLIENT_TLS_CACERT", certs.CAFile, "GRPC_CLIENT_TLS_SAN",
			"127.0.0.1"), true, false, false},
		{"another address as GRPC_CLIENT_TLS_SAN", tlsEnv("GRPC_CLIENT_TLS_CACERT", certs.CAFile, "GRPC_CLIENT_TLS_SAN",
			"127.0.0.2"), false, false, false},
		{"another GRPC_CLIENT_TLS_SAN", tlsEnv("GRPC_CLIENT_TLS_CACERT", certs.CAFile, "GRPC_CLIENT_TLS_SAN",
			"envoy.example.com"), false, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := start(t, c.env)
			for who, ok := range map[string]bool{"friend": c.friend, "stranger": c.stranger, "nobody": c.nobody} {
				conf := map[string]credentials.TransportCredentials{"friend": credentials.NewTLS(friend),
					"stranger": credentials.NewTLS(stranger), "nobody": credentials.NewTLS(nobody)}[who]
				s.creds = conf
				if _, err := s.call("d", 1, descriptor("a=b")); (err == nil) != ok {
					t.Errorf("%s: %v", who, err)
				}
			}
		})
	}
}

// The fields of the IETF's draft come beside Retry-After.
func TestIETFHeaders(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	write(t, filepath.Join(root, "ratelimit/config/a.yaml"), `domain: d
descriptors:
  - {key: a, limits: [{name: burst, algorithm: fixed_window, limit: 2, window: 1h}]}
  - {key: b, rate_limit: {unit: day, requests_per_unit: 1}}
`)
	s := start(t, rules(root, "HEADGATE_IETF_HEADERS", "true", "HEADGATE_RETRY_AFTER_HEADER", "Retry-After"))
	for _, c := range []struct {
		key, policy, fields string
		retry               bool
	}{
		{"a", `"burst";q=2;w=3600`, `^"burst";r=1;t=\d+$`, false},
		{"a", `"burst";q=2;w=3600`, `^"burst";r=0;t=\d+$`, false},
		{"a", `"burst";q=2;w=3600`, `^"burst";r=0;t=[1-9]\d*$`, true},
		{"b", `"default";q=1;w=86400`, `^"default";r=0;t=\d+$`, false},
	} {
		resp, err := s.call("d", 1, descriptor(c.key+"=x"))
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for _, h := range resp.ResponseHeadersToAdd {
			got[h.Key] = h.Value
		}
		if got["RateLimit-Policy"] != c.policy || !regexp.MustCompile(c.fields).MatchString(got["RateLimit"]) ||
			(got["Retry-After"] != "") != c.retry {
			t.Errorf("%s: %v, want %s and %s", c.key, got, c.policy, c.fields)
		}
	}
	s = start(t, rules(root))
	if resp, err := s.call("d", 1, descriptor("a=x")); err != nil || len(resp.ResponseHeadersToAdd) != 0 {
		t.Errorf("without the setting: %v, %v", resp, err)
	}
}
