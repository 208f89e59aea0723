package config

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/headgate-rls/headgate/internal/kit/settings"
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

	Engine string
	Seed   string
	// Scheduler has the rest as schedulers have it; see [Slots.Settings].
	Scheduler slots.Settings
}

// settings returns the rows of the table for slots, which share a guard with the
// admin paths.
func (c *Slots) settings(admin *Admin) []settings.Setting {
	seed := func(string) error {
		_, _, err := c.SeedConfig()
		return err
	}
	keep := func(d time.Duration) error {
		if d > 0 && d < c.Scheduler.KeepWindows {
			return fmt.Errorf("%v is less than --slots-keep-windows (%v), and windows count their slots", d,
				c.Scheduler.KeepWindows)
		}
		return nil
	}
	return []settings.Setting{
		settings.Row("slots", &c.URL, "",
			"`URL` of the database that keeps slots: sqlite:FILE, postgres://…, mysql://…, oracle://…; empty: "+
				"disabled; see docs/slots.md", settings.Also("quarkus.datasource.jdbc.url"), settings.URLWithSecret),
		settings.Row("slots-username", &c.Username, "",
			"`name` to log into the database with, if the URL has none", settings.Also("quarkus.datasource.username")),
		settings.Row("slots-password", &c.Password, "",
			"`secret` that goes with it", settings.Also("quarkus.datasource.password"), settings.Secret),
		settings.Row("slots-pool-min", &c.PoolMin, settings.PoolMin,
			"connections to the database that are kept open", settings.Also("quarkus.datasource.jdbc.min-size")),
		settings.Row("slots-pool-max", &c.PoolMax, settings.PoolMax,
			"most connections to the database", settings.Pool(&c.PoolMin, &c.PoolMax, "--slots-pool-min"),
			settings.Also("quarkus.datasource.jdbc.max-size")),
		settings.Row("slots-migrate", &c.Migrate, true,
			"migrate the database's schema at start; if disabled, run headgate migrate",
			settings.Also("quarkus.flyway.migrate-at-start")),

		settings.Row("slots-auth", &c.Auth, false,
			"demand the admin token or client certificate for slots and their page too; the --admin address serves "+
				"them too",
			settings.Needs(admin.Guarded,
				"needs --admin-token or --admin-client-ca, or --admin-jwks: without them nobody could use slots")),

		settings.Row("slots-engine", &c.Engine, "tx",
			"how slots are assigned: tx (statements from here) or procedure (in Oracle, one round trip)",
			settings.OneOf("tx", "procedure")),
		settings.Row("slots-scope", &c.Scheduler.Scope, "",
			"which windows a config counts in: config (its own) or shared (all configs count together); a database "+
				"decides it once; empty: as the database has it, config in a new one",
			settings.OneOf("", slots.ScopeConfig, slots.ScopeShared)),
		settings.Row("slots-default-config", &c.Scheduler.DefaultConfig, slots.DefaultConfigName,
			"`name` of the config of requests that name none", settings.Also("rate-limiter.default-config-name")),
		settings.Row("slots-seed", &c.Seed, "",
			"`config` to make if the default one does not exist, as events/window: 100/PT4S", settings.Check(seed)),
		settings.Row("slots-chunk", &c.Scheduler.Chunk, slots.DefaultChunk,
			"windows that the background work makes at once", settings.Between(1, slots.MaxChunk),
			settings.Also("rate-limiter.max-windows-in-chunk")),
		settings.Row("slots-extra-chunks", &c.Scheduler.Chunks, slots.DefaultChunks,
			"chunks that the background work makes after the current one", settings.Between(0, slots.MaxChunks),
			settings.Also("rate-limiter.max-chunks-to-search")),

		settings.Row("slots-max-past", &c.Scheduler.MaxPast, 0, "how far in the past a requested time may be; 0: any time"),
		settings.Row("slots-max-future", &c.Scheduler.MaxFuture, 0,
			"how far in the future a requested time may be; 0: any time"),
		settings.Row("slots-timeout", &c.Scheduler.Timeout, slots.DefaultTimeout,
			"longest time to assign a slot", settings.Positive),
		settings.Row("slots-ahead", &c.Scheduler.Ahead, 0,
			"how far ahead of now windows are made before anybody asks, for programs that read the tables; 0: from "+
				"--slots-extra-chunks if another program made the schema, else disabled"),
		settings.Row("slots-keep-windows", &c.Scheduler.KeepWindows, slots.DefaultKeepWindows,
			"how long windows are kept after their end"),
		settings.Row("slots-keep", &c.Scheduler.KeepSlots, 0,
			"how long slots are kept after their time; 0: for ever. An event whose slot was dropped can get "+
				"another one", settings.Check(keep)),
	}
}

// Settings returns the settings of a scheduler.
func (c *Slots) Settings() slots.Settings {
	conf := c.Scheduler
	conf.Chunks = cmp.Or(conf.Chunks, -1) // none, which is not the default
	conf.Procedure = c.Engine == "procedure"
	return conf
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
