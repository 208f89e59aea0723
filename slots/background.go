package slots

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/headgate-rls/headgate/internal/kit/background"
	"github.com/headgate-rls/headgate/slots/plan"
)

// Background work. Of all processes on a database one is the leader for each
// kind of work; the others look every so often whether it still is.
const (
	retentionEvery = time.Minute
	provisionEvery = 15 * time.Second
	leadFor        = 3 // times the interval
	purgeBatch     = 1000
	purgeBatches   = 100 // at one go, so that other work gets its turn
	aheadMost      = 200_000
)

// The kinds of background work, for metrics.
const (
	WorkGeneration = "generation"
	WorkRetention  = "retention"
	WorkProvision  = "provision"
)

// Run does the background work until ctx ends: it follows changes of configs,
// drops what is past its retention, and provisions windows ahead of demand.
// Without it a Scheduler works, but asks for the generation of configs with
// requests.
func (s *Scheduler) Run(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() { background.Every(ctx, generationEvery, s.followGeneration) })
	running.Go(func() { background.Every(ctx, retentionEvery, s.asLeader(WorkRetention, retentionEvery, s.purge)) })
	running.Go(func() { background.Every(ctx, provisionEvery, s.provisionIfWanted()) })
	running.Wait()
}

// followGeneration looks for changes of configs as long as configs are in use.
func (s *Scheduler) followGeneration(ctx context.Context) {
	if !s.configs.inUse() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, s.settings.Timeout)
	defer cancel()
	if err := s.configs.check(ctx); err != nil && ctx.Err() == nil {
		s.settings.Metrics.background(WorkGeneration, 0, err)
	}
}

// asLeader does the work only where this process leads it.
func (s *Scheduler) asLeader(name string, interval time.Duration,
	work func(context.Context) (int64, error)) func(context.Context) {
	holder := s.settings.NewID()
	return func(process context.Context) {
		ctx, cancel := context.WithTimeout(process, leadFor*interval)
		defer cancel()
		lead, err := s.store.Lead(ctx, name, holder, leadFor*interval)
		var rows int64
		if lead && err == nil {
			rows, err = work(ctx)
		}
		s.report(process, name, interval, rows, err)
	}
}

// report logs and counts the result of background work, unless the process ends.
func (s *Scheduler) report(process context.Context, name string, interval time.Duration, rows int64, err error) {
	if process.Err() != nil {
		return
	}
	if err != nil {
		s.settings.Log.Warn("background work on slots failed; retrying", "work", name, "error", err, "after", interval)
	}
	s.settings.Metrics.background(name, rows, err)
}

// purge drops windows and slots past their retention, in small batches. It ends when the next
// purge is due, which goes on with the rest.
func (s *Scheduler) purge(ctx context.Context) (rows int64, err error) {
	due := s.settings.Now().Add(retentionEvery)
	for more := true; more && err == nil && s.settings.Now().Before(due); {
		var n int64
		n, more, err = s.purgeSome(ctx)
		rows += n
	}
	return rows, err
}

// purgeSome is one round of a purge. more: there may be more rows to drop. The clock that is behind counts, this
// process's or the database's: one that is ahead would drop slots too early, and their events would get other ones.
func (s *Scheduler) purgeSome(ctx context.Context) (rows int64, more bool, err error) {
	theirs, err := s.store.Now(ctx)
	if err != nil {
		return 0, false, err
	}
	now := s.settings.Now()
	if t := time.UnixMicro(theirs); t.Before(now) {
		now = t
	}
	old := now.Add(-s.settings.KeepWindows)
	rows, more, err = inBatches(func() (int64, error) {
		return s.store.PurgeWindows(ctx, old.UnixMilli(), old.UnixMicro(), purgeBatch)
	})
	if rows > 0 { // caches must forget purged rows, even if a later batch failed
		_, flushed := s.store.Flush(ctx)
		err = errors.Join(err, flushed)
	}
	if ctx.Err() != nil || s.settings.KeepSlots == 0 {
		return rows, more, err
	}
	n, moreSlots, failed := inBatches(func() (int64, error) { // also if windows could not be dropped
		return s.store.PurgeSlots(ctx, now.Add(-s.settings.KeepSlots).UnixMicro(), purgeBatch)
	})
	return rows + n, more || moreSlots, errors.Join(err, failed)
}

func inBatches(drop func() (int64, error)) (rows int64, more bool, err error) {
	for range purgeBatches {
		n, err := drop()
		rows += n
		if err != nil || n == 0 {
			return rows, false, err
		}
	}
	return rows, true, nil
}

// provisionIfWanted keeps the tables as they are documented, for those who read them:
// windows in chunks, with a frontier for each, ahead of now. No answer depends on it.
func (s *Scheduler) provisionIfWanted() func(context.Context) {
	wanted := s.settings.Ahead > 0
	provision := s.asLeader(WorkProvision, provisionEvery, s.provisionAhead)
	return func(process context.Context) {
		if !wanted {
			ctx, cancel := context.WithTimeout(process, s.settings.Timeout)
			defer cancel()
			var err error
			if wanted, err = s.store.Adopted(ctx); err != nil {
				s.report(process, WorkProvision, provisionEvery, 0, err)
			}
			if err != nil || !wanted {
				return
			}
		}
		provision(process)
	}
}

// provisionAhead makes the windows of all active configs from now on. One that fails holds up no others; the error is
// the first one.
func (s *Scheduler) provisionAhead(ctx context.Context) (rows int64, first error) {
	configs, first := s.store.ActiveConfigs(ctx, MaxBatch)
	for _, c := range configs {
		if c.Max == 0 {
			continue
		}
		n, err := s.provisionConfig(ctx, c)
		rows, first = rows+n, cmp.Or(first, err)
		if ctx.Err() != nil {
			break
		}
	}
	return rows, first
}

// provisionConfig makes the chunks of one config that are not there yet.
func (s *Scheduler) provisionConfig(ctx context.Context, c Config) (rows int64, err error) {
	series, err := s.series(ctx, c)
	if err != nil {
		return 0, err
	}
	length := int64(s.settings.Chunk) * c.SizeMs
	now := s.settings.Now().UnixMilli()
	chunk := plan.ChunkStart(plan.WindowStart(now*1000, c.SizeMs), c.SizeMs, s.settings.Chunk)
	end := min(now+s.settings.Ahead.Milliseconds(), now+aheadMost*c.SizeMs)
	if s.settings.Ahead == 0 {
		end = chunk + int64(1+s.settings.Chunks)*length
	}
	for ; chunk < end; chunk += length {
		var n int64
		_, there, err := s.store.Frontier(ctx, series, chunk)
		if err == nil && !there {
			n, err = s.store.Provision(ctx, series, chunk, chunk+length, &Frontier{ChunkMs: chunk, EndMs: chunk + length})
		}
		rows += n
		if err != nil {
			return rows, err
		}
	}
	return rows, nil
}
