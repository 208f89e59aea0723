package sqldb

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
)

// A Schema is what an owner's migrations bring up to date: tables, and what goes with them.
//
// Files has the folder migrations, and in it one for each dialect, by its name, with scripts that are named as
// Flyway would: V1__what_it_does.sql are applied once, in order; R__what_it_makes.sql after them, and
// again when they have changed. A line that holds only "/" separates statements, which are
// sent as they are. In MySQL's, ${COLLATION} is one that compares bytes and does not pad.
type Schema struct {
	Files fs.FS
	// History is the table that notes which scripts were applied. It is made if it is not
	// there. Each owner in a database has one of its own.
	History string
	// Flyway: version 1 may have been applied by Flyway, and is taken over then.
	Flyway bool
	// Packages and Functions are what the scripts make that a database may accept although it
	// does not compile.
	Packages, Functions []string
}

// history fills in the name of the history's table.
func (schema Schema) history(text string) string {
	return strings.ReplaceAll(text, "${HISTORY}", schema.History)
}

// note are the statements that note a script in the history.
func (schema Schema) note(d *Dialect, s script) []Query {
	return []Query{
		d.Query(schema.history("DELETE FROM ${HISTORY} WHERE SCRIPT_NM = ?"), s.name),
		d.Query(schema.history("INSERT INTO ${HISTORY} (SCRIPT_NM, CHECKSUM_TX, APPLIED_TS) VALUES (?, ?, "+d.Now+")"),
			s.name, s.checksum()),
	}
}

// A script is one file.
type script struct {
	name    string
	version int // 0 if it is repeatable
	text    string
}

func (s script) repeatable() bool { return s.version == 0 }

// checksum is the SHA-256 of the text.
func (s script) checksum() string {
	return fmt.Sprintf("%x", sha256.Sum256([]byte(s.text)))
}

// statements splits the script and fills in ${NAME}s.
func (s script) statements(values map[string]string) []string {
	text := s.text
	for name, value := range values {
		text = strings.ReplaceAll(text, "${"+name+"}", value)
	}
	var all []string
	for _, statement := range separator.Split(text, -1) {
		if uncommented(statement) != "" {
			all = append(all, strings.TrimSpace(statement))
		}
	}
	return all
}

// separator is a line that holds only a slash.
var separator = regexp.MustCompile(`(?m)^[ \t]*/[ \t]*$`)

// uncommented is a statement without the lines of comments that it begins with.
func uncommented(text string) string {
	for text = strings.TrimSpace(text); strings.HasPrefix(text, "--"); text = strings.TrimSpace(text) {
		_, text, _ = strings.Cut(text, "\n")
	}
	return text
}

// version is the number in a script's name, 0 if it has none.
func version(name string) (n int) {
	if _, err := fmt.Sscanf(name, "V%d__", &n); err != nil {
		return 0
	}
	return n
}

// scripts are those for a dialect, in the order to apply them in.
func (schema Schema) scripts(d *Dialect) ([]script, error) {
	folder := path.Join("migrations", d.Name)
	entries, err := fs.ReadDir(schema.Files, folder)
	if err != nil {
		return nil, err
	}
	var all []script
	for _, e := range entries {
		text, err := fs.ReadFile(schema.Files, path.Join(folder, e.Name()))
		if err != nil {
			return nil, err
		}
		all = append(all, script{e.Name(), version(e.Name()), strings.ReplaceAll(string(text), "\r\n", "\n")})
	}
	slices.SortFunc(all, inOrder)
	return all, nil
}

// inOrder puts versions before what is repeatable.
func inOrder(a, b script) int {
	if a.repeatable() != b.repeatable() {
		return b.version - a.version
	}
	if a.version != b.version {
		return a.version - b.version
	}
	return strings.Compare(a.name, b.name)
}

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
	if _, err := s.ExecContext(ctx, history); err != nil && !m.isPresent(history, err) {
		return nil, fmt.Errorf("make %s: %w", m.schema.History, err)
	}
	pending, err := m.pending(ctx, s)
	if err != nil || len(pending) == 0 {
		return nil, err
	}
	values := map[string]string{}
	if m.values != nil {
		var version string
		if err := s.QueryRowContext(ctx, m.version).Scan(&version); err != nil {
			return nil, err
		}
		values = m.values(version)
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
		for _, q := range m.schema.note(m.db.Dialect, script) {
			if _, err := s.ExecContext(ctx, q.Text, q.Args...); err != nil {
				return nil, fmt.Errorf("%s: note it in %s: %w", script.name, m.schema.History, err)
			}
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
			return nil, m.failed("%s says that %s was applied with checksum %s, but this program's has %s: "+
				"use the program that it was applied with, or one whose scripts were not edited", m.schema.History, script.name,
				checksum, script.checksum())
		}
	}
	for name := range done {
		if v := version(name); v > latest {
			return nil, m.failed("the database has version %d of the schema (%s), and this program knows up to %d: "+
				"use a program at least as new as the one that migrated the database", v, name, latest)
		}
	}
	return pending, nil
}

func (m *migration) failed(format string, args ...any) error {
	return m.db.errors(&Error{Kind: Failed, Op: migrateOp, Err: fmt.Errorf(format, args...)})
}

// done are the checksums of the scripts that were applied, by name.
func (m *migration) done(ctx context.Context, s Session) (map[string]string, error) {
	done := map[string]string{}
	query := Query{Text: m.schema.history("SELECT SCRIPT_NM, CHECKSUM_TX FROM ${HISTORY}")}
	err := m.db.Rows(ctx, s, "read "+m.schema.History, query, func(rows *sql.Rows) error {
		var name, checksum string
		err := rows.Scan(&name, &checksum)
		done[name] = strings.TrimSpace(checksum)
		return err
	})
	return done, err
}

// Print returns all scripts for the database of a scheme, such as "postgres" or
// "mariadb", as one that its own client program can run on an empty schema. They
// note themselves in the history, so that Migrate finds nothing to do.
func (schema Schema) Print(scheme string) (string, error) {
	d, err := dialectOf(scheme)
	if err != nil {
		return "", err
	}
	scripts, err := schema.scripts(d)
	if err != nil {
		return "", err
	}
	m := &d.migrations
	var values map[string]string
	if m.values != nil {
		values = m.values(scheme)
	}
	var b strings.Builder
	b.WriteString(m.printHead)
	b.WriteString(schema.history(m.createHistory) + m.printEnd + "\n")
	for _, s := range scripts {
		fmt.Fprintf(&b, "\n-- %s\n", s.name)
		texts := s.statements(values)
		for _, q := range schema.note(d, s) {
			texts = append(texts, literal(q))
		}
		for _, text := range texts {
			b.WriteString(text + m.printEnd + "\n")
		}
	}
	b.WriteString(m.printTail)
	for _, name := range schema.Packages {
		b.WriteString(strings.ReplaceAll(m.printPackage, "${PACKAGE}", name))
	}
	return b.String(), nil
}

var placeholder = regexp.MustCompile(`\?[0-9]*|[$:][0-9]+`)

// literal puts a query's arguments, which are plain words, into its text.
func literal(q Query) string {
	return placeholder.ReplaceAllStringFunc(q.Text, func(string) string {
		arg := q.Args[0]
		q.Args = q.Args[1:]
		return fmt.Sprintf("'%s'", arg)
	})
}
