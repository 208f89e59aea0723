package testenv

import (
	"fmt"
	"path/filepath"
	"strconv"
)

// postgresReplicas copy their primary and follow it by streaming replication.
type postgresReplicas struct{}

// replicaName is what a replica calls itself, for synchronous_standby_names.
const replicaName = "replica"

func (postgresReplicas) of(primary *databaseServer) (databaseKind, []DatabaseOption) {
	kind := primary.kind
	kind.ready = "database system is ready to accept read-only connections"
	kind.created = func(*databaseServer) error { return nil }
	kind.prepare = func(s *databaseServer, _ databaseConfig) error {
		from := fmt.Sprintf("host=127.0.0.1 port=%d user=%s password=%s application_name=%s", primary.port, DatabaseUser,
			DatabasePassword, replicaName)
		return s.setUp(postgresProgram(s.binary, "pg_basebackup"), "-d", from, "-D", filepath.Join(s.dir, "data"),
			"--write-recovery-conf", "--wal-method=stream", "--checkpoint=fast", "--no-sync")
	}
	return kind, nil
}

func (postgresReplicas) synchronous(primary, _ *Database) {
	primary.tb.Helper()
	primary.ExecOn("postgres", "ALTER SYSTEM SET synchronous_standby_names = '"+replicaName+"';\nSELECT pg_reload_conf();")
	primary.Eventually("postgres", "SELECT sync_state FROM pg_stat_replication;", "sync")
}

func (postgresReplicas) leave(replica *Database) {
	replica.tb.Helper()
	replica.ExecOn("postgres", "ALTER SYSTEM SET primary_conninfo = '';\nSELECT pg_reload_conf();")
	replica.Eventually("postgres", "SELECT COUNT(*) FROM pg_stat_wal_receiver;", "0")
}

func (postgresReplicas) promote(replica *Database) {
	replica.tb.Helper()
	if done := replica.ExecOn("postgres", "SELECT pg_promote(true, "+strconv.Itoa(int(databaseStartLimit.Seconds()))+
		");"); done != "t" {
		replica.tb.Fatalf("testenv: the replica was not promoted: %s", done)
	}
}
