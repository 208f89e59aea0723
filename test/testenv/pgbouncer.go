package testenv

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Pool modes of PgBouncer.
const (
	PoolSession     = "session"
	PoolTransaction = "transaction"
)

const pgBouncerStartLimit = 20 * time.Second

// A Pooler is a running PgBouncer.
type Pooler struct {
	Addr string // host:port
}

// StartPgBouncer starts a PgBouncer in front of a PostgreSQL server, with the settings
// of its package but for the pool mode and further lines of pgbouncer.ini. It knows
// the server's login and all of its databases.
func StartPgBouncer(tb TB, server *Database, mode string, settings ...string) *Pooler {
	tb.Helper()
	binary := Require(tb, PgBouncer)
	p, err := newPgBouncer(binary, server, append(settings, "pool_mode = "+mode))
	if err != nil {
		tb.Fatalf("testenv: %v", err)
	}
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Logf("testenv: the log of %s ends with:\n%s", p.name(), tail(p.log, 10))
		}
		if err := errors.Join(p.kill(p.process()), os.RemoveAll(filepath.Dir(p.log))); err != nil {
			tb.Errorf("testenv: %v", err)
		}
		p.release()
	})
	ran(tb, PgBouncer, pgBouncerVersion(binary))
	return &Pooler{Addr: p.addr}
}

// URLOf is a URL of the server with the pooler's address instead of the server's.
func (p *Pooler) URLOf(server string) string {
	u, err := url.Parse(server)
	if err != nil {
		return server // testenv made it
	}
	u.Host = p.Addr
	return u.String()
}

func newPgBouncer(binary string, server *Database, settings []string) (*listener, error) {
	a, err := serverAccount(postgresKind().user) // it refuses to run as root, too
	if err != nil {
		return nil, err
	}
	dir, err := newServerDir(PgBouncer, a)
	if err != nil {
		return nil, err
	}
	l := &listener{
		title: "PgBouncer", log: filepath.Join(dir, "server.log"), ready: "process up", within: pgBouncerStartLimit,
		command: func(port int) *exec.Cmd {
			file := filepath.Join(dir, fmt.Sprintf("%d.ini", port))
			if err := writePgBouncer(file, a, server, settings, port); err != nil {
				file += ": " + err.Error() // which its log will show
			}
			return a.command(dir, binary, file)
		},
		kill: (*process).kill,
	}
	l.answers = func() error {
		conn, err := net.DialTimeout("tcp", l.addr, time.Second)
		if err != nil {
			return err
		}
		return conn.Close()
	}
	if err := l.launch(); err != nil {
		err = fmt.Errorf("%w\nits log ends with:\n%s", err, tail(l.log, 20))
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return l, nil
}

func writePgBouncer(file string, a account, server *Database, settings []string, port int) error {
	users := file + ".users"
	for name, text := range map[string]string{
		users: fmt.Sprintf("%q %q\n", DatabaseUser, DatabasePassword),
		file: strings.Join([]string{
			"[databases]",
			fmt.Sprintf("* = host=127.0.0.1 port=%d", server.Port),
			"[pgbouncer]",
			"listen_addr = 127.0.0.1",
			fmt.Sprintf("listen_port = %d", port),
			"unix_socket_dir =",
			"auth_type = md5",
			"auth_file = " + users,
			"max_client_conn = 500",
			"default_pool_size = 120",
			strings.Join(settings, "\n"),
			"",
		}, "\n"),
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			return err
		}
		if err := a.own(name); err != nil {
			return err
		}
	}
	return nil
}

// pgBouncerVersion is what "PgBouncer 1.18.0" on the first of several lines says.
func pgBouncerVersion(binary string) string {
	ctx, cancel := context.WithTimeout(context.Background(), pgBouncerStartLimit)
	defer cancel()
	out, err := exec.CommandContext(ctx, binary, "--version").Output()
	first, _, _ := strings.Cut(string(out), "\n")
	if err != nil {
		return "unknown"
	}
	return strings.TrimPrefix(first, "PgBouncer ")
}
