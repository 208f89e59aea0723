//go:build !rlsonly

package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/headgate-rls/headgate/internal/app/config"
	"github.com/headgate-rls/headgate/internal/kit/web"
	"github.com/headgate-rls/headgate/slots"
	"github.com/headgate-rls/headgate/slots/httpapi"
	"github.com/headgate-rls/headgate/slots/sqlstore"
)

// A slotService is the part of the server that assigns slots.
type slotService struct {
	conf      *config.Slots
	log       *slog.Logger
	db        *sqlstore.DB
	scheduler *slots.Scheduler
	database  condition
}

// Presence says whether a database that is a file has to be there when it is opened.
type Presence bool

// What a database may be.
const (
	Existing Presence = true
	MayBeNew Presence = false
)

// OpenDatabase opens the database of slots that the settings name. It need not answer at
// this moment. The error says what is wrong with the settings. The caller closes it.
func OpenDatabase(c *config.Slots, is Presence, log *slog.Logger) (*sqlstore.DB, error) {
	db, err := sqlstore.Open(sqlstore.Config{Existing: is == Existing, URL: c.URL, Username: c.Username,
		Password: c.Password, PoolMin: c.PoolMin, PoolMax: c.PoolMax, Log: log})
	if err != nil {
		return nil, fmt.Errorf("--slots: %w", err)
	}
	return db, nil
}

// LocalSlots opens the database of slots as [OpenDatabase] does, and returns the admin API of slots for callers in this
// process, who need no token. The caller closes the database.
func LocalSlots(ctx context.Context, c *config.Slots, log *slog.Logger) (_ http.Handler, _ *sqlstore.DB, err error) {
	db, err := OpenDatabase(c, Existing, log)
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, db.Close())
		}
	}()
	if err := db.Look(ctx); err != nil { // to list configs needs no more
		return nil, nil, err
	}
	settings := c.Settings()
	settings.Procedure, settings.Log = false, slog.New(slog.DiscardHandler)
	scheduler, err := slots.NewScheduler(db, settings)
	if err != nil {
		return nil, nil, err
	}
	if err := scheduler.Scope(ctx); err != nil {
		return nil, nil, err
	}
	handlers, err := httpapi.New(httpapi.Config{Scheduler: scheduler, Log: log, Timeout: c.Scheduler.Timeout})
	if err != nil {
		return nil, nil, err
	}
	return handlers.Admin(), db, nil
}

// openSlots makes the slot service.
func openSlots(_ context.Context, of *server) (*addition, error) {
	conf, log := &of.conf.Slots, of.log
	if conf.URL == "" {
		return nil, nil
	}
	db, err := OpenDatabase(conf, Presence(!conf.Migrate), log)
	if err != nil {
		return nil, err
	}
	settings, counts := conf.Settings(), slots.NewMetrics()
	settings.Log, settings.Metrics = log, counts
	if db.InProcess() {
		settings.Turn = of.turns.Borrow
	}
	if settings.Procedure && db.HadProcedure() {
		log.Warn("PostgreSQL no longer has --slots-engine procedure: slots are assigned by tx, with the same results")
		settings.Procedure = false
	}
	s := &slotService{conf: conf, log: log, db: db}
	var handlers *httpapi.Handlers
	if s.scheduler, err = slots.NewScheduler(db, settings); err == nil {
		handlers, err = httpapi.New(httpapi.Config{Scheduler: s.scheduler, Log: log, Timeout: conf.Scheduler.Timeout})
	}
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	of.metrics.Add(counts.Rows()...)
	of.metrics.Add(slots.PoolRows(db.Pool)...)
	api := web.SameSite(of.refusals, handlers.API())
	if conf.Auth {
		api = of.guard.Wrap(api)
	}
	return &addition{name: "slots", where: db.Address(), api: api,
		admin:   map[string]http.Handler{"": handlers.Admin()},
		prepare: s.begin, part: s.part, run: s.run, close: func() {
			if err := db.Close(); err != nil {
				log.Warn("could not close the slot database", "error", err)
			}
		}}, nil
}

// begin prepares the database, if it answers.
func (s *slotService) begin(ctx context.Context) error {
	switch err := s.prepare(ctx); {
	case err == nil:
	case slots.KindOf(err) == slots.Failed:
		return fmt.Errorf("--slots: %w", err)
	default:
		s.database.set(err)
		s.databaseChanged(err)
	}
	return nil
}

// prepareWithin bounds one try to bring the schema up to date.
const prepareWithin = time.Minute

// prepare brings the schema up to date and makes the seeded config.
func (s *slotService) prepare(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, prepareWithin)
	defer cancel()
	if s.conf.Migrate {
		if _, err := s.db.Migrate(ctx); err != nil {
			return err
		}
	}
	if err := s.scheduler.Scope(ctx); err != nil {
		return err
	}
	if s.conf.Seed == "" {
		return nil
	}
	_, err := s.scheduler.Config(ctx, "")
	if !errors.Is(err, slots.ErrConfigNotFound) {
		return err
	}
	most, sizeMs, _ := s.conf.SeedConfig() // checked at start
	_, err = s.scheduler.PutConfig(ctx, slots.NewConfig{Name: s.conf.Scheduler.DefaultConfig, Max: most, SizeMs: sizeMs})
	return err
}

// run does the background work, and watches the database, until ctx ends. A
// database that was not there at the start is prepared when it comes.
func (s *slotService) run(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() { s.scheduler.Run(ctx) })
	_, wrong := s.database.problem()
	prepared := !wrong
	s.database.watch(ctx, func(ctx context.Context) error {
		if !prepared {
			if err := s.prepare(ctx); err != nil {
				return err
			}
			prepared = true
		}
		ctx, cancel := context.WithTimeout(ctx, s.conf.Scheduler.Timeout)
		defer cancel()
		return s.scheduler.Ping(ctx)
	}, s.databaseChanged)
	running.Wait()
}

// part reports whether the database answers.
func (s *slotService) part() web.Part {
	problem, _ := s.database.problem()
	return web.Part{Name: "database of slots", Problem: problem, Shared: true}
}

func (s *slotService) databaseChanged(err error) {
	if err == nil {
		s.log.Info("the slot database answers again")
		return
	}
	s.log.Error("the slot database does not answer; requests for slots get 503 until it does", "error", err)
}
