package main

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/google/uuid"

	"github.com/headgate-rls/headgate/slots"
	"github.com/headgate-rls/headgate/slots/sqlstore"
	"github.com/headgate-rls/headgate/test/testenv"
)

// The slots table measures assignments by so many callers, all of them for one
// instant (burst), or for instants spread over some minutes in windows that never
// get full; and beside them the raw floor, which is what the database takes to begin,
// insert the same row, add one to the same counter, and commit.
const (
	slotSizeMs = 4000
	burstMax   = 100
	spreadMax  = 1_000_000
	spreadOver = 10 * time.Minute
	slotPool   = 30
)

// A slotDB is a database with the schema of slots. Servers are started with the
// durability that they have by default.
type slotDB struct {
	name    string
	url     string
	raw     *sql.DB
	insert  string
	update  string
	instant func(time.Time) any
	writers int   // connections that write: SQLite has one
	pids    []int // of the server, if there is one
}

const rawColumns = "INSERT INTO RL_EVENT_SLOT_DTL (WNDW_SLOT_ID, EVENT_ID, WNDW_SCOPE_NM, WNDW_SIZE_MS, REQ_TS, " +
	"WNDW_STRT_TS, COMPUTED_SCHED_TS, RL_WNDW_CONFIG_ID, CREAT_TS, SCHEMA_NB) VALUES "

func slotDBs() []func(tb *benchTB) (*slotDB, error) {
	return []func(tb *benchTB) (*slotDB, error){rawSQLite, rawPostgres, rawMariaDB}
}

func rawSQLite(tb *benchTB) (*slotDB, error) {
	file := filepath.Join(tb.TempDir(), "slots.db")
	raw, err := sql.Open("sqlite",
		"file:"+file+"?_txlock=immediate&_pragma=busy_timeout(10000)&_pragma=journal_mode(wal)&_pragma=synchronous(full)")
	return &slotDB{
		name: "sqlite", url: "sqlite:" + file, raw: raw, writers: 1,
		insert: rawColumns + "(?, ?, ?, ?, ?, ?, ?, ?, ?, 4)",
		update: "UPDATE RL_WNDW_CT SET SLOT_CT = SLOT_CT + 1 WHERE WNDW_SCOPE_NM = ? AND WNDW_SIZE_MS = ? AND " +
			"WNDW_STRT_TS = ?",
		instant: func(t time.Time) any { return t.UnixMicro() },
	}, err
}

func rawPostgres(tb *benchTB) (*slotDB, error) {
	server := testenv.StartDatabase(tb, testenv.Postgres, testenv.Durable())
	raw, err := sql.Open("pgx", server.URL())
	return &slotDB{
		name: "postgres", url: server.URL(), raw: raw, writers: slotPool, pids: []int{server.PID()},
		insert: rawColumns + "($1, $2, $3, $4, $5, $6, $7, $8, $9, 4)",
		update: "UPDATE RL_WNDW_CT SET SLOT_CT = SLOT_CT + 1 WHERE WNDW_SCOPE_NM = $1 AND WNDW_SIZE_MS = $2 AND " +
			"WNDW_STRT_TS = $3",
		instant: func(t time.Time) any { return t },
	}, err
}

func rawMariaDB(tb *benchTB) (*slotDB, error) {
	server := testenv.StartDatabase(tb, testenv.MariaDB, testenv.Durable())
	conf := mysql.NewConfig()
	conf.User, conf.Passwd, conf.Net, conf.Addr, conf.DBName = "app", "apppw", "tcp", server.Addr, "app"
	conf.InterpolateParams, conf.Params = true, map[string]string{"tx_isolation": "'READ-COMMITTED'"}
	raw, err := sql.Open("mysql", conf.FormatDSN())
	return &slotDB{
		name: "mariadb", url: server.URL(), raw: raw, writers: slotPool, pids: []int{server.PID()},
		insert: rawColumns + "(?, ?, ?, ?, ?, ?, ?, ?, ?, 4)",
		update: "UPDATE RL_WNDW_CT SET SLOT_CT = SLOT_CT + 1 WHERE WNDW_SCOPE_NM = ? AND WNDW_SIZE_MS = ? AND " +
			"WNDW_STRT_TS = ?",
		instant: func(t time.Time) any { return t.Format("2006-01-02 15:04:05.000000") },
	}, err
}

// A slotWay is a way to assign slots.
type slotWay struct {
	name     string
	settings slots.Settings
}

var slotWays = []slotWay{{"tx", slots.Settings{}}}

func (b *bench) slotTable(ctx context.Context) error {
	fmt.Printf("\nslots: assignments/s, their share of the floor, p99 in ms, and CPU µs of this process and the server, "+
		"by callers; burst: all want one instant, %d per window; spread: over %v\n", burstMax, spreadOver)
	for _, open := range slotDBs() {
		if err := withDatabase(ctx, open, b.slotRows); err != nil {
			return err
		}
	}
	return nil
}

// withDatabase starts a database, brings its schema up to date and runs f on it;
// if the server cannot be had it says so.
func withDatabase(ctx context.Context, open func(*benchTB) (*slotDB, error),
	f func(context.Context, *slotDB, *sqlstore.DB) error) error {
	skipped, err := withServers("slots", func(tb *benchTB) error {
		raw, err := open(tb)
		if err != nil {
			return err
		}
		defer raw.raw.Close()
		raw.raw.SetMaxOpenConns(raw.writers)
		raw.raw.SetMaxIdleConns(raw.writers)
		db, err := sqlstore.Open(sqlstore.Config{URL: raw.url, PoolMax: slotPool, PoolMin: slotPool})
		if err != nil {
			return err
		}
		defer db.Close()
		if _, err := db.Migrate(ctx); err != nil {
			return err
		}
		return f(ctx, raw, db)
	})
	if skipped != "" {
		fmt.Println("not run:", skipped)
	}
	return err
}

func (b *bench) slotRows(ctx context.Context, raw *slotDB, db *sqlstore.DB) error {
	for _, load := range []string{"burst", "spread"} {
		fmt.Printf("\n%-9s %-8s %-24s", raw.name, load, "")
		for _, n := range b.slotCallers {
			fmt.Printf(" %27s", fmt.Sprint(n, " callers"))
		}
		fmt.Println()
		for _, way := range slotWays {
			if !b.only.MatchString(raw.name + " " + load + " " + way.name) {
				continue
			}
			fmt.Printf("%-9s %-8s %-24s", raw.name, load, way.name)
			for _, n := range b.slotCallers {
				if err := b.slotCell(ctx, raw, db, way, load, n); err != nil {
					return fmt.Errorf("%s, %s, %s, %d callers: %w", raw.name, load, way.name, n, err)
				}
			}
			fmt.Println()
		}
	}
	return nil
}

// slotCell prints the figures of one way, beside the floor measured in turns.
func (b *bench) slotCell(ctx context.Context, raw *slotDB, db *sqlstore.DB, way slotWay, load string,
	callers int) error {
	var floor, run slotRun
	var cpu time.Duration
	for range b.slotRounds {
		f, err := b.floor(ctx, raw, load, callers, b.length/time.Duration(b.slotRounds))
		if err != nil {
			return fmt.Errorf("floor: %w", err)
		}
		floor.add(f)
		before, err := raw.cpu()
		if err != nil {
			return err
		}
		r, err := assignments(ctx, db, way, load, callers, b.length/time.Duration(b.slotRounds))
		if err != nil {
			return err
		}
		now, err := raw.cpu()
		if err != nil {
			return err
		}
		cpu += now - before
		run.add(r)
	}
	slices.Sort(run.took)
	fmt.Printf(" %7.0f %5.0f%% %6.1f %5.0f", run.rate(), 100*run.rate()/floor.rate(),
		quantile(run.took, 0.99).Seconds()*1e3,
		cpu.Seconds()*1e6/float64(len(run.took)))
	return nil
}

// cpu is the CPU time that this process and the server have used so far.
func (d *slotDB) cpu() (used time.Duration, err error) {
	own, err := cpuTimes([]int{os.Getpid()})
	if err != nil {
		return 0, err
	}
	used = own[0]
	for _, pid := range d.pids {
		server, err := treeTime(pid)
		if err != nil {
			return 0, err
		}
		used += server
	}
	return used, nil
}

// A slotRun is what callers did.
type slotRun struct {
	took   []time.Duration
	length time.Duration
}

func (r *slotRun) add(more slotRun) {
	r.took = append(r.took, more.took...)
	r.length += more.length
}

func (r *slotRun) rate() float64 { return float64(len(r.took)) / r.length.Seconds() }

// runCallers has n callers call until the time is over.
func runCallers(n int, length time.Duration, call func(i int64) error) (slotRun, error) {
	var next atomic.Int64
	all := make([][]time.Duration, n)
	errs := make([]error, n)
	var wait sync.WaitGroup
	start := time.Now()
	for c := range n {
		wait.Go(func() {
			for time.Since(start) < length && errs[c] == nil {
				began := time.Now()
				errs[c] = call(next.Add(1) - 1)
				all[c] = append(all[c], time.Since(began))
			}
		})
	}
	wait.Wait()
	run := slotRun{took: slices.Concat(all...), length: time.Since(start)}
	for _, err := range errs {
		if err != nil {
			return run, err
		}
	}
	return run, nil
}

// burstStart is on the grid of windows.
var burstStart = time.UnixMilli(time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC).UnixMilli() / slotSizeMs *
	slotSizeMs).UTC()

// wanted is the instant that a caller asks for.
func wanted(load string) time.Time {
	if load == "burst" {
		return burstStart
	}
	return burstStart.Add(time.Duration(rand.Int64N(int64(spreadOver))))
}

func assignments(ctx context.Context, db *sqlstore.DB, way slotWay, load string, callers int,
	length time.Duration) (slotRun, error) {
	way.settings.Timeout = 30 * time.Second
	s, err := slots.NewScheduler(db, way.settings)
	if err != nil {
		return slotRun{}, err
	}
	ctx, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { s.Run(ctx) })
	defer running.Wait()
	defer stop()
	config := slots.NewConfig{Name: uuid.NewString(), Max: spreadMax, SizeMs: slotSizeMs}
	if load == "burst" {
		config.Max = burstMax
	}
	if _, err := s.PutConfig(ctx, config); err != nil {
		return slotRun{}, err
	}
	prefix := uuid.NewString()[:8]
	return runCallers(callers, length, func(i int64) error {
		_, err := s.Assign(ctx, slots.Request{EventID: fmt.Sprint(prefix, "-", i), ConfigName: config.Name, At: wanted(load)})
		return err
	})
}

// floor does what an assignment cannot do without.
func (b *bench) floor(ctx context.Context, d *slotDB, load string, callers int, length time.Duration) (slotRun, error) {
	store, err := sqlstore.Open(sqlstore.Config{URL: d.url})
	if err != nil {
		return slotRun{}, err
	}
	defer store.Close()
	series := slots.Series{Scope: uuid.NewString(), SizeMs: slotSizeMs}
	from := burstStart.UnixMilli()
	for i := range int64(b.floorWindows) {
		start := from + i*1000*slotSizeMs
		if _, err := store.Provision(ctx, series, start, start+1000*slotSizeMs, nil); err != nil {
			return slotRun{}, err
		}
	}
	return runCallers(callers, length, func(i int64) error {
		at := burstStart.Add(time.Duration(i/burstMax) * slotSizeMs * time.Millisecond)
		if load == "spread" {
			at = wanted(load).Truncate(slotSizeMs * time.Millisecond)
		}
		return d.claim(ctx, series, at)
	})
}

func (d *slotDB) claim(ctx context.Context, series slots.Series, window time.Time) error {
	tx, err := d.raw.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	id := uuid.Must(uuid.NewV7()).String()
	at := d.instant(window)
	if _, err := tx.ExecContext(ctx, d.insert, id, id, series.Scope, series.SizeMs, at, at, at, id,
		d.instant(time.Now().UTC())); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, d.update, series.Scope, series.SizeMs, at); err != nil {
		return err
	}
	return tx.Commit()
}

// The day: events at random instants of one day, and how the time per call grows
// with them.
const (
	dayCallers = 64
	dayParts   = 10
)

func (b *bench) dayTable(ctx context.Context) error {
	fmt.Printf("\na day of slots: %d events by %d callers, window %d ms; mean time of a call in µs, in each tenth\n\n",
		b.dayEvents, dayCallers, slotSizeMs)
	for _, open := range slotDBs()[:2] {
		if err := withDatabase(ctx, open, b.day); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) day(ctx context.Context, raw *slotDB, db *sqlstore.DB) error {
	s, err := slots.NewScheduler(db, slots.Settings{Timeout: 30 * time.Second})
	if err != nil {
		return err
	}
	if _, err := s.PutConfig(ctx, slots.NewConfig{Name: "default", Max: burstMax, SizeMs: slotSizeMs}); err != nil {
		return err
	}
	midnight := burstStart.Truncate(24 * time.Hour)
	events := int64(b.dayEvents)
	var next atomic.Int64
	var total [dayParts]atomic.Int64
	fmt.Printf("%-9s", raw.name)
	start := time.Now()
	errs := make(chan error, dayCallers)
	for range dayCallers {
		go func() {
			for {
				i := next.Add(1) - 1
				if i >= events {
					errs <- nil
					return
				}
				began := time.Now()
				at := midnight.Add(time.Duration(rand.Int64N(int64(24 * time.Hour))))
				if _, err := s.Assign(ctx, slots.Request{EventID: fmt.Sprint("day-", i), At: at}); err != nil {
					errs <- err
					return
				}
				total[i*dayParts/events].Add(int64(time.Since(began)))
			}
		}()
	}
	for range dayCallers {
		if e := <-errs; e != nil {
			err = e
		}
	}
	for i := range total {
		fmt.Printf(" %6d", total[i].Load()/(events/dayParts)/1000)
	}
	fmt.Printf("   last/first %.2f, %.0f/s\n", float64(total[dayParts-1].Load())/float64(total[0].Load()),
		float64(events)/time.Since(start).Seconds())
	return err
}
