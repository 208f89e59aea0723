package testenv

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	redisStartLimit = 15 * time.Second
	redisReady      = "Ready to accept connections"
)

// RedisOption changes how a Redis server is started.
type RedisOption func(*redisConfig)

type redisConfig struct {
	flavour          string
	args             []string
	password         string
	acl              []string
	tls              *Certs
	clientCerts      bool
	socket           bool
	sentinelPassword string
}

// WithFlavour chooses the program: Redis (the default), Redis62 or Valkey.
func WithFlavour(engine string) RedisOption {
	return func(c *redisConfig) { c.flavour = engine }
}

// WithArgs appends command-line arguments; they win over testenv's own.
func WithArgs(args ...string) RedisOption {
	return func(c *redisConfig) { c.args = append(c.args, args...) }
}

// WithPassword protects the default user. In a cluster and behind sentinels it
// is every server's password, and the one replicas use.
func WithPassword(password string) RedisOption {
	return func(c *redisConfig) { c.password = password }
}

// WithACL gives the users as lines of an ACL file, such as "user default off"
// and "user app on >secret ~rl:* +@all".
func WithACL(lines ...string) RedisOption {
	return func(c *redisConfig) { c.acl = append(c.acl, lines...) }
}

// WithTLS serves TLS and nothing else. With nil the server makes its own
// certificates; either way they are in RedisServer.Certs.
func WithTLS(certs *Certs) RedisOption {
	return func(c *redisConfig) {
		if certs == nil {
			certs = &Certs{} // replaced when the server starts
		}
		c.tls = certs
	}
}

// WithClientCerts has the TLS server refuse clients without a certificate.
func WithClientCerts() RedisOption {
	return func(c *redisConfig) { c.clientCerts = true }
}

// WithUnixSocket listens on a unix socket too: RedisServer.Socket.
func WithUnixSocket() RedisOption {
	return func(c *redisConfig) { c.socket = true }
}

// WithSentinelPassword protects the sentinels of StartRedisSentinel.
func WithSentinelPassword(password string) RedisOption {
	return func(c *redisConfig) { c.sentinelPassword = password }
}

// RedisServer is one running server. Its methods may be called from any
// goroutine, except Restart and Client, which end the test when they fail.
type RedisServer struct {
	Addr     string // host:port
	Port     int
	Socket   string // path of the unix socket, if asked for
	Version  string
	Password string
	Certs    *Certs // nil without TLS

	tb     TB
	binary string
	dir    string
	server *listener
}

// StartRedis starts a single server without persistence and waits until it
// answers.
func StartRedis(tb TB, opts ...RedisOption) *RedisServer {
	tb.Helper()
	c := newRedisConfig(opts)
	if c.sentinelPassword != "" {
		tb.Fatalf("testenv: WithSentinelPassword is for StartRedisSentinel")
	}
	binary := Require(tb, c.flavour)
	engine := c.flavour
	if c.tls != nil {
		if c.flavour != Redis {
			tb.Fatalf("testenv: WithTLS cannot be had with %s: its program is built without TLS", c.flavour)
		}
		engine = RedisTLS
		Require(tb, engine)
	}
	s := startRedisServer(tb, binary, c)
	ran(tb, engine, s.Version)
	return s
}

func newRedisConfig(opts []RedisOption) redisConfig {
	c := redisConfig{flavour: Redis}
	for _, o := range opts {
		o(&c)
	}
	return c
}

// startRedisServer starts a server that is a plain Redis, a cluster node or a
// replica, whatever its arguments make of it.
func startRedisServer(tb TB, binary string, c redisConfig) *RedisServer {
	tb.Helper()
	s := &RedisServer{tb: tb, binary: binary, dir: tb.TempDir(), Password: c.password}
	version, err := redisVersion(binary)
	if err != nil {
		tb.Fatalf("testenv: %v", err)
	}
	s.Version = version

	args := []string{"--bind", "127.0.0.1", "--dir", s.dir, "--save", "", "--appendonly", "no"}
	if !strings.HasPrefix(version, "6.") && !strings.HasPrefix(version, "5.") {
		// DEBUG SLEEP and the like are off by default since 7.0; before, they
		// are always on and the setting is an error.
		args = append(args, "--enable-debug-command", "yes")
	}
	if c.password != "" {
		args = append(args, "--requirepass", c.password)
	}
	if len(c.acl) > 0 {
		if c.password != "" {
			tb.Fatalf("testenv: WithPassword and WithACL exclude each other: give the default user its password in the ACL")
		}
		file := filepath.Join(s.dir, "users.acl")
		if err := os.WriteFile(file, []byte(strings.Join(c.acl, "\n")+"\n"), 0o600); err != nil {
			tb.Fatalf("testenv: write the ACL file: %v", err)
		}
		args = append(args, "--aclfile", file)
	}
	if c.socket {
		s.Socket = filepath.Join(socketDir(tb), "redis.sock")
		args = append(args, "--unixsocket", s.Socket, "--unixsocketperm", "700")
	}
	if c.tls != nil {
		s.Certs = c.tls
		if s.Certs.CAFile == "" {
			s.Certs = TestCerts(tb)
		}
		auth := "optional"
		if c.clientCerts {
			auth = "yes"
		}
		args = append(args, "--tls-cert-file", s.Certs.Server.CertFile, "--tls-key-file", s.Certs.Server.KeyFile,
			"--tls-ca-cert-file", s.Certs.CAFile, "--tls-auth-clients", auth)
	} else if c.clientCerts {
		tb.Fatalf("testenv: WithClientCerts needs WithTLS")
	}
	args = append(args, c.args...)

	s.launch(redisReady, func(port int) []string {
		p := strconv.Itoa(port)
		if s.Certs != nil {
			return append([]string{"--port", "0", "--tls-port", p}, args...)
		}
		return append([]string{"--port", p}, args...)
	})
	return s
}

// socketDir is short: the path of a unix socket has room for 108 bytes only,
// and the directories of tests are long.
func socketDir(tb TB) string {
	tb.Helper()
	dir, err := os.MkdirTemp(tempRoot(), "hg-")
	if err != nil {
		tb.Fatalf("testenv: make a directory for a socket: %v", err)
	}
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// launch starts the server for the first time. It is ready when it logs so.
func (s *RedisServer) launch(ready string, argsFor func(port int) []string) {
	s.tb.Helper()
	s.server = &listener{
		title: "Redis", log: filepath.Join(s.dir, "server.log"), ready: ready, within: redisStartLimit,
		command: func(port int) *exec.Cmd { return exec.Command(s.binary, argsFor(port)...) },
		answers: s.ping, kill: (*process).kill,
	}
	if err := s.server.launch(); err != nil {
		s.tb.Fatalf("testenv: %v\nits log ends with:\n%s", err, tail(s.server.log, 20))
	}
	s.Addr, s.Port = s.server.addr, s.server.port
	s.tb.Cleanup(s.cleanup)
}

func (s *RedisServer) cleanup() {
	if s.tb.Failed() {
		s.tb.Logf("testenv: the log of Redis %s on %s ends with:\n%s", s.Version, s.Addr, tail(s.server.log, 10))
	}
	s.Stop()
	s.server.release()
}

// ping checks that the server answers commands. It needs no password: being
// asked for one is an answer.
func (s *RedisServer) ping() error {
	const limit = time.Second
	conn, err := net.DialTimeout("tcp", s.server.addr, limit)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(limit)); err != nil {
		return err
	}
	if s.Certs != nil {
		config, err := s.Certs.clientTLS()
		if err != nil {
			return err
		}
		config.ServerName = "localhost"
		conn = tls.Client(conn, config)
	}
	if _, err := conn.Write([]byte("PING\r\n")); err != nil {
		return err
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return err
	}
	if !strings.HasPrefix(line, "+PONG") && !strings.HasPrefix(line, "-NOAUTH") {
		return fmt.Errorf("it answers a ping with %q", strings.TrimSpace(line))
	}
	return nil
}

func (s *RedisServer) check(err error) {
	s.tb.Helper()
	if err != nil {
		s.tb.Errorf("testenv: %v", err)
	}
}

// Kill ends the server like a crash (SIGKILL) and waits until it is gone.
func (s *RedisServer) Kill() {
	s.tb.Helper()
	s.check(s.server.process().kill())
}

// Stop ends the server for good. The test's cleanup calls it; since there is
// nothing to save it is the same as Kill.
func (s *RedisServer) Stop() {
	s.tb.Helper()
	s.Kill()
}

// Pause freezes the server (SIGSTOP): connections stay open and nothing
// answers.
func (s *RedisServer) Pause() {
	s.tb.Helper()
	s.check(s.server.process().pause())
}

// Resume lets a paused server go on.
func (s *RedisServer) Resume() {
	s.tb.Helper()
	s.check(s.server.process().resume())
}

// Restart ends the server if it still runs and starts it again on the same port
// with the same arguments, empty.
func (s *RedisServer) Restart() {
	s.tb.Helper()
	if err := s.server.restart(); err != nil {
		s.tb.Fatalf("testenv: %v", err)
	}
}

// Running reports whether the process exists, paused or not.
func (s *RedisServer) Running() bool { return s.server.running() }

// URL is the server's address as a Redis URL of the default user; rediss with
// TLS.
func (s *RedisServer) URL() string { return s.URLFor("", s.Password) }

// URLFor is the server's address as a Redis URL of the given user.
func (s *RedisServer) URLFor(user, password string) string {
	u := url.URL{Scheme: "redis", Host: s.Addr, Path: "/0"}
	if s.Certs != nil {
		u.Scheme = "rediss"
	}
	if user != "" || password != "" {
		u.User = url.UserPassword(user, password)
	}
	return u.String()
}

// Options connect a go-redis client to the server as the default user.
func (s *RedisServer) Options() *redis.Options {
	o := &redis.Options{Addr: s.Addr, Password: s.Password}
	if s.Certs != nil {
		config, err := s.Certs.clientTLS()
		if err != nil {
			s.tb.Fatalf("testenv: %v", err)
		}
		o.TLSConfig = config
	}
	return o
}

// Client returns a client of the default user that is closed by the test's
// cleanup.
func (s *RedisServer) Client() *redis.Client {
	c := redis.NewClient(s.Options())
	s.tb.Cleanup(func() { _ = c.Close() })
	return c
}

// probe is a client for testenv's own questions: it gives up soon, since the
// server may be frozen, and never asks twice.
func (s *RedisServer) probe() *redis.Client {
	o := s.Options()
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout = time.Second, time.Second, time.Second
	o.ContextTimeoutEnabled = true
	o.MaxRetries, o.DialerRetries = -1, 1
	o.PoolSize = 1
	return redis.NewClient(o)
}

// askRedis runs f with a probe of the server. One that is known to be dead is
// not asked: the client would only fill the log of the tests.
func askRedis[T any](s *RedisServer, f func(context.Context, *redis.Client) (T, error)) (T, error) {
	if !s.Running() {
		var none T
		return none, fmt.Errorf("the Redis on %s does not run", s.Addr)
	}
	c := s.probe()
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	v, err := f(ctx, c)
	if err != nil {
		err = fmt.Errorf("ask the Redis on %s: %w", s.Addr, err)
	}
	return v, err
}

var redisVersionPattern = regexp.MustCompile(`\bv=([0-9]+(\.[0-9]+)+)`)

func redisVersion(binary string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, binary, "--version").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s --version: %w: %s", binary, err, out)
	}
	m := redisVersionPattern.FindSubmatch(out)
	if m == nil {
		return "", fmt.Errorf("%s --version names no version: %s", binary, out)
	}
	return string(m[1]), nil
}
