package slots

import (
	"context"
	"fmt"
)

// Scope decides how configs count, if the database has not decided it yet. It is an
// error if the settings want it otherwise.
func (s *Scheduler) Scope(ctx context.Context) error {
	_, err := s.isShared(ctx)
	return err
}

// isShared reports whether configs count together whose options name no scope. It never
// changes.
func (s *Scheduler) isShared(ctx context.Context) (bool, error) {
	s.mu.Lock()
	known := s.shared
	s.mu.Unlock()
	if known != nil {
		return *known, nil
	}
	want := s.settings.Scope
	read, err := s.configs.once(ctx, "scope", func(ctx context.Context) (any, error) { return s.store.Scope(ctx, want) })
	if err != nil {
		return false, err
	}
	scope := read.(string)
	if want != "" && want != scope {
		return false, &StoreError{Failed, "read the scope", fmt.Errorf("configs of this database count by scope %q, "+
			"and the settings want %q: windows would be booked twice; leave the setting out", scope, want)}
	}
	shared := scope == ScopeShared
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shared = &shared
	return shared, nil
}

// series are the windows that a config uses.
func (s *Scheduler) series(ctx context.Context, c Config) (Series, error) {
	shared, err := s.isShared(ctx)
	return SeriesOf(c, shared), err
}

// SeriesOf returns the windows that a config uses; shared: all configs count together
// whose options name no scope.
func SeriesOf(c Config, shared bool) Series {
	scope := c.Options.Scope
	switch {
	case scope != "":
	case shared:
		scope = SharedScope
	default:
		scope = c.Name
	}
	return Series{Scope: scope, SizeMs: c.SizeMs}
}
