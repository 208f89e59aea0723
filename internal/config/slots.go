package config

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

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

// Admin has the settings of the guarded HTTP paths.
type Admin struct {
	Address  string
	Token    string
	TLSCert  string
	TLSKey   string
	ClientCA string
}

func defineSlots(fs *pflag.FlagSet, c *Slots) {
	fs.StringVar(&c.URL, "slots", "", "`URL` of the database that keeps slots: sqlite:FILE, postgres://…, mysql://…, oracle://…; empty serves none; see docs/slots.md")
	fs.StringVar(&c.Username, "slots-username", "", "`name` to log into the database with, if the URL has none")
	fs.StringVar(&c.Password, "slots-password", "", "`secret` that goes with it")
	fs.IntVar(&c.PoolMin, "slots-pool-min", 5, "connections to the database that are kept open")
	fs.IntVar(&c.PoolMax, "slots-pool-max", 30, "most connections to the database")
	fs.BoolVar(&c.Migrate, "slots-migrate", true, "bring the database's schema up to date at start; else `headgate migrate` does")

	fs.BoolVar(&c.Auth, "slots-auth", false, "demand of requests for slots, and of the page, what admin paths demand; the --admin address serves them too")

	fs.StringVar(&c.Engine, "slots-engine", "tx", "how slots are assigned: tx (statements from here) or procedure (in the database, one round trip)")
	fs.StringVar(&c.Scope, "slots-scope", "", "whose windows a config counts in: config (its own) or shared (all configs count together); it is decided once for a database; empty: as the database has it, config in a new one")
	fs.StringVar(&c.DefaultConfig, "slots-default-config", "default", "`name` of the config of requests that name none")
	fs.StringVar(&c.Seed, "slots-seed", "", "`config` to make if the default one does not exist, as events/window: 100/PT4S")
	fs.IntVar(&c.Chunk, "slots-chunk", 100, "windows that the background work makes at once")
	fs.IntVar(&c.ExtraChunks, "slots-extra-chunks", 2, "chunks that the background work makes beyond the one of now")

	fs.DurationVar(&c.MaxPast, "slots-max-past", 0, "how far in the past a requested time may be; 0 for any")
	fs.DurationVar(&c.MaxFuture, "slots-max-future", 0, "how far in the future a requested time may be; 0 for any")
	fs.DurationVar(&c.Timeout, "slots-timeout", 5*time.Second, "longest time to assign a slot")
	fs.DurationVar(&c.Ahead, "slots-ahead", 0, "how far ahead of now windows are made before anybody asks, for those who read the tables; 0: by --slots-extra-chunks where another program made the schema, else not")
	fs.DurationVar(&c.KeepWindows, "slots-keep-windows", 7*24*time.Hour, "how long windows are kept after their end")
	fs.DurationVar(&c.Keep, "slots-keep", 0, "how long slots are kept after their time; 0 for ever. An event whose slot is gone can get another one")
}

func defineAdmin(fs *pflag.FlagSet, c *Admin) {
	fs.StringVar(&c.Address, "admin", "", "`address` of the admin paths; empty: with those of --http")
	fs.StringVar(&c.Token, "admin-token", "", "`secret` that admin requests bring as Authorization: Bearer; without it and without --admin-client-ca these paths are closed")
	fs.StringVar(&c.TLSCert, "admin-tls-cert", "", "certificate chain `file` of the --admin address; reloaded when it changes")
	fs.StringVar(&c.TLSKey, "admin-tls-key", "", "private key `file` of the --admin address")
	fs.StringVar(&c.ClientCA, "admin-client-ca", "", "`file` with the certificate authorities whose clients may use the --admin address; others are refused")
}

// minToken is the shortest token that is accepted: shorter ones can be guessed.
const minToken = 16

func (c *Admin) check(bad func(flag, format string, args ...any)) {
	if c.Token != "" && len(c.Token) < minToken {
		bad("admin-token", "has %d characters, want at least %d; `openssl rand -hex 32` makes one", len(c.Token), minToken)
	}
	if (c.TLSCert == "") != (c.TLSKey == "") {
		bad("admin-tls-cert", "needs --admin-tls-key, and the other way round")
	}
	if c.TLSCert != "" && c.Address == "" {
		bad("admin-tls-cert", "needs --admin, a listener of its own")
	}
	if c.ClientCA != "" && c.TLSCert == "" {
		bad("admin-client-ca", "needs --admin-tls-cert and --admin-tls-key")
	}
}

func (c *Slots) check(bad func(flag, format string, args ...any)) {
	oneOf := func(flag, value string, want ...string) {
		for _, w := range want {
			if value == w {
				return
			}
		}
		bad(flag, "%q is none of %s", value, strings.Join(want, ", "))
	}
	oneOf("slots-engine", c.Engine, "tx", "procedure")
	oneOf("slots-scope", c.Scope, "", "config", "shared")
	if c.PoolMin < 0 || c.PoolMax < 1 || c.PoolMin > c.PoolMax {
		bad("slots-pool-max", "%d to %d connections: want at least 1, and no fewer than --slots-pool-min", c.PoolMin, c.PoolMax)
	}
	if c.Chunk < 1 || c.Chunk > 10_000 {
		bad("slots-chunk", "%d is outside 1 to 10000", c.Chunk)
	}
	if c.ExtraChunks < 0 || c.ExtraChunks > 100 {
		bad("slots-extra-chunks", "%d is outside 0 to 100", c.ExtraChunks)
	}
	if c.Timeout <= 0 {
		bad("slots-timeout", "must be positive")
	}
	if c.Keep > 0 && c.Keep < c.KeepWindows {
		bad("slots-keep", "%v is less than --slots-keep-windows (%v), and windows count their slots", c.Keep, c.KeepWindows)
	}
	if _, _, err := c.SeedConfig(); err != nil {
		bad("slots-seed", "%v", err)
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
