package config

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/headgate-rls/headgate/slots"
	"github.com/headgate-rls/headgate/slots/plan"
)

// Slots has the settings of slot scheduling.
type Slots struct {
	URL      string
	Username string
	Password string
	PoolMin  int
	PoolMax  int
	Migrate  bool
	Auth     bool

	Engine        string
	Scope         string
	DefaultConfig string
	Seed          string
	Chunk         int
	ExtraChunks   int

	MaxPast     time.Duration
	MaxFuture   time.Duration
	Timeout     time.Duration
	Ahead       time.Duration
	KeepWindows time.Duration
	Keep        time.Duration
}

// Defaults of the pools of databases, which are those of sqldb.Config.
const defaultPoolMin, defaultPoolMax = 5, 30

// checkPool checks the bounds of a pool. flag is that of the lower one.
func checkPool(low, high *int, flag string) func(int) error {
	return func(int) error {
		if *low < 0 || *high < 1 || *low > *high {
			return fmt.Errorf("%d to %d connections: want at least 1, and no fewer than %s", *low, *high, flag)
		}
		return nil
	}
}

// settings returns the rows of the table for slots, which share a guard with the
// admin paths.
func (c *Slots) settings(admin *Admin) []setting {
	guarded := func() bool { return !c.Auth || admin.Guarded() }
	seed := func(string) error {
		_, _, err := c.SeedConfig()
		return err
	}
	keep := func(d time.Duration) error {
		if d > 0 && d < c.KeepWindows {
			return fmt.Errorf("%v is less than --slots-keep-windows (%v), and windows count their slots", d, c.KeepWindows)
		}
		return nil
	}
	return []setting{
		row("slots", &c.URL, "", nil, "`URL` of the database that keeps slots: sqlite:FILE, postgres://…, mysql://…, oracle://…; empty: disabled; see docs/slots.md").
			also("quarkus.datasource.jdbc.url").hiding(inURL),
		row("slots-username", &c.Username, "", nil, "`name` to log into the database with, if the URL has none").also("quarkus.datasource.username"),
		row("slots-password", &c.Password, "", nil, "`secret` that goes with it").also("quarkus.datasource.password").hiding(whole),
		row("slots-pool-min", &c.PoolMin, defaultPoolMin, nil, "connections to the database that are kept open").also("quarkus.datasource.jdbc.min-size"),
		row("slots-pool-max", &c.PoolMax, defaultPoolMax, checkPool(&c.PoolMin, &c.PoolMax, "--slots-pool-min"), "most connections to the database").also("quarkus.datasource.jdbc.max-size"),
		row("slots-migrate", &c.Migrate, true, nil, "migrate the database's schema at start; if disabled, run headgate migrate").also("quarkus.flyway.migrate-at-start"),

		row("slots-auth", &c.Auth, false, require[bool](guarded, "needs --admin-token or --admin-client-ca, or --admin-jwks: without them nobody could use slots"),
			"demand the admin token or client certificate for slots and their page too; the --admin address serves them too"),

		row("slots-engine", &c.Engine, "tx", oneOf("tx", "procedure"), "how slots are assigned: tx (statements from here) or procedure (in the database, one round trip)").among("tx", "procedure"),
		row("slots-scope", &c.Scope, "", oneOf("", slots.ScopeConfig, slots.ScopeShared),
			"which windows a config counts in: config (its own) or shared (all configs count together); a database decides it once; empty: as the database has it, config in a new one").among("", slots.ScopeConfig, slots.ScopeShared),
		row("slots-default-config", &c.DefaultConfig, slots.DefaultConfigName, nil, "`name` of the config of requests that name none").also("rate-limiter.default-config-name"),
		row("slots-seed", &c.Seed, "", seed, "`config` to make if the default one does not exist, as events/window: 100/PT4S"),
		row("slots-chunk", &c.Chunk, slots.DefaultChunk, between(1, slots.MaxChunk), "windows that the background work makes at once").also("rate-limiter.max-windows-in-chunk"),
		row("slots-extra-chunks", &c.ExtraChunks, slots.DefaultChunks, between(0, slots.MaxChunks), "chunks that the background work makes after the current one").also("rate-limiter.max-chunks-to-search"),

		row("slots-max-past", &c.MaxPast, 0, nil, "how far in the past a requested time may be; 0: any time"),
		row("slots-max-future", &c.MaxFuture, 0, nil, "how far in the future a requested time may be; 0: any time"),
		row("slots-timeout", &c.Timeout, slots.DefaultTimeout, positive, "longest time to assign a slot"),
		row("slots-ahead", &c.Ahead, 0, nil,
			"how far ahead of now windows are made before anybody asks, for programs that read the tables; 0: from --slots-extra-chunks if another program made the schema, else disabled"),
		row("slots-keep-windows", &c.KeepWindows, slots.DefaultKeepWindows, nil, "how long windows are kept after their end"),
		row("slots-keep", &c.Keep, 0, keep, "how long slots are kept after their time; 0: for ever. An event whose slot was dropped can get another one"),
	}
}

// Settings returns the settings of a scheduler.
func (c *Slots) Settings() slots.Settings {
	extra := c.ExtraChunks
	if extra == 0 {
		extra = -1 // none, which is not the default
	}
	return slots.Settings{
		DefaultConfig: c.DefaultConfig, Chunk: c.Chunk, Chunks: extra,
		Procedure: c.Engine == "procedure", Scope: c.Scope,
		MaxPast: c.MaxPast, MaxFuture: c.MaxFuture, Timeout: c.Timeout,
		Ahead: c.Ahead, KeepWindows: c.KeepWindows, KeepSlots: c.Keep,
	}
}

// SeedConfig returns --slots-seed; zero if it is not set.
func (c *Slots) SeedConfig() (most, sizeMs int64, err error) {
	if c.Seed == "" {
		return 0, 0, nil
	}
	number, size, _ := strings.Cut(c.Seed, "/")
	most, err = strconv.ParseInt(number, 10, 64)
	if err != nil || most < 0 || most > plan.MaxPerWindow {
		return 0, 0, fmt.Errorf("%q does not begin with a number of events; want for example 100/PT4S", c.Seed)
	}
	if sizeMs, err = plan.ParseSize(size); err != nil {
		return 0, 0, fmt.Errorf("%q: %w", c.Seed, err)
	}
	return most, sizeMs, nil
}
