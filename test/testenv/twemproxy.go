package testenv

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

const twemproxyStartLimit = 15 * time.Second

// A Twemproxy is a running nutcracker, as its package calls the program. It is both addresses of one pool of servers.
type Twemproxy struct {
	Addr   string // host:port
	Socket string // path of a Unix socket
	server *listener
}

// StartTwemproxy starts a twemproxy in front of servers, over which it spreads keys. With a password it asks clients
// for that, and logs in to the servers with it.
func StartTwemproxy(tb TB, password string, servers ...string) *Twemproxy {
	tb.Helper()
	binary := Require(tb, Nutcracker)
	dir, socket, stats := tb.TempDir(), filepath.Join(socketDir(tb), "pool.sock"), FreePort(tb)
	l := &listener{
		title: "twemproxy", log: filepath.Join(dir, "server.log"), ready: "started on pid", within: twemproxyStartLimit,
		command: func(port int) *exec.Cmd {
			file := filepath.Join(dir, fmt.Sprintf("%d.yml", port))
			pools := twemproxyPool("tcp", fmt.Sprintf("127.0.0.1:%d", port), password, servers) +
				twemproxyPool("unix", socket, password, servers)
			if err := os.WriteFile(file, []byte(pools), 0o600); err != nil {
				file += ": " + err.Error() // which its log will show
			}
			return exec.Command(binary, "--conf-file", file, "--output", filepath.Join(dir, "server.log"), "--pid-file", "",
				"--stats-addr", "127.0.0.1", "--stats-port", fmt.Sprint(stats))
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
		tb.Fatalf("testenv: %v\nits log ends with:\n%s", err, tail(l.log, 20))
	}
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Logf("testenv: the log of %s ends with:\n%s", l.name(), tail(l.log, 10))
		}
		if err := l.kill(l.process()); err != nil {
			tb.Errorf("testenv: %v", err)
		}
		l.release()
	})
	ran(tb, Nutcracker, twemproxyVersion(binary))
	return &Twemproxy{Addr: l.addr, Socket: socket, server: l}
}

func twemproxyPool(name, listen, password string, servers []string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s:\n  listen: %s\n  redis: true\n  hash: fnv1a_64\n  distribution: ketama\n  timeout: 2000\n", name,
		listen)
	if password != "" {
		fmt.Fprintf(&b, "  redis_auth: %s\n", password)
	}
	b.WriteString("  servers:\n")
	for _, addr := range servers {
		fmt.Fprintf(&b, "   - %s:1\n", addr)
	}
	return b.String()
}

// twemproxyVersion is what "This is nutcracker-0.5.0" says.
func twemproxyVersion(binary string) string {
	ctx, cancel := context.WithTimeout(context.Background(), twemproxyStartLimit)
	defer cancel()
	out, err := exec.CommandContext(ctx, binary, "--version").CombinedOutput()
	first, _, _ := strings.Cut(string(out), "\n")
	if _, version, ok := strings.Cut(first, "nutcracker-"); ok && !errors.As(err, new(*exec.Error)) {
		return strings.TrimSpace(version)
	}
	return "unknown"
}
