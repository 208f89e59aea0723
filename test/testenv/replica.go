package testenv

import (
	"fmt"
	"path/filepath"
	"strconv"
)

// ReplicaName is what a replica calls itself, for synchronous_standby_names.
const ReplicaName = "replica"

// StartReplica starts a copy of a PostgreSQL server that follows it by streaming replication, on a port
// of its own, and waits until it answers questions. It takes writes after Promote.
func (d *Database) StartReplica() *Database {
	d.tb.Helper()
	primary := d.server
	kind := primary.kind
	kind.ready = "database system is ready to accept read-only connections"
	kind.created = func(*databaseServer) error { return nil }
	kind.prepare = func(s *databaseServer, _ databaseConfig) error {
		from := fmt.Sprintf("host=127.0.0.1 port=%d user=%s password=%s application_name=%s", primary.port, DatabaseUser, DatabasePassword, ReplicaName)
		return s.setUp(postgresProgram(s.binary, "pg_basebackup"), "-d", from, "-D", filepath.Join(s.dir, "data"),
			"--write-recovery-conf", "--wal-method=stream", "--checkpoint=fast", "--no-sync")
	}
	return start(d.tb, kind, primary.binary, nil)
}

// StopFollowing has a replica ask its primary for nothing any more, and waits until it does not.
func (d *Database) StopFollowing() {
	d.tb.Helper()
	d.ExecOn("postgres", "ALTER SYSTEM SET primary_conninfo = '';\nSELECT pg_reload_conf();")
	d.Eventually("SELECT COUNT(*) FROM pg_stat_wal_receiver;", "0")
}

// Promote makes a primary of a replica, and waits until it takes writes.
func (d *Database) Promote() {
	d.tb.Helper()
	if done := d.ExecOn("postgres", "SELECT pg_promote(true, "+strconv.Itoa(int(databaseStartLimit.Seconds()))+");"); done != "t" {
		d.tb.Fatalf("testenv: the replica was not promoted: %s", done)
	}
}

// Eventually asks until the answer is as wanted.
func (d *Database) Eventually(question, want string) {
	d.tb.Helper()
	d.EventuallyOn("postgres", question, want)
}

// EventuallyOn is Eventually on the database of this name.
func (d *Database) EventuallyOn(name, question, want string) {
	d.tb.Helper()
	Eventually(d.tb, databaseStartLimit, "have "+d.Addr+" answer "+want+" to "+question, func() string {
		if got := d.ExecOn(name, question); got != want {
			return got
		}
		return ""
	})
}
