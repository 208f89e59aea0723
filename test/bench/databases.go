package main

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/backends/layers/coalesce"
	"github.com/headgate-rls/headgate/backends/layers/prefetch"
	"github.com/headgate-rls/headgate/backends/sqlstore"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/test/testenv"
)

// What is measured of limits in databases: decisions by 64 callers of each process (a store of its
// own and its callers), beside the floor, which is what the database takes to begin, update one row
// of its own and commit, in one round trip, on as many connections.

// databaseCallers is how many callers a process has.
const databaseCallers = 64

// databaseRounds is how often a load and the floor are measured in turns.
const databaseRounds = 4

// A limitDB is a database with the schema of limits. Servers wait for the disk at each commit.
type limitDB struct {
	name, url string
	raw       *sql.DB
	floor     func(ctx context.Context, conn *sql.Conn, id int) error // one transaction
	writers   int
	pid       int    // of the server, if there is one
	size      string // asks how many bytes counters take
}

func limitDBs() []func(tb *benchTB) (*limitDB, error) {
	return []func(tb *benchTB) (*limitDB, error){floorSQLite, floorPostgres, floorMariaDB}
}

func floorSQLite(tb *benchTB) (*limitDB, error) {
	file := filepath.Join(tb.TempDir(), "limits.db")
	raw, err := sql.Open("sqlite",
		"file:"+file+"?_txlock=immediate&_pragma=busy_timeout(10000)&_pragma=journal_mode(wal)&_pragma=synchronous(full)")
	return &limitDB{name: "sqlite", url: "sqlite:" + file, raw: raw, writers: 1,
		size: "SELECT SUM(PGSIZE) FROM DBSTAT WHERE NAME LIKE '%HEADGATE_STATE%'",
		floor: func(ctx context.Context, conn *sql.Conn, id int) error {
			_, err := conn.ExecContext(ctx, fmt.Sprintf("UPDATE BENCH_FLOOR SET N = N + 1 WHERE ID = %d", id))
			return err
		}}, err
}

func floorPostgres(tb *benchTB) (*limitDB, error) {
	server := testenv.StartDatabase(tb, testenv.Postgres, testenv.Durable())
	raw, err := sql.Open("pgx", server.URL())
	return &limitDB{name: "postgres", url: server.URL(), raw: raw, writers: 64, pid: server.PID(),
		size: "SELECT pg_total_relation_size('headgate_state')",
		floor: func(ctx context.Context, conn *sql.Conn, id int) error {
			return conn.Raw(func(c any) error {
				var b pgx.Batch
				b.Queue("begin")
				b.Queue("UPDATE BENCH_FLOOR SET N = N + 1 WHERE ID = $1", id)
				b.Queue("commit")
				return c.(*stdlib.Conn).Conn().SendBatch(ctx, &b).Close()
			})
		}}, err
}

func floorMariaDB(tb *benchTB) (*limitDB, error) {
	server := testenv.StartDatabase(tb, testenv.MariaDB, testenv.Durable())
	raw, err := sql.Open("mysql", fmt.Sprintf("app:apppw@tcp(%s)/app?interpolateParams=true&multiStatements=true",
		server.Addr))
	return &limitDB{name: "mariadb", url: strings.Replace(server.URL(), "mysql:", "mariadb:", 1), raw: raw, writers: 64,
		size: "SELECT FILE_SIZE FROM information_schema.INNODB_SYS_TABLESPACES WHERE NAME LIKE '%/HEADGATE_STATE'",
		floor: func(ctx context.Context, conn *sql.Conn, id int) error {
			_, err := conn.ExecContext(ctx, "START TRANSACTION; UPDATE BENCH_FLOOR SET N = N + 1 WHERE ID = ?; COMMIT", id)
			return err
		}}, err
}

// A limitLoad is one line of the table.
type limitLoad struct {
	name      string
	processes int
	keys      int
	fresh     bool   // keys that nobody has used
	refused   bool   // by a limit of none
	parameter string // of the URL
	clocked   bool   // by the callers: the store has no clock
	auto      bool   // processes take units ahead, as the traffic needs
}

var limitLoads = []limitLoad{
	{name: "1,000 keys", processes: 1, keys: 1000},
	{name: "1,000 keys, relaxed", processes: 1, keys: 1000, parameter: "commit=relaxed"},
	{name: "1,000 keys, 3 processes", processes: 3, keys: 1000},
	{name: "hot key", processes: 1, keys: 1},
	{name: "hot key, 3 processes", processes: 3, keys: 1},
	{name: "1,000 keys, local_share auto", processes: 1, keys: 1000, auto: true},
	{name: "hot key, local_share auto", processes: 1, keys: 1, auto: true},
	{name: "hot key, auto, 3 processes", processes: 3, keys: 1, auto: true},
	{name: "100,000 keys", processes: 1, keys: 100_000},
	{name: "new keys", processes: 1, keys: 1 << 40, fresh: true},
	{name: "new keys, 3 processes", processes: 3, keys: 1 << 40, fresh: true},
	{name: "everything refused", processes: 1, keys: 1000, refused: true},
	{name: "in_flight=2", processes: 1, keys: 1000, parameter: "in_flight=2"},
}

func (b *bench) databaseTable(ctx context.Context) error {
	fmt.Printf("\nlimits in databases, %d callers per process: decisions/s, times the floor, requests per slice, "+
		"P50 and P99 in ms\n\n", databaseCallers)
	return eachLimitDB("databases", func(db *limitDB) error { return b.databaseRows(ctx, db) })
}

// eachLimitDB starts one database after the other for a table.
func eachLimitDB(table string, measure func(*limitDB) error) error {
	for _, make := range limitDBs() {
		skipped, err := withServers(table, func(tb *benchTB) error {
			db, err := make(tb)
			if err != nil {
				return err
			}
			defer db.raw.Close()
			db.raw.SetMaxOpenConns(db.writers)
			return measure(db)
		})
		if skipped != "" {
			fmt.Println("not run:", skipped)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) databaseRows(ctx context.Context, db *limitDB) error {
	if err := db.prepare(ctx); err != nil {
		return err
	}
	for _, l := range limitLoads {
		if !b.only.MatchString(db.name+" "+l.name) || l.parameter == "commit=relaxed" && db.name == "mariadb" {
			continue
		}
		if err := b.databaseRow(ctx, db, &l); err != nil {
			return fmt.Errorf("%s, %s: %w", db.name, l.name, err)
		}
	}
	return nil
}

// prepare makes the rows of the floor, and the schema.
func (db *limitDB) prepare(ctx context.Context) error {
	for _, text := range []string{"CREATE TABLE BENCH_FLOOR (ID INTEGER PRIMARY KEY, N BIGINT NOT NULL)",
		"INSERT INTO BENCH_FLOOR VALUES (0, 0), (1, 0), (2, 0), (3, 0), (4, 0), (5, 0)"} {
		if _, err := db.raw.ExecContext(ctx, text); err != nil {
			return err
		}
	}
	store, err := db.open("")
	if err != nil {
		return err
	}
	defer store.Close()
	_, err = store.Migrate(ctx)
	return err
}

// config is that of the database with one more parameter in its URL.
func (db *limitDB) config(parameter string) (sqlstore.Config, error) {
	url, mark := db.url, "?"
	if strings.Contains(url, mark) {
		mark = "&"
	}
	if parameter != "" {
		url += mark + parameter
	}
	return sqlstore.Parse(url)
}

func (db *limitDB) open(parameter string) (*sqlstore.Backend, error) {
	conf, err := db.config(parameter)
	if err != nil {
		return nil, err
	}
	conf.Timeout = 10 * time.Second // of a busy machine
	return sqlstore.Open(conf)
}

// A limitRun is what callers did, and how many calls to the store it took.
type limitRun struct {
	slotRun
	slices int64
}

func (b *bench) databaseRow(ctx context.Context, db *limitDB, l *limitLoad) error {
	conf, err := db.config(l.parameter)
	if err != nil {
		return err
	}
	var floor slotRun
	var run limitRun
	var next atomic.Int64
	open := func() (measured, error) { return db.open(l.parameter) }
	if _, err := l.decide(ctx, open, &next, b.length/databaseRounds); err != nil { // to warm up
		return err
	}
	for range databaseRounds {
		f, err := db.floors(ctx, l.processes*conf.InFlight, b.length/databaseRounds)
		if err != nil {
			return fmt.Errorf("floor: %w", err)
		}
		floor.add(f)
		r, err := l.decide(ctx, open, &next, b.length/databaseRounds)
		if err != nil {
			return err
		}
		run.add(r.slotRun)
		run.slices += r.slices
	}
	slices.Sort(run.took)
	ms := func(share float64) float64 { return quantile(run.took, share).Seconds() * 1e3 }
	fmt.Printf("%-9s %-26s %8.0f %6.1fx %6.1f %7.1f %7.1f   floor %.0f\n", db.name, l.name, run.rate(),
		run.rate()/floor.rate(),
		float64(len(run.took))/float64(run.slices), ms(0.5), ms(0.99), floor.rate())
	return nil
}

// floors runs the floor on n connections, each with a row of its own.
func (db *limitDB) floors(ctx context.Context, n int, length time.Duration) (slotRun, error) {
	conns := make([]*sql.Conn, min(n, db.writers))
	for i := range conns {
		conn, err := db.raw.Conn(ctx)
		if err != nil {
			return slotRun{}, err
		}
		defer conn.Close()
		if err := db.floor(ctx, conn, i); err != nil { // makes the statement known
			return slotRun{}, err
		}
		conns[i] = conn
	}
	end := time.Now().Add(length)
	took, err := loop(len(conns), func() bool { return time.Now().Before(end) },
		func(i int, _ time.Time) error { return db.floor(ctx, conns[i], i) })
	return slotRun{took, length}, err
}

// A measured store says what it promises.
type measured interface {
	backends.Backend
	Caps() backends.Caps
}

// counted counts calls of Take.
type counted struct {
	backends.Backend
	calls *atomic.Int64
}

func (c counted) Take(ctx context.Context, reqs []limit.Request, out []limit.Verdict) {
	c.calls.Add(1)
	c.Backend.Take(ctx, reqs, out)
}

// decide has the callers of all processes take one unit after the other.
func (l *limitLoad) decide(ctx context.Context, open func() (measured, error), next *atomic.Int64,
	length time.Duration) (limitRun, error) {
	most := int64(limit.MaxUnits)
	if l.refused {
		most = 0
	}
	lim := limit.MustNew(limit.Spec{Algorithm: limit.FixedWindow, Max: most, Window: 24 * time.Hour})
	var calls atomic.Int64
	var mu sync.Mutex
	var all limitRun
	var failed error
	var processes sync.WaitGroup
	for range l.processes {
		store, err := open()
		if err != nil {
			return all, err
		}
		caps := store.Caps()
		be := coalesce.New(counted{store, &calls}, coalesce.Config{InFlight: caps.InFlight, MaxSlice: caps.MaxSlice,
			Timeout: 10 * time.Second})
		defer be.Close()
		processes.Go(func() {
			took, err := l.process(ctx, be, &caps, lim, next, length)
			mu.Lock()
			defer mu.Unlock()
			all.took = append(all.took, took...)
			if err != nil {
				failed = err
			}
		})
	}
	processes.Wait()
	all.length, all.slices = length, calls.Load()
	return all, failed
}

// process is what a process does.
func (l *limitLoad) process(ctx context.Context, be backends.Backend, caps *backends.Caps, lim *limit.Limit,
	next *atomic.Int64, length time.Duration) ([]time.Duration, error) {
	if !l.auto {
		return l.callers(ctx, be, lim, next, length)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ahead := prefetch.New(be, caps, prefetch.Config{Replicas: l.processes}, time.Now)
	go ahead.Run(ctx)
	lim = lim.WithShare(limit.AutoShare)
	if _, err := l.callers(ctx, ahead, lim, next, 2*length); err != nil { // until it knows the traffic
		return nil, err
	}
	return l.callers(ctx, ahead, lim, next, length)
}

func (l *limitLoad) callers(ctx context.Context, be backends.Backend, lim *limit.Limit, next *atomic.Int64,
	length time.Duration) ([]time.Duration, error) {
	end := time.Now().Add(length)
	return loop(databaseCallers, func() bool { return time.Now().Before(end) }, func(int, time.Time) error {
		n := next.Add(1)
		group := fmt.Sprint("k", n%int64(l.keys))
		if l.fresh {
			group = fmt.Sprint("new", n)
		}
		at := limit.Instant(0)
		if l.clocked {
			at = limit.InstantOf(time.Now())
		}
		out := make([]limit.Verdict, 1)
		be.Take(ctx,
			[]limit.Request{{At: at, Ops: []limit.Op{{Key: limit.Key{Group: group, Limit: l.name}, Limit: lim, Cost: 1}}}}, out)
		return out[0].Err
	})
}
