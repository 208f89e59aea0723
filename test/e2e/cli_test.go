package e2e

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/internal/app/config"
	"github.com/headgate-rls/headgate/test/documented"
	"github.com/headgate-rls/headgate/test/testenv"
)

// badRules has three errors, in lines 3, 5 and 6.
const badRules = `domain: e2e
descriptors:
- {key: a, rate_limit: {unit: fortnight, requests_per_unit: 1}}
- key: b
  rate_limits: {unit: hour, requests_per_unit: 1}
- {key: c, limits: [{algorithm: leaky_bucket}]}
`

// want checks how a command ended; parts are what its output must have.
func (r result) want(t *testing.T, code int, out []string, errOut []string) {
	t.Helper()
	if r.code != code || !containsAll(r.out, out) || !containsAll(r.errOut, errOut) {
		t.Errorf("want exit code %d, %q on stdout and %q on stderr; got %v", code, out, errOut, r)
	}
	if len(errOut) == 0 && r.errOut != "" {
		t.Errorf("want nothing on stderr; got %v", r)
	}
}

func TestVersionAndHelp(t *testing.T) {
	t.Parallel()
	command(t, nil, "version").want(t, 0, []string{"headgate " + version + "\n"}, nil)
	command(t, nil).want(t, 0, []string{"serve", "check", "ask", "version"}, nil)
	command(t, nil, "--help").want(t, 0, []string{"serve", "check", "ask", "version"}, nil)
	command(t, nil, "completion", "bash").want(t, 0, []string{"complete", "headgate"}, nil)
	command(t, nil, "nonsense").want(t, 1, nil, []string{`unknown command "nonsense"`})
	command(t, nil, "serve", "--nonsense").want(t, 1, nil, []string{"unknown flag: --nonsense"})
	command(t, nil, "serve").want(t, 2, nil, []string{"no rules to serve", "--rules", "--example"})
	command(t, nil, "serve", "nonsense").want(t, 1, nil, []string{"nonsense"})

	var flags []string
	table := documented.Settings(config.Settings())
	for _, m := range regexp.MustCompile("(?m)^\\| `(--[a-z-]+)`").FindAllStringSubmatch(table, -1) {
		flags = append(flags, m[1]+" ")
	}
	if len(flags) < 30 {
		t.Fatalf("only %d flags are found in the table of settings", len(flags))
	}
	help := command(t, nil, "serve", "--help")
	help.want(t, 0, nil, nil)
	for _, flag := range flags {
		if !strings.Contains(help.out, flag) {
			t.Errorf("serve --help does not list %s", flag)
		}
	}
}

func TestCheckFindsWhatIsWrong(t *testing.T) {
	t.Parallel()
	good, bad := writeFile(t, "good.yaml", limitRules), writeFile(t, "bad.yaml", badRules)
	warned := writeFile(t, "warned.yaml", "domain: e2e\ndescriptors:\n- {key: a, shadow_mode: true}\n")

	command(t, nil, "check", good).want(t, 0, []string{"ok: 17 rules in 1 domain"}, nil)
	command(t, nil, "check", good, "--backend", "redis://127.0.0.1:1").want(t, 0, []string{"ok"}, nil)
	command(t, nil, "check", bad).want(t, 1, []string{
		bad + ":3:", `"fortnight"`,
		bad + ":5:", `did you mean "rate_limit"?`,
		bad + ":6:", `"leaky_bucket"`,
	}, nil)
	command(t, nil, "check", warned).want(t, 0, []string{warned + ":3:", "warning: shadow_mode", "ok: 1 rule in 1 domain"},
		nil)
	command(t, nil, "check", good, bad).want(t, 1, []string{`domain "e2e" is already in`}, nil)
	command(t, nil, "check", good, filepath.Join(filepath.Dir(good), "none.yaml")).want(t, 2, nil, []string{"none.yaml"})
	command(t, nil, "check", good, "--backend", "memcache://x").want(t, 1, nil, []string{`"memcache"`, "redis"})
	command(t, nil, "check", good, "--format", "xml").want(t, 1, nil, []string{`"xml"`})
	command(t, nil, "check").want(t, 1, nil, []string{"arg"})

	for file, code := range map[string]int{good: 0, bad: 1} {
		r := command(t, nil, "check", "--format", "json", file)
		r.want(t, code, nil, nil)
		var answer struct {
			Files, Domains, Rules int
			Problems              []struct {
				File      string
				Line, Col int
				Message   string
			}
		}
		err := json.Unmarshal([]byte(r.out), &answer)
		if good := code == 0; err != nil || answer.Files != 1 || (len(answer.Problems) == 0) != good ||
			(answer.Rules > 0) != good {
			t.Errorf("check --format json: %v in %v", err, r)
		}
		for _, p := range answer.Problems {
			if p.File != file || p.Line == 0 || p.Col == 0 || p.Message == "" {
				t.Errorf("a problem lacks its place or its message: %+v", p)
			}
		}
	}
}

func TestAskShowsLimitsAndRules(t *testing.T) {
	t.Parallel()
	insideHour()
	rules := writeFile(t, "rules.yaml", limitRules)
	for name, where := range map[string][]string{
		"service": {"--addr", startService(t, "--rules", rules).GRPC},
		"unix socket": {"--addr",
			startService(t, "--rules", rules, "--grpc", "unix:"+filepath.Join(socketDir(t), "s")).GRPC},
		"abstract socket": {"--addr", startService(t, "--rules", rules, "--grpc", "unix:@"+filepath.Base(socketDir(t))).GRPC},
		"files":           {"--rules", rules},
	} {
		t.Run(name, func(t *testing.T) {
			ask := func(args ...string) result {
				return command(t, nil, append(append([]string{"ask"}, where...), args...)...)
			}
			ask("e2e", "key=wide", "-n", "3").want(t, 0, []string{"OK", "wide limit=100/1h remaining=99", "remaining=97"}, nil)
			ask("e2e", "key=five", "-n", "6").want(t, 3, []string{"remaining=0", "OVER_LIMIT", "rule=e2e/key_five:five"}, nil)
			ask("e2e", "key=refund", "--hits", "11").want(t, 3, []string{"OVER_LIMIT", "remaining=10"}, nil)
			ask("e2e", "key=nothing", "other=two").want(t, 0,
				[]string{"[key=nothing no limit]", "[other=two OK two limit=2/1h remaining=1"}, nil)
			ask("e2e", "key=open").want(t, 0, []string{"unlimited"}, nil)
			ask("e2e", `key=a\,b,c=d=e`).want(t, 0, []string{"key=a,b,c=d=e"}, nil)
			ask("e2e", "nonsense").want(t, 1, nil, []string{`"nonsense"`, "KEY=VALUE"})
		})
	}
	command(t, nil, "ask", "e2e", "key=five", "--addr", "127.0.0.1:1").want(t, 2, nil, []string{"127.0.0.1:1"})
	command(t, nil, "ask", "e2e", "key=five", "--rules", writeFile(t, "bad.yaml", badRules)).want(t, 1, nil,
		[]string{"fortnight", "leaky_bucket"})
	command(t, nil, "ask", "e2e").want(t, 1, nil, []string{"arg"})
}

// TestExampleRefusesAfterItsLimit is what the help suggests to newcomers.
func TestExampleRefusesAfterItsLimit(t *testing.T) {
	t.Parallel()
	s := startService(t, "--example")
	for _, args := range [][]string{{"ask", "--addr", s.GRPC, "example", "client=alice", "-n", "7"}} {
		command(t, nil, args...).want(t, 3, []string{"OK", "OVER_LIMIT"}, nil)
	}
	if !strings.Contains(s.Log(), "headgate ask example client=alice") {
		t.Errorf("the log does not tell what to try:\n%s", s.Log())
	}
	for path, want := range map[string]string{"/healthcheck": "OK", "/readyz": "ready"} {
		if code, body := fetch(t, s.HTTP, path); code != 200 || body != want {
			t.Errorf("%s is %d %q, want 200 %q", path, code, body, want)
		}
	}
	if _, body := fetch(t, s.Debug, "/rlconfig"); !strings.Contains(body,
		"example.client: unit=MINUTE requests_per_unit=5") {
		t.Errorf("/rlconfig is %q", body)
	}
}

func TestServeRefuses(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	addr := taken.Addr().String()
	file := filepath.Join(socketDir(t), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	bad := writeFile(t, "bad.yaml", badRules)
	settings := writeFile(t, "settings.yaml", "log_level: warn\nrules: [a, b]\nback-end: x\ncharge: [each]\n")
	wrong := map[string]bool{"bad settings, every one": true, "half of TLS": true, "no file of settings": true,
		"a bad file of settings, every line": true} // which are input; else it cannot be done
	for _, c := range []struct {
		name  string
		flags []string
		want  []string
	}{
		{"bad rules, with every problem", []string{"--rules", bad},
			[]string{bad + ":3:", "fortnight", bad + ":5:", "rate_limits", bad + ":6:", "leaky_bucket"}},
		{"no such rules", []string{"--rules", bad + "x"}, []string{bad + "x"}},
		{"a gRPC port in use", []string{"--example", "--grpc", addr},
			[]string{"--grpc " + addr, "another process listens there"}},
		{"an HTTP port in use", []string{"--example", "--grpc", "127.0.0.1:0", "--services", "", "--http", addr},
			[]string{"--http " + addr, "another process listens there"}},
		{"a debug port in use", []string{"--example", "--grpc", "127.0.0.1:0", "--services", "", "--http", "", "--debug",
			addr}, []string{"--debug " + addr, "another process listens there"}},
		{"a file in the socket's place", []string{"--example", "--grpc", "unix:" + file}, []string{file, "not a socket"}},
		{"an unknown backend", []string{"--example", "--backend", "memcache://x"}, []string{"--backend", `"memcache"`}},
		{"bad settings, every one", []string{"--charge", "some", "--log-level", "loud", "--drain-delay", "-1s"},
			[]string{"--charge", "--log-level", "--drain-delay"}},
		{"half of TLS", []string{"--grpc-tls-cert", bad}, []string{"--grpc-tls-key"}},
		{"no certificate", []string{"--example", "--grpc-tls-cert", bad, "--grpc-tls-key", bad},
			[]string{"--grpc-tls-cert " + bad}},
		{"a bad file of settings, every line", []string{"--config", settings},
			[]string{settings + ":1:1", "did you mean log-level?", ":3:1", "did you mean backend?", ":4:1", "not a list"}},
		{"no file of settings", []string{"--config", bad + "x"}, []string{bad + "x"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := command(t, nil, append([]string{"serve"}, c.flags...)...)
			code := 2
			if wrong[c.name] {
				code = 1
			}
			r.want(t, code, nil, append(c.want, "headgate: "))
			if strings.Contains(r.errOut, "Usage:") {
				t.Errorf("the message drowns in the usage: %v", r)
			}
		})
	}
}

// TestFlagWinsOverEnvironmentAndFile sets the form of the log in more and more places.
func TestFlagWinsOverEnvironmentAndFile(t *testing.T) {
	t.Parallel()
	file := writeFile(t, "headgate.yaml", "log-format: json\ngrpc: 127.0.0.1:0\nhttp: ''\ndebug: 127.0.0.1:0\nservices: "+
		"''\ndrain-delay: 0s\n")
	listen := []string{"--grpc", "127.0.0.1:0", "--http", "", "--debug", "", "--services", "", "--drain-delay", "0s"}
	for _, c := range []struct {
		name  string
		env   []string
		flags []string
		json  bool
	}{
		{"default", nil, listen, false},
		{"file over default", nil, []string{"--config", file}, true},
		{"file named in the environment", []string{"HEADGATE_CONFIG=" + file}, nil, true},
		{"environment over file", []string{"HEADGATE_LOG_FORMAT=text"}, []string{"--config", file}, false},
		{"flag over environment", []string{"HEADGATE_LOG_FORMAT=text"},
			[]string{"--config", file, "--log-format", "json"}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := testenv.StartProgram(t, program, c.env, append([]string{"serve", "--example"}, c.flags...)...)
			testenv.Eventually(t, serviceStartLimit, "start headgate", func() string {
				asText := strings.Contains(s.Log(), "msg=serving")
				asJSON := strings.Contains(s.Log(), `"msg":"serving"`)
				if asText == asJSON {
					return s.Log()
				}
				if asJSON != c.json {
					t.Errorf("the log is JSON: %v, want %v", asJSON, c.json)
				}
				return ""
			})
		})
	}
	rules := writeFile(t, "rules.yaml", limitRules)
	s := testenv.StartProgram(t, program,
		[]string{"HEADGATE_RULES=" + rules + "," + writeFile(t, "more.yaml", "domain: more\ndescriptors: [{key: a}]\n")},
		append([]string{"serve"}, listen...)...)
	testenv.Eventually(t, serviceStartLimit, "start headgate", func() string {
		if !containsAll(s.Log(), []string{"msg=serving", rules, "more.yaml"}) {
			return s.Log()
		}
		return ""
	})
}

// TestSecretsAreNeverShown has a password in every place where it may be, with a Redis that
// works, one that is away and URLs that are wrong.
func TestSecretsAreNeverShown(t *testing.T) {
	t.Parallel()
	const password = "correct-horse-battery"
	redis := testenv.StartRedis(t, testenv.WithPassword(password))
	rules := writeFile(t, "rules.yaml", limitRules)
	works := redis.URL()
	if !strings.Contains(works, password) {
		t.Fatalf("the URL %s has no password", works)
	}
	dead := fmt.Sprintf("redis://:%s@127.0.0.1:1", password)

	wantNone := func(where, text string) {
		t.Helper()
		if strings.Contains(text, password) {
			t.Errorf("%s has the password in it:\n%s", where, text)
		}
	}
	for _, url := range []string{works, dead, works + "x/y?z"} {
		r := command(t, nil, "check", rules, "--backend", url)
		wantNone("the output of check", r.String())
	}
	for _, url := range []string{
		fmt.Sprintf("redis://:%s@127.0.0.1:notaport", password),
		fmt.Sprintf("redis://:%s@127.0.0.1:1/notanumber", password),
		fmt.Sprintf("redis://:%s@127.0.0.1:1?nonsense=1", password),
		fmt.Sprintf("redis://:%s%%zz@127.0.0.1:1", password),
		fmt.Sprintf("redos://:%s@127.0.0.1:1", password),
		fmt.Sprintf(":%s@127.0.0.1:1", password),
	} {
		r := command(t, nil, "serve", "--example", "--backend", url)
		if r.code != 2 {
			t.Errorf("serve takes the backend %s: %v", url, r)
		}
		wantNone("the error about "+url, r.String())
		wantNone("the error of the environment's "+url, command(t, []string{"HEADGATE_BACKEND=" + url}, "serve",
			"--example").String())
	}
	for _, url := range []string{works, dead} {
		s := startService(t, "--rules", rules, "--backend", url, "--log-level", "debug")
		command(t, nil, "ask", "--addr", s.GRPC, "e2e", "key=five")
		if url == dead {
			testenv.Eventually(t, 10*time.Second, "have the dead backend reported", func() string {
				if !strings.Contains(s.Log(), "backend does not answer") {
					return s.Log()
				}
				return ""
			})
		}
		for _, path := range []string{"/metrics", "/rlconfig"} {
			_, body := fetch(t, s.Debug, path)
			wantNone(path, body)
		}
		_, body := fetch(t, s.HTTP, "/readyz")
		wantNone("/readyz", body)
		wantNone("the log", s.Log())
	}
}
