package testenv

import (
	"fmt"
	"strings"
)

// A binlogReplicas is how servers of MariaDB or MySQL follow one another: from the beginning, by global
// transaction ids. The texts are those of one of the two.
type binlogReplicas struct {
	settings   []string // of primaries and replicas
	source     string   // of the source's port
	start      string
	stopAsking string
	stop       string
	state      string // a row that says "has read all relay log" when there is nothing left to apply
	primary    string // has commits wait for a replica
	replica    string // has it say what it has got
	waiting    string // how many replicas commits wait for
}

func mariaDBReplicas() binlogReplicas {
	return binlogReplicas{
		settings: []string{"--log-slave-updates=ON"},
		source: "CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = %d, MASTER_USER = '%s', " +
			"MASTER_PASSWORD = '%s', MASTER_USE_GTID = slave_pos;",
		start: "START SLAVE;", stopAsking: "STOP SLAVE IO_THREAD;", stop: "STOP SLAVE; RESET SLAVE ALL;",
		state: "SHOW SLAVE STATUS;",
		// A minute, so that no commit of a test goes on without its replica.
		primary: "SET GLOBAL rpl_semi_sync_master_timeout = 60000, GLOBAL rpl_semi_sync_master_enabled = ON;",
		replica: "SET GLOBAL rpl_semi_sync_slave_enabled = ON;",
		waiting: "SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = " +
			"'RPL_SEMI_SYNC_MASTER_CLIENTS';",
	}
}

func mySQLReplicas() binlogReplicas {
	return binlogReplicas{
		settings: []string{"--gtid-mode=ON", "--enforce-gtid-consistency=ON"},
		source: "CHANGE REPLICATION SOURCE TO SOURCE_HOST = '127.0.0.1', SOURCE_PORT = %d, SOURCE_USER = '%s', " +
			"SOURCE_PASSWORD = '%s'," +
			" SOURCE_AUTO_POSITION = 1, GET_SOURCE_PUBLIC_KEY = 1;",
		start: "START REPLICA;", stopAsking: "STOP REPLICA IO_THREAD;", stop: "STOP REPLICA; RESET REPLICA ALL;",
		state: "SHOW REPLICA STATUS;",
		primary: "INSTALL PLUGIN rpl_semi_sync_source SONAME 'semisync_source.so';\n" +
			"SET GLOBAL rpl_semi_sync_source_timeout = 60000, GLOBAL rpl_semi_sync_source_enabled = ON;",
		replica: "INSTALL PLUGIN rpl_semi_sync_replica SONAME 'semisync_replica.so';\n" +
			"SET GLOBAL rpl_semi_sync_replica_enabled = ON;",
		waiting: "SELECT VARIABLE_VALUE FROM performance_schema.global_status WHERE VARIABLE_NAME = " +
			"'Rpl_semi_sync_source_clients';",
	}
}

// binlogSettings are those of a server that others follow.
func (r binlogReplicas) binlogSettings(server int) []string {
	return append([]string{"--log-bin=binlog", fmt.Sprintf("--server-id=%d", server), "--binlog-format=ROW"},
		r.settings...)
}

func (r binlogReplicas) of(primary *databaseServer) (databaseKind, []DatabaseOption) {
	kind := primary.kind
	created := kind.created
	kind.created = func(s *databaseServer) error {
		if err := created(s); err != nil {
			return err
		}
		_, err := s.run(kind.anyDatabase, fmt.Sprintf(r.source, primary.port, DatabaseUser, DatabasePassword)+"\n"+r.start)
		return err
	}
	return kind, []DatabaseOption{WithSettings(append(r.binlogSettings(2), "--read-only=ON")...)}
}

func (r binlogReplicas) synchronous(primary, replica *Database) {
	primary.tb.Helper()
	any := primary.server.kind.anyDatabase
	primary.ExecOn(any, r.primary) // first: a replica asks once
	replica.ExecOn(any, r.replica+"\n"+r.stopAsking+"\n"+r.start)
	primary.Eventually(any, r.waiting, "1")
}

func (r binlogReplicas) leave(replica *Database) {
	replica.tb.Helper()
	replica.ExecOn(replica.server.kind.anyDatabase, r.stopAsking)
}

func (r binlogReplicas) promote(replica *Database) {
	replica.tb.Helper()
	any := replica.server.kind.anyDatabase
	replica.ExecOn(any, r.stopAsking)
	Eventually(replica.tb, databaseStartLimit, "apply what the replica has got", func() string {
		if state := replica.ExecOn(any, r.state); !strings.Contains(state, "has read all relay log") {
			return state
		}
		return ""
	})
	replica.ExecOn(any, r.stop+"\nSET GLOBAL read_only = OFF;")
}
