package main

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate-rls/headgate/test/testenv"
)

// A badLine is a command line with a mistake, and how the error begins.
type badLine struct{ args, want string }

// areExplained: a bad command line gets one line that says what is wrong and where, and what may have been meant.
func areExplained(t *testing.T, lines []badLine) {
	t.Helper()
	for _, c := range lines {
		code, out := headgate(t, strings.Fields(c.args)...)
		if code != exitProblems && code != exitError && code != exitNo || !strings.HasPrefix(out, "headgate: "+c.want) ||
			strings.Count(out, "\n") != 1 {
			t.Errorf("%s: exit code %d, %q, want one line with %q", c.args, code, out, c.want)
		}
	}
}

func TestBadCommandLinesAreExplained(t *testing.T) {
	t.Chdir(t.TempDir())
	certs := testenv.TestCerts(t)
	key := certs.Server.KeyFile
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	rules := writeRules(t, "domain: example\ndescriptors: [{key: client}]\n")
	areExplained(t, []badLine{
		{"serve", "no rules to serve: name files or directories with --rules (HEADGATE_RULES), or put them into ./rules; " +
			"to try headgate, --example serves a built-in example"},
		{"serve --bakend memory://", "unknown flag: --bakend; did you mean --backend?"},
		{"serve --grpc_keepalive=1s", "unknown flag: --grpc_keepalive; did you mean --grpc-keepalive?"},
		{"serve --nonsense", "unknown flag: --nonsense"},
		{"serve -rules x", "unknown shorthand flag: 'r' in -rules; did you mean --rules?"},
		{"serve --replicas two", `--replicas: "two" is not a valid int: want a whole number`},
		{"serve --drain-delay 5", `--drain-delay: "5" is not a valid duration: want a duration such as 500ms, 5s or 2m`},
		{"serve --shadow-mode=perhaps", `--shadow-mode: "perhaps" is not a valid bool: want true or false`},
		{"serve rules/", `"rules/": headgate serve takes flags only`},
		{"serv", `unknown command "serv" for "headgate"; did you mean serve?`},
		{"help serv", `unknown command "serv" for "headgate"; did you mean serve?`},
		{"ask d k=v --hits -1", `--hits: "-1" is not a valid uint32: want a whole number from 0 to 4294967295`},
		{"ask d k=v --addr :1 --rules x", "--addr, --rules: give one of them only"},
		{"explain --key a --request-id b", "--key, --request-id: give one of them only"},
		{"explain d k=v --key a", `"d": with --key or --request-id, headgate explain takes no DOMAIN and no KEY=VALUE`},
		{"ask d k=v --adr x", "unknown flag: --adr; did you mean --addr?"},
		{"check x --formt json", "unknown flag: --formt; did you mean --format?"},
		{"serve --example --grpc 127.0.0.1:0 --grpc-tls-cert none --grpc-tls-key " + key,
			"--grpc-tls-cert none, --grpc-tls-key " + key + ": open none"},
		{"serve --example --grpc 127.0.0.1:0 --services= --http= --debug " + taken.Addr().String(),
			"--debug " + taken.Addr().String() + ": address already in use; another process listens there"},
		{"serve --example --grpc 192.0.2.1:8081",
			"--grpc 192.0.2.1:8081: cannot assign requested address; this machine does not have the address"},
		{"serve --example --grpc unix:none/s", "--grpc unix:none/s: no such file or directory; create the directory first"},
		{"serve --example --grpc unix:/" + strings.Repeat("x", 200), "--grpc: the path has 201 bytes"},
		{"serve --rules none", "--rules: none: no such file or directory"},
		{"serve --example --config none", "--config: read configuration: none: no such file or directory"},
		{"check none", "none: no such file or directory"},
		{"check", "arguments are missing: headgate check PATH…"},
		{"ask d", "arguments are missing: headgate ask DOMAIN KEY=VALUE"},
		{"ask d k=v --addr 127.0.0.1:1", "no answer: service at 127.0.0.1:1: dial tcp 127.0.0.1:1: connect: " +
			"connection refused; is it running? --addr says where"},
		{"ask exampel client=a --rules " + rules, `"exampel": no such domain; there are: "example"; did you mean "example"?`},
		{"ask d k=v --addr 8081", `--addr: "8081" is not an address: want host:port`},
		{"ask d k=v --addr ftp://127.0.0.1:8081", `--addr: "ftp://127.0.0.1:8081" is not an address`},
		{"ask d k=v --addr http://127.0.0.1", `--addr: "127.0.0.1" is not an address: want host:port`},
	})
}

func TestRulesDirectoryIsServedByDefault(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	if err := os.Mkdir(filepath.Join(dir, "rules"), 0o700); err != nil {
		t.Fatal(err)
	}
	if code, out := headgate(t, "serve", "--grpc", "127.0.0.1:0"); code != exitError ||
		!strings.Contains(out, "rules: no rules: the directory has no *.yaml") {
		t.Errorf("an empty directory: %d %s", code, out)
	}
}

func TestUnknownVariablesAreLogged(t *testing.T) {
	t.Setenv("HEADGATE_BACKNED", "redis://:secret@h")
	r := startServe(t)
	if log := r.Log.String(); !strings.Contains(log, "level=WARN") || !strings.Contains(log,
		"HEADGATE_BACKNED has no effect; did you mean HEADGATE_BACKEND?") || strings.Contains(log, "secret") {
		t.Errorf("the log:\n%s", log)
	}
}
