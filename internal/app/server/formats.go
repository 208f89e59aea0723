package server

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/internal/kit/background"
	"github.com/headgate-rls/headgate/internal/kit/web"
)

// formatWatch says whether a later version of headgate counts in the same store, in formats that this one cannot read.
// Each replica writes the number of its formats into the registry. One that finds a later number at its start is not
// ready: a rollback to it would refuse the requests whose counters the later version has written, so the orchestrator
// has to leave that version running. A replica that was ready stays so, as its traffic may have nowhere else to go.
type formatWatch struct {
	registry backends.Registry // nil if the store is this process's own
	version  string
	serving  bool             // ready all the same: see --on-later-format
	metLater func() time.Time // when a request has last met such a counter
	log      *slog.Logger

	mu      sync.Mutex
	checked bool   // the registry has answered
	later   string // what it says of a later version
	put     time.Time
}

const (
	formatsTable = "formats"
	formatLife   = 24 * time.Hour // of a row, after the last replica of a version
	formatEvery  = time.Hour      // a replica writes its row
	formatCheck  = 10 * time.Second
	// laterShown is for how long /readyz says that requests have met counters of a later format.
	laterShown = 10 * time.Minute
)

// check reads the registry until it has answered and names no later version, and then writes to it now and then.
func (f *formatWatch) check(ctx context.Context) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.registry == nil {
		return
	}
	if !f.checked || f.later != "" {
		rows, err := f.registry.List(ctx, formatsTable)
		if err != nil {
			return // the store does not answer, which is said elsewhere
		}
		before := f.later
		f.checked, f.later = true, laterOf(rows)
		if f.later != "" && before == "" {
			f.log.Error("a later version of headgate counts in this store", "problem", f.later, "ready", f.serving)
		}
	}
	if f.later != "" || time.Since(f.put) < formatEvery {
		return
	}
	row := backends.Row{Key: strconv.Itoa(backends.Formats), Value: f.version}
	if _, err := f.registry.Put(ctx, formatsTable, []backends.Row{row}, formatLife); err == nil {
		f.put = time.Now()
	}
}

// laterOf says which of the rows is of a later version; "" if none is.
func laterOf(rows []backends.Row) string {
	latest, of := backends.Formats, ""
	for _, r := range rows {
		if n, err := strconv.Atoi(r.Key); err == nil && n > latest {
			latest, of = n, r.Value
		}
	}
	if latest == backends.Formats {
		return ""
	}
	return fmt.Sprintf("headgate %.40q has counted here in the last %v, in formats %d; this version reads up to %d: run "+
		"that version or a later one (docs/versions.md)", of, formatLife, latest,
		backends.Formats)
}

// run checks until ctx ends.
func (f *formatWatch) run(ctx context.Context) {
	background.Every(ctx, formatCheck, f.check)
}

// part reports whether later formats are in the way.
func (f *formatWatch) part() web.Part {
	f.mu.Lock()
	defer f.mu.Unlock()
	part := web.Part{Name: "formats", Serving: f.serving}
	met := f.metLater()
	switch {
	case f.later != "":
		part.Problem = f.later
	case !met.IsZero() && time.Since(met) < laterShown:
		part.Problem, part.Serving = fmt.Sprintf("a request has met a counter of a later version of headgate %v ago: see "+
			"the log, and docs/versions.md", time.Since(met).Round(time.Second)), true
	}
	return part
}
