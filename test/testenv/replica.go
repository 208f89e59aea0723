package testenv

// A replication is how servers of a kind follow one another.
type replication interface {
	// of makes of a primary's kind that of a replica.
	of(primary *databaseServer) (kind databaseKind, opts []DatabaseOption)
	// synchronous has a primary answer a commit when its replica has it.
	synchronous(primary, replica *Database)
	// leave has a replica ask its primary for nothing any more.
	leave(replica *Database)
	// promote has it take writes, once it has applied all that it has got.
	promote(replica *Database)
}

// StartReplica starts a server that follows a Primary, on a port of its own, and waits until it answers
// questions. If synchronous, a commit waits for it from then on. It takes writes after Promote.
func (d *Database) StartReplica(synchronous bool) *Database {
	d.tb.Helper()
	kind, opts := d.server.kind.replicas.of(d.server)
	replica := start(d.tb, kind, d.server.binary, opts)
	if synchronous {
		kind.replicas.synchronous(d, replica)
	}
	return replica
}

// StopFollowing has a replica ask its primary for nothing any more, and waits until it does not.
func (d *Database) StopFollowing() {
	d.tb.Helper()
	d.server.kind.replicas.leave(d)
}

// Promote makes a primary of a replica, and waits until it takes writes.
func (d *Database) Promote() {
	d.tb.Helper()
	d.server.kind.replicas.promote(d)
}

// Eventually asks the database of this name, which need not be there yet, until the answer is as wanted.
func (d *Database) Eventually(name, question, want string) {
	d.tb.Helper()
	Eventually(d.tb, databaseStartLimit, "have "+d.Addr+" answer "+want+" to "+question, func() string {
		got, err := d.server.run(name, question)
		switch {
		case err != nil:
			return err.Error()
		case got != want:
			return "its answer is " + got
		}
		return ""
	})
}
