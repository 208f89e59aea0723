package testenv

import (
	"errors"
	"sync"
)

// database is one test's hold of a server. Its methods may be called from any
// goroutine, except Restart, Exec and CreateDatabase, which end the test when
// they fail.
type database struct {
	tb     TB
	server *databaseServer
	shared bool
}

// startDatabase starts a server that the test's cleanup removes.
func startDatabase(tb TB, kind databaseKind, opts []DatabaseOption) *database {
	tb.Helper()
	binary := Require(tb, kind.engine)
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
	ran(tb, kind.engine, s.version)
	return &database{tb: tb, server: s}
}

// sharedDatabase is a server that is started by the first test that asks and ends
// with the process.
type sharedDatabase struct {
	mu     sync.Mutex
	server *databaseServer
	err    error
}

func (d *sharedDatabase) use(tb TB, kind databaseKind) *database {
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
	ran(tb, kind.engine, d.server.version)
	return &database{tb: tb, server: d.server, shared: true}
}

func (d *database) check(err error) {
	d.tb.Helper()
	if err != nil {
		d.tb.Errorf("testenv: %v", err)
	}
}

// own returns the server's process for something that only a test of its own may
// do to it, or nil.
func (d *database) own(what string) *process {
	d.tb.Helper()
	if d.shared {
		d.tb.Errorf("testenv: %s of a server that other tests use; start one for this test", what)
		return nil
	}
	return d.server.process()
}

// Kill ends the server and all its processes like a crash (SIGKILL) and waits
// until they are gone. What was committed is there after Restart.
func (d *database) Kill() {
	d.tb.Helper()
	if p := d.own("Kill"); p != nil {
		d.check(p.killTree())
	}
}

// Stop ends the server for good. The test's cleanup does so, too.
func (d *database) Stop() {
	d.tb.Helper()
	d.Kill()
}

// Pause freezes the server and all its processes (SIGSTOP): connections stay
// open and nothing answers.
func (d *database) Pause() {
	d.tb.Helper()
	if p := d.own("Pause"); p != nil {
		d.check(p.pauseTree())
	}
}

// Resume lets a paused server go on.
func (d *database) Resume() {
	d.tb.Helper()
	if p := d.own("Resume"); p != nil {
		d.check(p.resumeTree())
	}
}

// Restart kills the server if it still runs and starts it again on the same port
// with the same settings and data.
func (d *database) Restart() {
	d.tb.Helper()
	p := d.own("Restart")
	if p == nil {
		return
	}
	if err := errors.Join(p.killTree(), d.server.start()); err != nil {
		d.tb.Fatalf("testenv: restart: %v\nits log ends with:\n%s", err, tail(d.server.log, 20))
	}
}

// Running tells whether the server's process exists, paused or not.
func (d *database) Running() bool { return !d.server.process().exited() }

// URL is the address of the database app, with user and password.
func (d *database) URL() string { return d.URLOf(DatabaseName) }

// URLOf is the address of a database of this server, with user and password.
func (d *database) URLOf(name string) string { return d.server.kind.url(d.server.addr, name) }

// Exec runs SQL statements on the database app through the server's own client
// program and returns the rows they print, a line each.
func (d *database) Exec(sql string) string {
	d.tb.Helper()
	return d.ExecOn(DatabaseName, sql)
}

// ExecOn is Exec on the database of this name.
func (d *database) ExecOn(name, sql string) string {
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
func (d *database) CreateDatabase(prefix string) string {
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
