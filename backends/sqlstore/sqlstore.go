package sqlstore

import (
	"cmp"
	"context"
	"crypto/rand"
	"embed"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/internal/kit/sqldb"
	"github.com/headgate-rls/headgate/limit"
)

// A Backend keeps state in a database. Open makes one.
type Backend struct {
	conf Config
	caps backends.Caps
	db   *sqldb.DB
	self []byte // the key of this process's beats

	stop    context.CancelFunc // ends the janitor
	running sync.WaitGroup     // the janitor, and transactions that are being abandoned

	// looks is how many slices still look which rows others hold before they wait for any.
	looks atomic.Int64
	waits waits

	retries, swept, held atomic.Int64
}

var (
	_ backends.Backend   = (*Backend)(nil)
	_ backends.Registrar = (*Backend)(nil)
	_ backends.Figured   = (*Backend)(nil)
	_ backends.Migrator  = (*Backend)(nil)
)

// Open returns the backend of a Config that Parse made. It does not connect: a database that is down
// is noticed by the first call. Close must be called.
func Open(conf Config) (*Backend, error) {
	conf.Log = cmp.Or(conf.Log, slog.New(slog.DiscardHandler))
	db, err := sqldb.Open(conf.database())
	if err != nil {
		return nil, err
	}
	return start(conf, db), nil
}

// start returns the backend of a database.
func start(conf Config, db *sqldb.DB) *Backend {
	ctx, stop := context.WithCancel(context.Background())
	b := &Backend{conf: conf, caps: conf.Caps(), db: db, self: []byte("ping:" + rand.Text()),
		stop: stop, waits: waits{byKey: map[string]time.Duration{}}}
	b.running.Add(1)
	conf.Panics.Go("sqlstore janitor", func() {
		defer b.running.Done()
		b.sweep(ctx)
	})
	return b
}

// Caps returns what the backend promises.
func (b *Backend) Caps() backends.Caps { return b.caps }

// Close implements [backends.Backend].
func (b *Backend) Close() error {
	b.stop()
	b.running.Wait()
	return b.db.Close()
}

// Ping implements [backends.Backend]. It writes to a row of its own.
func (b *Backend) Ping(ctx context.Context) error {
	within, cancel := context.WithTimeout(ctx, b.conf.Timeout)
	defer cancel()
	if err := b.beat(within, sqldb.Always); err != nil {
		return standing(err)
	}
	missing, err := b.db.Missing(ctx, schema())
	switch {
	case err != nil:
		return standing(failed(err, false))
	case len(missing) > 0:
		return fmt.Errorf("%w: the schema lacks %s: %s", backends.ErrMisconfigured, missing[0], howToMigrate)
	}
	return nil
}

// Forget implements [backends.Backend].
func (b *Backend) Forget(ctx context.Context, keys []limit.Key) error {
	all := make([][]byte, len(keys))
	for i, k := range keys {
		all[i] = counterKey(k)
	}
	return inChunks(all, func(some [][]byte) error {
		return b.do(ctx, "forget",
			&plain{keys: some, then: func([][]byte, limit.Instant) ([]row, [][]byte) { return nil, some }})
	})
}

// A plain task wants all values at once.
type plain struct {
	keys   [][]byte // sorted and each once
	values [][]byte
	then   func(values [][]byte, now limit.Instant) (put []row, drop [][]byte)

	counting sqldb.Query // unless its text is empty
	counted  int64
}

// begin implements task.
func (p *plain) begin() [][]byte {
	p.values = make([][]byte, len(p.keys))
	return p.keys
}

// found implements task.
func (p *plain) found(i int, value []byte) { p.values[i] = append([]byte(nil), value...) }

// count implements task.
func (p *plain) count() (sqldb.Query, *int64) { return p.counting, &p.counted }

// long implements task.
func (p *plain) long() []int { return nil }

// part implements task.
func (p *plain) part(int, []byte) {}

// missing implements task.
func (p *plain) missing(limit.Instant) []part { return nil }

// decide implements task.
func (p *plain) decide(now limit.Instant) ([]row, [][]byte) { return p.then(p.values, now) }

//go:embed migrations
var migrationFiles embed.FS

// schema is what limits keep: scripts in a folder for each dialect. They may be in one database with
// those of slots.
func schema() sqldb.Schema {
	return sqldb.Schema{Files: migrationFiles, History: "HEADGATE_SCHEMA_HISTORY",
		Packages: []string{"HEADGATE_STATE_API"}, Functions: []string{"HEADGATE_NOW_US"}}
}

// Migrate implements [backends.Migrator]: it runs the scripts that the history in the database,
// HEADGATE_SCHEMA_HISTORY, lacks. Only one process does at a time; others wait, and find the work
// done.
func (b *Backend) Migrate(ctx context.Context) (applied []string, err error) {
	// The sessions that decide wait for nobody for long, and migrations do.
	db, err := sqldb.Open(sqldb.Config{URL: b.conf.URL, PoolMax: 2, Log: b.conf.Log})
	if err != nil {
		return nil, err
	}
	defer db.Close()
	applied, err = db.Migrate(ctx, schema())
	return applied, standing(err)
}

// Print returns all scripts for the database of a scheme, such as "postgres" or "mariadb", as one
// that its own client program can run. They note themselves in HEADGATE_SCHEMA_HISTORY, so that
// Migrate finds nothing to do.
func Print(scheme string) (string, error) { return schema().Print(scheme) }
