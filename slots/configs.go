package slots

import (
	"cmp"
	"context"
)

// Config returns the active config of a name, as requests are using it; the
// empty name is the default one. Error: *ConfigNotFoundError.
func (s *Scheduler) Config(ctx context.Context, name string) (Config, error) {
	name = cmp.Or(name, s.settings.DefaultConfig)
	if err := checkName("configName", name, MaxConfigName); err != nil {
		return Config{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.settings.Timeout)
	defer cancel()
	c, err := s.configs.get(ctx, name)
	return c, retryable(named(err, name))
}

// Configs returns the active configs by name, at most 1000.
func (s *Scheduler) Configs(ctx context.Context) ([]Config, error) {
	ctx, cancel := context.WithTimeout(ctx, s.settings.Timeout)
	defer cancel()
	list, err := s.store.ActiveConfigs(ctx, MaxBatch)
	return list, retryable(err)
}

// putTries bounds how often PutConfig begins again when others change the same
// config.
const putTries = 8

// PutConfig makes a new version of a config the active one. It is in force here
// at once and on other nodes within a quarter of a second; slots that were
// assigned before stay as they are.
//
// Errors: *FieldError, ErrConflict, ErrScopeInUse, ErrNeverOpen, ErrClaimUnderWay in a *RetryError, *RetryError,
// *StoreError.
func (s *Scheduler) PutConfig(ctx context.Context, c NewConfig) (Config, error) {
	if err := c.check(); err != nil {
		return Config{}, err
	}
	if _, _, ok := c.Options.Calendar.Span(s.settings.Now().UnixMilli(), c.SizeMs); !ok {
		return Config{}, ErrNeverOpen
	}
	ctx, cancel := context.WithTimeout(ctx, s.settings.Timeout)
	defer cancel()
	shared, err := s.isShared(ctx)
	if err != nil {
		return Config{}, retryable(err)
	}
	seriesOf := func(c Config) Series { return SeriesOf(c, shared) }
	for try := 1; ; try++ {
		next := Config{ID: s.settings.NewID(), Name: c.Name, Max: c.Max, SizeMs: c.SizeMs, Options: c.Options, Active: true}
		config, err := s.store.PutConfig(ctx, next, seriesOf)
		switch kind := KindOf(err); {
		case err == nil:
			s.settings.Log.Info("config changed", "config_name", c.Name, "max_per_window", c.Max, "size_ms", c.SizeMs,
				"config_id", config.ID)
			// Others, and this node if the question fails, follow a little later.
			_ = s.configs.ask(ctx)
			return config, nil
		case try == putTries && kind == Duplicate:
			return Config{}, ErrConflict
		case try == putTries, kind != Passing && kind != Duplicate && kind != Held,
			kind == Held && ctx.Err() != nil: // the store has tried again for as long as it may
			return Config{}, retryable(err)
		}
		if err := s.backOff(ctx, try); err != nil {
			return Config{}, err
		}
	}
}

// Flush has all nodes forget what they remember of configs and windows, within a quarter of
// a second.
func (s *Scheduler) Flush(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.settings.Timeout)
	defer cancel()
	asked := s.settings.Now()
	g, err := s.store.Flush(ctx)
	if err != nil {
		return retryable(err)
	}
	s.configs.seen(g, asked)
	return nil
}
