package slots

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
)

// Times of the config cache. A change is announced by the generation, which is
// looked at all the time while configs are in use, so that nodes follow within a
// quarter of a second; the life of an entry is the fallback.
const (
	configLife      = 5 * time.Second
	generationLife  = 200 * time.Millisecond
	generationEvery = 100 * time.Millisecond
)

// configCache keeps active configs, and names that have none.
type configCache struct {
	store   Store
	now     func() time.Time
	log     *slog.Logger
	changed func() // called when the generation is another; must not call back

	loads singleflight.Group

	mu         sync.Mutex
	entries    map[string]configEntry
	generation int64
	checked    time.Time // when the generation was asked for, last
	used       time.Time
}

type configEntry struct {
	config Config
	err    error // ErrConfigNotFound
	loaded time.Time
}

func newConfigCache(store Store, now func() time.Time, log *slog.Logger, changed func()) *configCache {
	return &configCache{store: store, now: now, log: log, changed: changed, entries: make(map[string]configEntry)}
}

// get returns the active config of a name.
func (c *configCache) get(ctx context.Context, name string) (Config, error) {
	// Twice, since the first may be an answer that others have waited for already.
	for try := 0; try < 2 && !c.current(); try++ {
		if err := c.check(ctx); err != nil {
			return Config{}, err
		}
	}
	c.mu.Lock()
	e, ok := c.entries[name]
	fresh := ok && c.now().Sub(e.loaded) < configLife
	c.mu.Unlock()
	if fresh {
		return e.config, e.err
	}
	return c.load(ctx, name)
}

// current reports whether the generation was looked at just now.
func (c *configCache) current() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.used = c.now()
	return c.used.Sub(c.checked) < generationLife
}

// inUse reports whether anybody has asked for a config lately.
func (c *configCache) inUse() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now().Sub(c.used) < configLife
}

// check asks for the generation, and forgets everything if it is another.
func (c *configCache) check(ctx context.Context) error {
	_, err := c.once(ctx, "generation", func(ctx context.Context) (any, error) { return nil, c.ask(ctx) })
	return err
}

func (c *configCache) ask(ctx context.Context) error {
	asked := c.now()
	g, err := c.store.Generation(ctx)
	if err != nil {
		return err
	}
	c.seen(g, asked)
	return nil
}

// seen notes a generation that the database had after the instant asked.
func (c *configCache) seen(generation int64, asked time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if generation != c.generation {
		c.changed() // first, so that no search uses a new config with old knowledge of windows
		c.generation = generation
		clear(c.entries)
	}
	if asked.After(c.checked) {
		c.checked = asked
	}
}

// load reads a config, once for all who want it at the same time.
func (c *configCache) load(ctx context.Context, name string) (Config, error) {
	v, err := c.once(ctx, "config "+name, func(ctx context.Context) (any, error) {
		loaded, generation := c.now(), c.known()
		config, err := c.store.ActiveConfig(ctx, name)
		if err != nil && !errors.Is(err, ErrConfigNotFound) {
			return nil, err
		}
		if err == nil {
			c.log.Debug("config read from the database", "config_name", name, "config_id", config.ID)
		}
		c.keep(name, configEntry{config, err, loaded}, generation)
		return config, err
	})
	if err != nil {
		return Config{}, err
	}
	return v.(Config), nil
}

// drop forgets a version of a config.
func (c *configCache) drop(old Config) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.entries[old.Name].config.ID == old.ID {
		delete(c.entries, old.Name)
	}
}

func (c *configCache) known() (generation int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.generation
}

// keep adds an entry that was read when the generation was known to be this one.
// If it is another by now, the entry may be out of date already.
func (c *configCache) keep(name string, e configEntry, generation int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if generation == c.generation {
		put(c.entries, maxConfigs, name, e)
	}
}

// once runs f once for all callers that come with the same key while it runs. It does not end with
// the context of the first one, but after configLife; each caller waits no longer than its own context.
func (c *configCache) once(ctx context.Context, key string, f func(context.Context) (any, error)) (any, error) {
	ch := c.loads.DoChan(key, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), configLife)
		defer cancel()
		return f(ctx)
	})
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case r := <-ch:
		return r.Val, r.Err
	}
}
