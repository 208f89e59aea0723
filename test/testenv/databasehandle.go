package testenv

import "sync"

// Database is one test's hold of a running server, which has the database app.
// Its methods may be called from any goroutine, except Restart, Exec and
// CreateDatabase, which end the test when they fail.
type Database struct {
	Addr    string // host:port
	Port    int
	Version string

	tb     TB
	server *databaseServer
	shared bool
}

// databaseMakes are the makes of servers, by engine, and the one of each that
// tests share.
var databaseMakes = map[string]struct {
	kind   func() databaseKind
	shared *sharedDatabase
}{
	Postgres: {postgresKind, new(sharedDatabase)},
	MariaDB:  {mariaDBKind, new(sharedDatabase)},
	MySQL:    {mySQLKind, new(sharedDatabase)},
}

// StartDatabase starts a server for this test, such as Postgres, and waits until
// it answers. It is fast and forgets what the machine's death would lose, unless
// the test wants it Durable.
func StartDatabase(tb TB, engine string, opts ...DatabaseOption) *Database {
	tb.Helper()
	kind := databaseMakes[engine].kind()
	return start(tb, kind, Require(tb, kind.engine), opts)
}

func start(tb TB, kind databaseKind, binary string, opts []DatabaseOption) *Database {
	tb.Helper()
	s, err := newDatabaseServer(kind, binary, opts)
	if err != nil {
		tb.Fatalf("testenv: %v", err)
	}
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Logf("testenv: the log of %s %s on %s ends with:\n%s", kind.title, s.version, s.addr, tail(s.log, 10))
		}
		if err := s.remove(); err != nil {
			tb.Errorf("testenv: %v", err)
		}
	})
	return s.held(tb, false)
}

// held is a test's hold of the server.
func (s *databaseServer) held(tb TB, shared bool) *Database {
	ran(tb, s.kind.engine, s.version)
	return &Database{Addr: s.addr, Port: s.port, Version: s.version, tb: tb, server: s, shared: shared}
}

// SharedDatabase returns the one server of an engine that all tests of this process
// can have: they get along by CreateDatabase. It runs until the process ends.
func SharedDatabase(tb TB, engine string) *Database {
	tb.Helper()
	return databaseMakes[engine].shared.use(tb, databaseMakes[engine].kind())
}

// sharedDatabase is a server that is started by the first test that asks and ends
// with the process.
type sharedDatabase struct {
	mu     sync.Mutex
	server *databaseServer
	err    error
}

func (d *sharedDatabase) use(tb TB, kind databaseKind) *Database {
	tb.Helper()
	binary := Require(tb, kind.engine)
	d.mu.Lock()
	defer d.mu.Unlock()
	// A server that could not be started will not be a minute later: the tests
	// hear of it at once.
	if d.server == nil && d.err == nil {
		d.server, d.err = newDatabaseServer(kind, binary, nil)
	}
	if d.err != nil {
		tb.Fatalf("testenv: %v", d.err)
	}
	return d.server.held(tb, true)
}

func (d *Database) check(err error) {
	d.tb.Helper()
	if err != nil {
		d.tb.Errorf("testenv: %v", err)
	}
}

// own returns the server's process for something that only a test of its own may
// do to it, or nil.
func (d *Database) own(what string) *process {
	d.tb.Helper()
	if d.shared {
		d.tb.Errorf("testenv: %s of a server that other tests use; start one for this test", what)
		return nil
	}
	return d.server.process()
}

// Kill ends the server and all its processes like a crash (SIGKILL) and waits
// until they are gone. What was committed is there after Restart.
func (d *Database) Kill() {
	d.tb.Helper()
	if p := d.own("Kill"); p != nil {
		d.check(p.killTree())
	}
}

// Stop ends the server for good. The test's cleanup does so, too.
func (d *Database) Stop() {
	d.tb.Helper()
	d.Kill()
}

// Pause freezes the server and all its processes (SIGSTOP): connections stay
// open and nothing answers.
func (d *Database) Pause() {
	d.tb.Helper()
	if p := d.own("Pause"); p != nil {
		d.check(p.pauseTree())
	}
}

// Resume lets a paused server go on.
func (d *Database) Resume() {
	d.tb.Helper()
	if p := d.own("Resume"); p != nil {
		d.check(p.resumeTree())
	}
}

// Restart kills the server if it still runs and starts it again on the same port
// with the same settings and data.
func (d *Database) Restart() {
	d.tb.Helper()
	if d.own("Restart") == nil {
		return
	}
	if err := d.server.restart(); err != nil {
		d.tb.Fatalf("testenv: %v", err)
	}
}

// Running reports whether the server's process exists, paused or not.
func (d *Database) Running() bool { return d.server.running() }

// PID is the server's process id. PostgreSQL has a child process for each session.
func (d *Database) PID() int { return d.server.process().cmd.Process.Pid }

// URL is the address of the database app, with user and password.
func (d *Database) URL() string { return d.URLOf(DatabaseName) }

// URLOf is the address of a database of this server, with user and password.
func (d *Database) URLOf(name string) string { return d.server.kind.url(d.server.addr, name) }

// Exec runs SQL statements on the database app through the server's own client
// program and returns the rows they print, a line each.
func (d *Database) Exec(sql string) string {
	d.tb.Helper()
	return d.ExecOn(DatabaseName, sql)
}

// ExecOn is Exec on the database of this name.
func (d *Database) ExecOn(name, sql string) string {
	d.tb.Helper()
	out, err := d.server.run(name, sql)
	if err != nil {
		d.tb.Fatalf("testenv: %v", err)
	}
	return out
}

// CreateDatabase creates an empty database and returns its URL. Its name is
// prefix, of lower-case letters, digits and _, with a number that no other test
// of the process has got. The test's cleanup drops it from a shared server.
func (d *Database) CreateDatabase(prefix string) string {
	d.tb.Helper()
	name, err := d.server.createDatabase(prefix)
	if err != nil {
		d.tb.Fatalf("testenv: create a database: %v", err)
	}
	if d.shared {
		d.tb.Cleanup(func() {
			_, err := d.server.run(d.server.kind.anyDatabase, d.server.kind.drop(name))
			d.check(err)
		})
	}
	return d.URLOf(name)
}
