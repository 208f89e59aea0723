package sqldb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
)

// migrateOp is what goes on, in errors.
const migrateOp = "migrate the schema"

// Migrate runs the scripts that the history in the database lacks, and returns their names.
// Only one process does at a time; others wait, and find the work done.
//
// Where the Schema says so, version 1 is taken over as it is if Flyway has applied it. Where DDL is not a transaction,
// every statement may be run again, so that a migration that was interrupted goes on. Where nothing is to be done, only
// the history is read: a user without the right to change the schema may call it.
//
// It is an error if a script that was applied has changed since, or if the
// database is ahead of this program.
func (db *DB) Migrate(ctx context.Context, schema Schema) (applied []string, err error) {
	m, err := db.migration(schema)
	if err != nil {
		return nil, err
	}
	pending, err := m.pending(ctx, db.Write)
	if err == nil && len(pending) == 0 {
		return nil, nil
	}
	if err != nil && KindOf(err) != Failed { // such as a history that is not there yet
		return nil, err
	}
	s, finish, err := db.Dialect.migrations.begin(ctx, db.Write)
	if err != nil {
		return nil, db.Fail(ctx, migrateOp, err)
	}
	applied, err = m.run(ctx, s)
	if err = errors.Join(err, finish(err)); err != nil {
		return nil, db.Fail(ctx, migrateOp, err)
	}
	for _, name := range applied {
		db.Log.Info("migration applied", "script", name)
	}
	return applied, nil
}

// Missing returns the names of the scripts that were never applied. It does not look whether
// what is repeatable is as it was: that may be of a newer program, which this one runs beside.
func (db *DB) Missing(ctx context.Context, schema Schema) (names []string, err error) {
	m, err := db.migration(schema)
	if err != nil {
		return nil, err
	}
	done, err := m.done(ctx, db.Read)
	for _, s := range m.scripts {
		if done[s.name] == "" {
			names = append(names, s.name)
		}
	}
	return names, err
}

// A migration brings one schema up to date in one database.
type migration struct {
	*migrations
	db      *DB
	schema  Schema
	scripts []script
}

func (db *DB) migration(schema Schema) (*migration, error) {
	scripts, err := schema.scripts(db.Dialect)
	if err != nil {
		return nil, &Error{Kind: Failed, Op: migrateOp, Err: err}
	}
	return &migration{&db.Dialect.migrations, db, schema, scripts}, nil
}

// run applies what is pending.
func (m *migration) run(ctx context.Context, s Session) (applied []string, err error) {
	history := m.schema.history(m.createHistory)
	if _, err := s.ExecContext(ctx, history.Text); err != nil && !m.isPresent(history.Text, err) {
		return nil, fmt.Errorf("make %s: %w", m.schema.History, err)
	}
	pending, err := m.pending(ctx, s)
	if err != nil || len(pending) == 0 {
		return nil, err
	}
	values := map[string]string{}
	if m.values != nil {
		if values, err = m.values(ctx, s); err != nil {
			return nil, err
		}
	}
	adopted, err := m.byFlyway(ctx, s)
	if err != nil {
		return nil, err
	}
	for _, script := range pending {
		if script.version == 1 && adopted {
			m.db.Log.Info("schema made by Flyway adopted", "script", script.name)
		} else if err := m.apply(ctx, s, script, values); err != nil {
			return nil, fmt.Errorf("%s: %w", script.name, err)
		}
		if err := m.record(ctx, s, script); err != nil {
			return nil, fmt.Errorf("%s: note it in %s: %w", script.name, m.schema.History, err)
		}
		applied = append(applied, script.name)
	}
	return applied, nil
}

// apply runs a script.
func (m *migration) apply(ctx context.Context, s Session, script script, values map[string]string) error {
	statements := script.statements(values)
	for i, text := range statements {
		if _, err := s.ExecContext(ctx, text); err != nil && !m.isPresent(text, err) {
			return fmt.Errorf("statement %d of %d: %w", i+1, len(statements), err)
		}
	}
	if m.check == nil {
		return nil
	}
	return m.check(ctx, s, m.schema)
}

// isPresent reports whether an error means that a statement's work was done before.
func (m *migration) isPresent(text string, err error) bool {
	return m.present != nil && m.present(text, err)
}

// record notes a script in the history.
func (m *migration) record(ctx context.Context, s Session, script script) error {
	for _, q := range []Query{m.schema.history(m.dropHistory, script.name),
		m.schema.history(m.addHistory, script.name, script.checksum())} {
		if _, err := s.ExecContext(ctx, q.Text, q.Args...); err != nil {
			return err
		}
	}
	return nil
}

// byFlyway reports whether Flyway has applied version 1.
func (m *migration) byFlyway(ctx context.Context, s Session) (bool, error) {
	if !m.schema.Flyway {
		return false, nil
	}
	for _, text := range []string{m.hasFlyway, m.flywayApplied} {
		var one any
		err := s.QueryRowContext(ctx, text).Scan(&one)
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
func (m *migration) pending(ctx context.Context, s Session) ([]script, error) {
	done, err := m.done(ctx, s)
	if err != nil {
		return nil, err
	}
	var pending []script
	latest := 0
	for _, script := range m.scripts {
		latest = max(latest, script.version)
		checksum, ok := done[script.name]
		switch {
		case !ok, script.repeatable() && checksum != script.checksum():
			pending = append(pending, script)
		case checksum != script.checksum():
			return nil, failed("%s says that %s was applied with checksum %s, but this program's has %s: "+
				"use the program that it was applied with, or one whose scripts were not edited", m.schema.History, script.name,
				checksum, script.checksum())
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
	return &Error{Kind: Failed, Op: migrateOp, Err: fmt.Errorf(format, args...)}
}

// done are the checksums of the scripts that were applied, by name.
func (m *migration) done(ctx context.Context, s Session) (map[string]string, error) {
	done := map[string]string{}
	query := m.schema.history("SELECT SCRIPT_NM, CHECKSUM_TX FROM ${HISTORY}")
	err := m.db.Rows(ctx, s, "read "+m.schema.History, query, func(rows *sql.Rows) error {
		var name, checksum string
		err := rows.Scan(&name, &checksum)
		done[name] = strings.TrimSpace(checksum)
		return err
	})
	return done, err
}
