package testenv

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
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
	data     string
	primary  bool
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

// WithData has the server keep its data in an empty directory that belongs to its user, such as a Disk's.
func WithData(dir string) DatabaseOption {
	return func(c *databaseConfig) { c.data = dir }
}

// Primary has the server write what replicas follow. See StartReplica.
func Primary() DatabaseOption {
	return func(c *databaseConfig) { c.primary = true }
}

// databaseKind is one make of database server: how it is set up, started and
// asked.
type databaseKind struct {
	engine string
	title  string
	user   string // the user that the server runs as when the tests are root; empty: root
	ready  string // what the server logs once it listens
	// version makes a version of what the server's --version prints.
	version func(printed string) string
	// prepare makes the data directory.
	prepare func(s *databaseServer, c databaseConfig) error
	// created runs once, when a new server answers.
	created func(s *databaseServer) error
	// arguments of the server's program.
	arguments func(dir string, port int, c databaseConfig) []string
	// client makes a command that runs the SQL of its standard input.
	client func(s *databaseServer, database string) *exec.Cmd
	// anyDatabase is one that every server has.
	anyDatabase string
	url         func(addr, database string) string
	drop        func(database string) string
	// replicas is how servers follow one another.
	replicas replication
	// removed cleans up behind a killed server, before its directory goes.
	removed func(s *databaseServer)
}

// databaseServer is a server's process and what is needed to start it again. It
// knows nothing of tests, since several of them may share it.
type databaseServer struct {
	kind      databaseKind
	version   string
	binary    string
	account   account
	dir       string
	databases atomic.Int64 // how many were created
	listener
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
	if c.data != "" {
		if err := os.Symlink(c.data, filepath.Join(s.dir, "data")); err != nil {
			return nil, errors.Join(err, s.remove())
		}
	}
	s.listener = listener{
		title: kind.title, log: filepath.Join(s.dir, "server.log"), ready: kind.ready, within: databaseStartLimit,
		command: func(port int) *exec.Cmd { return a.command(s.dir, binary, kind.arguments(s.dir, port, c)...) },
		answers: func() error {
			_, err := s.run(kind.anyDatabase, "SELECT 1;")
			return err
		},
		kill: (*process).killTree,
	}
	err = kind.prepare(s, c)
	if err == nil {
		err = s.launch()
	}
	if err == nil {
		err = kind.created(s)
	}
	if err != nil {
		err = fmt.Errorf("%w\nits log ends with:\n%s", err, tail(s.log, 20))
		return nil, errors.Join(err, s.remove())
	}
	return s, nil
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
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	defer stop()
	if err := cmd.Wait(); err != nil {
		return "", fmt.Errorf("%s on %s: %w: %s", s.title, s.addr, errors.Join(err, ctx.Err()),
			strings.TrimSpace(failure.String()))
	}
	return strings.TrimRight(out.String(), "\n"), nil
}

// createDatabase creates a database whose name begins with prefix.
func (s *databaseServer) createDatabase(prefix string) (string, error) {
	name := fmt.Sprintf("%s_%d", prefix, s.databases.Add(1))
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
		err = s.kill(proc)
	}
	s.kind.removed(s)
	if s.release != nil {
		s.release()
	}
	return errors.Join(err, os.RemoveAll(s.dir))
}
