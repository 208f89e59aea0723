package sqlstore

import (
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/slots"
)

// names of the scripts that a dialect has.
func names(t *testing.T, d *dialect) (all []string) {
	t.Helper()
	for _, s := range scriptsOf(t, d.Dialect) {
		all = append(all, s.name)
	}
	return all
}

func TestMigrateTwice(t *testing.T) {
	each(t, func(t *testing.T, url string) {
		db := mustOpen(t, url)
		wantError(t, db.Ping(soon(t)), "the tables of slots are missing: run headgate migrate")
		applied, err := db.Migrate(soon(t))
		check(t, err)
		if want := names(t, db.dialect); !slices.Equal(applied, want) {
			t.Fatalf("applied %v, want %v", applied, want)
		}
		check(t, db.Ping(soon(t)))
		if applied, err := db.Migrate(soon(t)); err != nil || len(applied) > 0 {
			t.Fatalf("the second time: %v, %v", applied, err)
		}
	})
}

// Once the schema is there, a service needs no right to change it.
func TestMigrateNeedsDataRightsOnlyWhereNothingIsToDo(t *testing.T) {
	eachServer(t, func(t *testing.T, address string) {
		admin := mustOpen(t, address)
		u, err := url.Parse(address)
		check(t, err)
		name := strings.TrimPrefix(u.Path, "/") + "_user"
		u.User = url.UserPassword(name, "secret")
		if admin.dialect.Name == "postgres" {
			mustExec(t, admin.sql.Write, "CREATE ROLE "+name+" LOGIN PASSWORD 'secret'")
			t.Cleanup(func() { mustExec(t, mustOpen(t, address).sql.Write, "DROP OWNED BY "+name, "DROP ROLE "+name) })
		} else {
			mustExec(t, admin.sql.Write, "CREATE USER "+name+" IDENTIFIED BY 'secret'")
			t.Cleanup(func() { mustExec(t, mustOpen(t, address).sql.Write, "DROP USER "+name) })
			mustExec(t, admin.sql.Write, "GRANT SELECT, INSERT, UPDATE, DELETE, EXECUTE ON "+strings.TrimPrefix(u.Path, "/")+
				".* TO "+name)
		}
		user := mustOpen(t, u.String())
		if _, err := user.Migrate(soon(t)); err == nil {
			t.Error("a user with data rights only has made a schema")
		}
		_, err = admin.Migrate(soon(t))
		check(t, err)
		if admin.dialect.Name == "postgres" {
			mustExec(t, admin.sql.Write, "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO "+name)
		}
		if applied, err := user.Migrate(soon(t)); err != nil || len(applied) > 0 {
			t.Errorf("with the schema up to date: applied %v, %v", applied, err)
		}
		check(t, user.Ping(soon(t)))
	})
}

// Ten processes start at once.
func TestMigrateTogether(t *testing.T) {
	each(t, func(t *testing.T, url string) {
		if url == "sqlite::memory:" {
			t.Skip("nobody else can open it")
		}
		var wg sync.WaitGroup
		var mu sync.Mutex
		var applied []string
		for range 10 {
			db := mustOpen(t, url)
			wg.Go(func() {
				some, err := db.Migrate(soon(t))
				if err != nil {
					t.Errorf("migrate: %v", err)
				}
				mu.Lock()
				defer mu.Unlock()
				applied = append(applied, some...)
			})
		}
		wg.Wait()
		if want := names(t, mustOpen(t, url).dialect); !slices.Equal(applied, want) {
			t.Errorf("applied %v, want each once: %v", applied, want)
		}
	})
}

// A script that was edited after it was applied is an error; a repeatable one is
// applied again; a newer database is an error that says what to do.
func TestMigrateChecksums(t *testing.T) {
	eachMigrated(t, func(t *testing.T, db *DB) {
		history := "UPDATE RL_SCHEMA_HISTORY SET CHECKSUM_TX = 'old' WHERE SCRIPT_NM = "
		for _, name := range names(t, db.dialect) {
			if strings.HasPrefix(name, "V") {
				continue
			}
			mustExec(t, db.sql.Write, history+"'"+name+"'")
			check(t, db.Ping(soon(t))) // a newer program may have applied it
			applied, err := db.Migrate(soon(t))
			if err != nil || !slices.Equal(applied, []string{name}) {
				t.Fatalf("%s has changed, applied %v, %v", name, applied, err)
			}
		}
		mustExec(t, db.sql.Write, "INSERT INTO RL_SCHEMA_HISTORY (SCRIPT_NM, CHECKSUM_TX, "+
			"APPLIED_TS) SELECT 'V99__more.sql', CHECKSUM_TX, APPLIED_TS FROM RL_SCHEMA_HISTORY WHERE SCRIPT_NM LIKE 'V1%'")
		_, err := db.Migrate(soon(t))
		wantError(t, err, "version 99", "V99__more.sql", "use a program at least as new")
		check(t, db.Ping(soon(t)))

		mustExec(t, db.sql.Write, "DELETE FROM RL_SCHEMA_HISTORY WHERE SCRIPT_NM LIKE 'V99%'",
			history+"'V2__scope_and_size.sql'")
		_, err = db.Migrate(soon(t))
		wantError(t, err, "V2__scope_and_size.sql", "checksum old")
		if slots.KindOf(err) != slots.Failed {
			t.Errorf("kind %v", slots.KindOf(err))
		}
		mustExec(t, db.sql.Write, "DELETE FROM RL_SCHEMA_HISTORY WHERE SCRIPT_NM = 'V2__scope_and_size.sql'")
		wantError(t, db.Ping(soon(t)), "lacks V2__scope_and_size.sql", "headgate migrate")
	})
}

// flyway is what Flyway leaves behind on each kind of database, as far as it matters
// here.
const flyway = "CREATE TABLE flyway_schema_history (installed_rank INT NOT NULL, version VARCHAR(50), " +
	"description VARCHAR(200) NOT NULL, success BOOLEAN NOT NULL)"

// existing makes a database of version 1 with two events, and two active versions
// of one config.
func existing(t *testing.T, db *DB, v1 []string) {
	t.Helper()
	mustExec(t, db.sql.Write, v1...)
	at := func(ms int64) any { return db.at(ms) }
	place := func(n int) string {
		var marks []string
		for i := range n {
			marks = append(marks, map[string]string{"postgres": "$" + string(rune('1'+i))}[db.dialect.Name])
			if marks[i] == "" {
				marks[i] = "?"
			}
		}
		return " VALUES (" + strings.Join(marks, ", ") + ")"
	}
	insert := func(text string, args ...any) {
		t.Helper()
		if _, err := db.sql.Write.ExecContext(soon(t), "INSERT INTO "+text+place(len(args)), args...); err != nil {
			t.Fatal(err)
		}
	}
	insert("RL_EVENT_WNDW_CONFIG (RL_WNDW_CONFIG_ID, WNDW_CONFIG_NM, WNDW_MAX_EVENT_CT, WNDW_SIZE_ISO_DUR_TX, "+
		"CONFIG_EFF_STRT_DT, ACT_IN, CREAT_TS)", "c1", "default", 5, "PT4S", at(0), 1, at(1000))
	insert("RL_EVENT_WNDW_CONFIG (RL_WNDW_CONFIG_ID, WNDW_CONFIG_NM, WNDW_MAX_EVENT_CT, WNDW_SIZE_ISO_DUR_TX, "+
		"CONFIG_EFF_STRT_DT, ACT_IN, CREAT_TS)", "c2", "default", 7, "PT4S", at(0), 1, at(2000))
	insert("RL_EVENT_WNDW_CONFIG (RL_WNDW_CONFIG_ID, WNDW_CONFIG_NM, WNDW_MAX_EVENT_CT, WNDW_SIZE_ISO_DUR_TX, "+
		"CONFIG_EFF_STRT_DT, ACT_IN, CREAT_TS)", "c0", "default", 7, "PT4S", at(0), 1, at(2000))
	insert("RL_WNDW_CT (WNDW_STRT_TS, SLOT_CT, CREAT_TS)", at(1_793_512_788_000), 2, at(0))
	insert("RL_WNDW_FRONTIER_TRK (REQ_TS, WNDW_END_TS, CREAT_TS)", at(1_793_512_788_000), at(1_793_512_800_000), at(0))
	for _, id := range []string{"a", "b"} {
		insert("RL_EVENT_SLOT_DTL (WNDW_SLOT_ID, EVENT_ID, REQ_TS, WNDW_STRT_TS, COMPUTED_SCHED_TS, "+
			"RL_WNDW_CONFIG_ID, CREAT_TS)",
			"s"+id, "e"+id, at(1_793_512_788_000), at(1_793_512_788_000), at(1_793_512_790_123), "c1", at(3000))
	}
}

// adopted checks a migrated database that was made by existing.
func adopted(t *testing.T, db *DB) {
	t.Helper()
	found, err := db.Find(soon(t), []string{"ea", "eb", "EA", "ea "})
	check(t, err)
	if len(found) != 2 {
		t.Fatalf("found %+v, want ea and eb", found)
	}
	want := slots.Slot{ID: "sa", EventID: "ea", Series: slots.Series{Scope: "*"}, RequestedUs: 1_793_512_788_000_000,
		WindowMs: 1_793_512_788_000, ScheduledMs: 1_793_512_790_123, ConfigID: "c1", CreatedUs: 3_000_000}
	if !slices.Contains(found, want) {
		t.Errorf("found %+v, want %+v", found, want)
	}
	c, err := db.ActiveConfig(soon(t), "default")
	if err != nil || c.ID != "c2" || c.Max != 7 || c.SizeMs != 4000 || c.CreatedUs != 2_000_000 {
		t.Errorf("config %+v, %v; want c2, the newest", c, err)
	}
	if n := one(t, db.sql.Read, "SELECT COUNT(*) FROM RL_EVENT_WNDW_CONFIG WHERE ACT_IN = 1"); n != "1" {
		t.Errorf("%s active versions", n)
	}
	// The new counter knows the slots; the old one does not change.
	s := slots.Series{Scope: "*", SizeMs: 4000}
	_, err = db.Provision(soon(t), s, 1_793_512_784_000, 1_793_512_796_000, nil)
	check(t, err)
	windows, err := db.Windows(soon(t), s, 0, 1<<42, 10)
	check(t, err)
	if want := []slots.Window{{StartMs: 1_793_512_784_000}, {StartMs: 1_793_512_788_000, Count: 2},
		{StartMs: 1_793_512_792_000}}; !slices.Equal(windows, want) {
		t.Errorf("windows %v, want %v", windows, want)
	}
	if n := one(t, db.sql.Read, "SELECT SLOT_CT FROM RL_WNDW_CT WHERE WNDW_SIZE_MS = 0"); n != "2" {
		t.Errorf("the old counter is %s", n)
	}
	check(t, db.Ping(soon(t)))
}

// A schema that Flyway made is taken over with its data.
func TestMigrateAdoptsFlyway(t *testing.T) {
	each(t, func(t *testing.T, url string) {
		db := mustOpen(t, url)
		v1 := scriptsOf(t, db.dialect.Dialect)[0].statements(collation(t, db))
		existing(t, db, append(v1, flyway, "INSERT INTO flyway_schema_history VALUES (1, '1', 'rate limiter schema', TRUE)"))
		_, err := db.Migrate(soon(t))
		check(t, err)
		adopted(t, db)
	})
}

// How configs count is decided by the slots that are still to come: those of a schema
// that was adopted count together.
func TestMigrateAdoptsTheScope(t *testing.T) {
	each(t, func(t *testing.T, url string) {
		db := mustOpen(t, url)
		existing(t, db, scriptsOf(t, db.dialect.Dialect)[0].statements(collation(t, db)))
		future := db.at(time.Now().Add(time.Hour).UnixMilli())
		place := "?"
		if db.dialect.Name == "postgres" {
			place = "$1"
		}
		_, err := db.sql.Write.ExecContext(soon(t), "UPDATE RL_EVENT_SLOT_DTL SET COMPUTED_SCHED_TS = "+place, future)
		check(t, err)
		_, err = db.Migrate(soon(t))
		check(t, err)
		if scope, err := db.Scope(soon(t), slots.ScopeConfig); scope != slots.ScopeShared || err != nil {
			t.Errorf("configs count by %q, %v; want shared", scope, err)
		}
		if ok, err := db.Adopted(soon(t)); !ok || err != nil {
			t.Errorf("not adopted: %v", err)
		}
	})
}

// The first caller decides how a new database counts, for ever.
func TestScopeIsDecidedOnce(t *testing.T) {
	eachMigrated(t, func(t *testing.T, db *DB) {
		for _, want := range []string{slots.ScopeShared, slots.ScopeConfig, ""} {
			if scope, err := db.Scope(soon(t), want); scope != slots.ScopeShared || err != nil {
				t.Errorf("asked for %q: %q, %v; want shared", want, scope, err)
			}
		}
		if ok, err := db.Adopted(soon(t)); ok || err != nil {
			t.Errorf("adopted: %v, %v", ok, err)
		}
		s, err := slots.NewScheduler(db, slots.Settings{Scope: slots.ScopeConfig})
		check(t, err)
		wantError(t, s.Scope(soon(t)), "shared", "config")
	})
}

// So are tables without the indexes, with the database's default collation, and
// with other types of time.
func TestMigrateAdoptsTables(t *testing.T) {
	each(t, func(t *testing.T, url string) {
		db := mustOpen(t, url)
		db.sql.Write.SetMaxOpenConns(2) // in memory one is kept
		v1 := scriptsOf(t, db.dialect.Dialect)[0].statements(collation(t, db))
		var rough []string
		for _, text := range v1 {
			text = strings.NewReplacer(" COLLATE ${COLLATION}", "", " COLLATE \"C\"", "", "TIMESTAMPTZ", "TIMESTAMP",
				"DEFAULT clock_timestamp()", "",
				" COLLATE utf8mb4_nopad_bin", "", " COLLATE utf8mb4_0900_bin", "").Replace(text)
			if strings.Contains(text, "CREATE TABLE") {
				rough = append(rough, text)
			}
		}
		if db.dialect.Name == "postgres" {
			mustExec(t, db.sql.Write, "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET timezone = ''America/New_York''', "+
				"current_database()); END $$")
			db = mustOpen(t, url)
			mustExec(t, db.sql.Write, rough...)
			rough = nil
			db.sql.Write.SetMaxOpenConns(1)
			mustExec(t, db.sql.Write, "SET timezone = 'UTC'") // for what existing writes
		}
		existing(t, db, rough)
		db = mustOpenAgain(t, db, url)
		_, err := db.Migrate(soon(t))
		check(t, err)
		adopted(t, db)
	})
}

// mustOpenAgain opens a database anew, unless it is in memory.
func mustOpenAgain(t *testing.T, db *DB, url string) *DB {
	t.Helper()
	if url == "sqlite::memory:" {
		return db
	}
	return mustOpen(t, url)
}

// collation is that of ids in MySQL or MariaDB.
func collation(t *testing.T, db *DB) string {
	t.Helper()
	if db.dialect.Name == "mysql" && strings.Contains(one(t, db.sql.Read, "SELECT VERSION()"), "MariaDB") {
		return "utf8mb4_nopad_bin"
	}
	return "utf8mb4_0900_bin"
}

// isThere are errors of statements whose work was done before.
var isThere = regexp.MustCompile(`already exists|Duplicate (column|key) name|check that .*exists|check that it exists`)

// A migration that was interrupted goes on, where DDL is no transaction.
func TestMigrateGoesOn(t *testing.T) {
	each(t, func(t *testing.T, url string) {
		db := mustOpen(t, url)
		if db.dialect.Name != "mysql" {
			t.Skip("a migration is a transaction")
		}
		var all []string
		for _, s := range scriptsOf(t, db.dialect.Dialect)[:3] {
			all = append(all, s.statements(collation(t, db))...)
		}
		for n := range len(all) {
			fresh := mustOpen(t, url)
			for _, text := range all[:n] {
				if _, err := fresh.sql.Write.ExecContext(soon(t), text); err != nil && !isThere.MatchString(err.Error()) {
					t.Fatalf("%s: %v", text, err)
				}
			}
		}
		_, err := db.Migrate(soon(t))
		check(t, err)
		check(t, db.Ping(soon(t)))
		if n := one(t, db.sql.Read, "SELECT COUNT(*) FROM RL_SLOT_CTL"); n != "2" {
			t.Errorf("%s rows in RL_SLOT_CTL", n)
		}
	})
}

// What Print tells an administrator does what Migrate does.
func TestPrintedMigrationsDoWhatMigrateDoes(t *testing.T) {
	for _, scheme := range []string{"sqlite", "postgres", "postgresql", "mysql", "mariadb", "oracle"} {
		text, err := Print(scheme)
		check(t, err)
		if strings.Contains(text, "${") || !strings.Contains(text, "V2__scope_and_size.sql") {
			t.Errorf("%s: %s", scheme, text)
		}
	}
	if _, err := Print("db2"); err == nil || !strings.Contains(err.Error(), "postgres") {
		t.Errorf("an unknown database: %v", err)
	}
}

// runClient has a database's own client program run a script.
func runClient(t *testing.T, url, text string, name string, args ...string) {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		t.Skipf("there is no %s", name)
	}
	cmd := exec.CommandContext(soon(t), name, args...)
	cmd.Stdin = strings.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", name, err, out)
	}
	db := mustOpen(t, url)
	check(t, db.Ping(soon(t)))
	if applied, err := db.Migrate(soon(t)); err != nil || len(applied) > 0 {
		t.Fatalf("afterwards Migrate applied %v, %v", applied, err)
	}
}

func TestPrintRuns(t *testing.T) {
	for _, s := range servers() {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			address := s.create(t)
			text, err := Print(strings.SplitN(address, ":", 2)[0])
			if s.name == "mariadb" { // its URL says mysql
				text, err = Print("mariadb")
			}
			check(t, err)
			client(t, s.name, address, text)
		})
	}
}

// client runs a script by the client of a kind of database.
func client(t *testing.T, kind, address, text string) {
	t.Helper()
	u, err := url.Parse(strings.Replace(address, "sqlite:", "sqlite://x", 1))
	check(t, err)
	secret, _ := u.User.Password()
	switch kind {
	case "postgres":
		runClient(t, address, text, "psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", address)
	case "mariadb", "mysql":
		options := filepath.Join(t.TempDir(), "my.cnf")
		check(t, os.WriteFile(options, []byte("[client]\npassword="+secret+"\n"), 0o600))
		runClient(t, address, text, "mariadb", "--defaults-extra-file="+options, "-h", u.Hostname(), "-P", u.Port(), "-u",
			u.User.Username(), strings.TrimPrefix(u.Path, "/"))
	case "sqlite":
		runClient(t, address, text, "sqlite3", "-bail", strings.TrimPrefix(address, "sqlite:"))
	default:
		t.Skip("this has no client program")
	}
}

// A program that knows an older schema cannot write to this one: it would take counters of
// earlier epochs for true.
func TestOlderProgramsCannotWrite(t *testing.T) {
	eachMigrated(t, func(t *testing.T, db *DB) {
		schedule(t, db, "old", 0, 1)
		// The columns that such a program fills in.
		for table, text := range map[string]string{
			"slots": "INSERT INTO RL_EVENT_SLOT_DTL (" + slotColumns + ") SELECT 'an-id', 'an-event', " +
				strings.TrimPrefix(slotColumns, "WNDW_SLOT_ID, EVENT_ID, ") + " FROM RL_EVENT_SLOT_DTL",
			"configs": "INSERT INTO RL_EVENT_WNDW_CONFIG (" + configColumns + ") SELECT 'an-id', 'a-name', " +
				strings.TrimPrefix(configColumns, "RL_WNDW_CONFIG_ID, WNDW_CONFIG_NM, ") + " FROM RL_EVENT_WNDW_CONFIG",
		} {
			_, err := db.sql.Write.ExecContext(soon(t), text)
			if err == nil || !strings.Contains(strings.ToUpper(err.Error()), "SCHEMA_NB") {
				t.Errorf("%s by an older program: %v; want an error that names SCHEMA_NB", table, err)
			}
		}
		if n := one(t, db.sql.Write, "SELECT COUNT(*) FROM RL_EVENT_SLOT_DTL"); n != "1" {
			t.Errorf("there are %s slots", n)
		}
	})
}
