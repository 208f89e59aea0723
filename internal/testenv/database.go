package testenv

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// The database of the servers that testenv starts, and their login, which may do
// everything.
const (
	DatabaseName     = "app"
	DatabaseUser     = "app"
	DatabasePassword = "apppw"
)

const (
	databaseSetupLimit = 60 * time.Second
	databaseStartLimit = 30 * time.Second
	databaseAskLimit   = 60 * time.Second
)

// DatabaseOption changes how a database server is started.
type DatabaseOption func(*databaseConfig)

type databaseConfig struct {
	durable  bool
	settings []string
}

// Durable has the server wait for the disk at every commit, as in production. By
// default what was committed survives the death of the server, but not that of
// the machine.
func Durable() DatabaseOption {
	return func(c *databaseConfig) { c.durable = true }
}

// WithSettings changes settings of the server: lines of postgresql.conf, such as
// "timezone='America/New_York'", or arguments of mariadbd, such as
// "--default-time-zone=-05:00". They win over testenv's own.
func WithSettings(settings ...string) DatabaseOption {
	return func(c *databaseConfig) { c.settings = append(c.settings, settings...) }
}

// databaseKind is one make of database server: how it is set up, started and
// asked.
type databaseKind struct {
	engine string
	title  string
	user   string // whom the server runs as when the tests are root
	ready  string // what the server logs once it listens
	// version makes a version of what the server's --version prints.
	version func(printed string) string
	// prepare makes the data directory.
	prepare func(s *databaseServer, c databaseConfig) error
	// created runs once, when a new server answers.
	created func(s *databaseServer) error
	// arguments of the server's program.
	arguments func(s *databaseServer, c databaseConfig) []string
	// client makes a command that runs the SQL of its standard input.
	client func(s *databaseServer, database string) *exec.Cmd
	// anyDatabase is one that every server has.
	anyDatabase string
	url         func(addr, database string) string
	drop        func(database string) string
	// removed cleans up behind a killed server, before its directory goes.
	removed func(s *databaseServer)
}

// databaseServer is a server's process and what is needed to start it again. It
// knows nothing of tests, since several of them may share it.
type databaseServer struct {
	kind    databaseKind
	version string
	binary  string
	account account
	dir     string
	log     string
	addr    string
	port    int
	args    []string
	release func() // gives the port back

	mu     sync.Mutex
	proc   *process
	number int // of databases created
}

// newDatabaseServer sets up and starts a server.
func newDatabaseServer(kind databaseKind, binary string, opts []DatabaseOption) (*databaseServer, error) {
	var c databaseConfig
	for _, o := range opts {
		o(&c)
	}
	a, err := serverAccount(kind.user)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), databaseAskLimit)
	defer cancel()
	printed, err := exec.CommandContext(ctx, binary, "--version").Output()
	if err != nil {
		return nil, fmt.Errorf("%s --version: %w", binary, err)
	}
	s := &databaseServer{kind: kind, version: kind.version(string(printed)), binary: binary, account: a}
	if s.dir, err = newServerDir(kind.engine, a); err != nil {
		return nil, err
	}
	s.log = filepath.Join(s.dir, "server.log")
	if err := s.launch(c); err != nil {
		err = fmt.Errorf("%w\nits log ends with:\n%s", err, tail(s.log, 20))
		return nil, errors.Join(err, s.remove())
	}
	return s, nil
}

func (s *databaseServer) launch(c databaseConfig) error {
	if err := s.kind.prepare(s, c); err != nil {
		return err
	}
	for attempt := 1; ; attempt++ {
		port, release, err := reservePort()
		if err != nil {
			return err
		}
		s.port, s.addr, s.release = port, net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), release
		s.args = s.kind.arguments(s, c)
		err = s.start()
		if err == nil {
			return s.kind.created(s)
		}
		release()
		s.release = nil
		if !errors.Is(err, errPortTaken) || attempt == 5 {
			return err
		}
	}
}

// setUp runs a program that ends by itself, as the server's account.
func (s *databaseServer) setUp(path string, args ...string) error {
	name := filepath.Base(path)
	proc, err := startCommand(name, s.log, s.account.command(s.dir, path, args...))
	if err != nil {
		return err
	}
	if err := proc.wait(databaseSetupLimit); err != nil {
		return errors.Join(err, proc.kill())
	}
	if proc.err != nil {
		return fmt.Errorf("%s: %w", name, proc.err)
	}
	return nil
}

// start starts the process and waits until it answers; if it does not, no
// process is left behind.
func (s *databaseServer) start() error {
	name := s.kind.title + " on " + s.addr
	proc, err := startCommand(name, s.log, s.account.command(s.dir, s.binary, s.args...))
	if err != nil {
		return err
	}
	err = waitFor(databaseStartLimit, "start "+name, func() (bool, string, error) {
		log := proc.newLog()
		if proc.exited() {
			if strings.Contains(log, "Address already in use") {
				return false, "", errPortTaken
			}
			return false, "", fmt.Errorf("it ended by itself (%v)", proc.err)
		}
		// The log proves that it is this server which will answer.
		if !strings.Contains(log, s.kind.ready) {
			return false, "it does not listen yet", nil
		}
		if _, err := s.run(s.kind.anyDatabase, "SELECT 1;"); err != nil {
			return false, err.Error(), nil
		}
		return true, "", nil
	})
	if err != nil {
		return errors.Join(err, proc.killTree())
	}
	s.mu.Lock()
	s.proc = proc
	s.mu.Unlock()
	return nil
}

// run has the server's own client run SQL and returns the rows that it prints.
func (s *databaseServer) run(database, sql string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), databaseAskLimit)
	defer cancel()
	cmd := s.kind.client(s, database)
	var out, failure bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(sql), &out, &failure
	if err := cmd.Start(); err != nil {
		return "", fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	stop := context.AfterFunc(ctx, func() { cmd.Process.Kill() })
	defer stop()
	if err := cmd.Wait(); err != nil {
		return "", fmt.Errorf("%s on %s: %w: %s", s.kind.title, s.addr, errors.Join(err, ctx.Err()), strings.TrimSpace(failure.String()))
	}
	return strings.TrimRight(out.String(), "\n"), nil
}

func (s *databaseServer) process() *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc
}

// createDatabase creates a database whose name begins with prefix.
func (s *databaseServer) createDatabase(prefix string) (string, error) {
	s.mu.Lock()
	s.number++
	name := prefix + "_" + strconv.Itoa(s.number)
	s.mu.Unlock()
	for _, r := range name {
		if r != '_' && (r < 'a' || r > 'z') && (r < '0' || r > '9') {
			return "", fmt.Errorf("the database name %q may have lower-case letters, digits and _ only", prefix)
		}
	}
	_, err := s.run(s.kind.anyDatabase, "CREATE DATABASE "+name+";")
	return name, err
}

// remove ends the server for good and removes what it kept.
func (s *databaseServer) remove() error {
	var err error
	if proc := s.process(); proc != nil {
		err = proc.killTree()
	}
	s.kind.removed(s)
	if s.release != nil {
		s.release()
	}
	return errors.Join(err, os.RemoveAll(s.dir))
}
