package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/headgate-rls/headgate/slots"
)

// Migrate implements slots.Store: it runs the scripts that the history in the
// database, RL_SCHEMA_HISTORY, lacks. Only one process does at a time; others
// wait, and find the work done.
//
// A schema that Flyway made, version 1, is taken over as it is. So are tables
// that somebody made by hand after the documented schema: version 1 leaves alone
// what is there. Where DDL is no transaction, every statement may be run again, so
// that a migration that was interrupted goes on. Where nothing is to be done, only
// the history is read: a user without the right to change the schema may call it.
//
// It is an error if a script that was applied has changed since, or if the
// database is ahead of this program.
func (db *DB) Migrate(ctx context.Context) (applied []string, err error) {
	const op = "migrate the schema"
	pending, err := db.pending(ctx, db.pools.write)
	if err == nil && len(pending) == 0 {
		return nil, nil
	}
	if err != nil && slots.KindOf(err) != slots.Failed { // such as a history that is not there yet
		return nil, err
	}
	s, finish, err := db.dialect.migrations.begin(ctx, db.pools.write)
	if err != nil {
		return nil, db.fail(ctx, op, err)
	}
	applied, err = db.migrate(ctx, s)
	if err = errors.Join(err, finish(err)); err != nil {
		return nil, db.fail(ctx, op, err)
	}
	for _, name := range applied {
		db.log.Info("a migration was applied", "script", name)
	}
	return applied, nil
}

// migrate runs what is pending.
func (db *DB) migrate(ctx context.Context, s session) (applied []string, err error) {
	m := &db.dialect.migrations
	if _, err := s.ExecContext(ctx, m.createHistory.text); err != nil && !db.present(m.createHistory.text, err) {
		return nil, fmt.Errorf("make RL_SCHEMA_HISTORY: %w", err)
	}
	pending, err := db.pending(ctx, s)
	if err != nil || len(pending) == 0 {
		return nil, err
	}
	values := map[string]string{}
	if m.values != nil {
		if values, err = m.values(ctx, s); err != nil {
			return nil, err
		}
	}
	adopted, err := db.byFlyway(ctx, s)
	if err != nil {
		return nil, err
	}
	for _, script := range pending {
		if script.version == 1 && adopted {
			db.log.Info("the schema that Flyway made is taken over", "script", script.name)
		} else if err := db.apply(ctx, s, script, values); err != nil {
			return nil, fmt.Errorf("%s: %w", script.name, err)
		}
		if err := db.record(ctx, s, script); err != nil {
			return nil, fmt.Errorf("%s: note it in RL_SCHEMA_HISTORY: %w", script.name, err)
		}
		applied = append(applied, script.name)
	}
	return applied, nil
}

// apply runs a script.
func (db *DB) apply(ctx context.Context, s session, script script, values map[string]string) error {
	statements := script.statements(values)
	for i, text := range statements {
		if _, err := s.ExecContext(ctx, text); err != nil && !db.present(text, err) {
			return fmt.Errorf("statement %d of %d: %w", i+1, len(statements), err)
		}
	}
	if db.dialect.migrations.check == nil {
		return nil
	}
	return db.dialect.migrations.check(ctx, s)
}

// present tells whether an error means that a statement's work was done before.
func (db *DB) present(text string, err error) bool {
	present := db.dialect.migrations.present
	return present != nil && present(text, err)
}

// record notes a script in the history.
func (db *DB) record(ctx context.Context, s session, script script) error {
	m := &db.dialect.migrations
	for _, q := range []query{m.dropHistory.with(script.name), m.addHistory.with(script.name, script.checksum())} {
		if _, err := s.ExecContext(ctx, q.text, q.args...); err != nil {
			return err
		}
	}
	return nil
}

// byFlyway tells whether Flyway has applied version 1.
func (db *DB) byFlyway(ctx context.Context, s session) (bool, error) {
	m := &db.dialect.migrations
	for _, q := range []statement{m.hasFlyway, m.flywayApplied} {
		var one any
		err := s.QueryRowContext(ctx, q.text).Scan(&one)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			return false, nil
		case err != nil:
			return false, fmt.Errorf("look for Flyway's history: %w", err)
		}
	}
	return true, nil
}

// pending are the scripts that were not applied, or, if they are repeatable, not
// as they are now.
func (db *DB) pending(ctx context.Context, s session) ([]script, error) {
	done, err := db.history(ctx, s)
	if err != nil {
		return nil, err
	}
	var pending []script
	latest := 0
	for _, script := range db.dialect.scripts() {
		latest = max(latest, script.version)
		checksum, ok := done[script.name]
		switch {
		case !ok, script.repeatable() && checksum != script.checksum():
			pending = append(pending, script)
		case checksum != script.checksum():
			return nil, failed("RL_SCHEMA_HISTORY says that %s was applied with checksum %s, but this program's has %s: "+
				"use the program that it was applied with, or one whose scripts were not edited", script.name, checksum, script.checksum())
		}
	}
	for name := range done {
		if v := version(name); v > latest {
			return nil, failed("the database has version %d of the schema (%s), and this program knows up to %d: "+
				"use a program at least as new as the one that migrated the database", v, name, latest)
		}
	}
	return pending, nil
}

func failed(format string, args ...any) error {
	return &slots.StoreError{Kind: slots.Failed, Op: "migrate the schema", Err: fmt.Errorf(format, args...)}
}

// history are the checksums of the scripts that were applied, by name.
func (db *DB) history(ctx context.Context, s session) (map[string]string, error) {
	done := map[string]string{}
	err := db.rows(ctx, s, "read RL_SCHEMA_HISTORY", db.dialect.migrations.history.with(), func(rows *sql.Rows) error {
		var name, checksum string
		err := rows.Scan(&name, &checksum)
		done[name] = strings.TrimSpace(checksum)
		return err
	})
	return done, err
}
