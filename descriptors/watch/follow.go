package watch

import (
	"context"
	"log/slog"

	"github.com/headgate-rls/headgate/descriptors/rulefile"
)

// Follow calls changed with the files at paths at first and then whenever they have
// changed, until ctx ends; with an error if one of them cannot be read. The files are
// followed as a [Watcher] follows files of rules.
func Follow(ctx context.Context, paths []string, log *slog.Logger, changed func([]rulefile.Source, error)) error {
	w := New(paths, Options{Log: log})
	w.files = changed
	return w.Run(ctx)
}

// hand gives what was read to the function of Follow.
func (w *Watcher) hand(sources []rulefile.Source, failed []unreadable, err error) {
	if err == nil && len(failed) > 0 {
		err = failed[0].err
	}
	if err != nil {
		sources = nil
	}
	w.files(sources, err)
}
