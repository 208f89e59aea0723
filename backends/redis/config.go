package redis

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/internal/kit/background"
	"github.com/headgate-rls/headgate/internal/kit/params"
	"github.com/headgate-rls/headgate/internal/kit/spell"
	"github.com/headgate-rls/headgate/limit"
)

// Mode says how servers are found.
type Mode uint8

const (
	Standalone Mode = iota // one server, or a proxy that looks like one
	Sentinel               // the master that a group of Sentinels names
	Cluster
)

// A Secret is a string that is never printed.
type Secret string

func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return "***"
}

// Format hides the secret from every verb.
func (s Secret) Format(f fmt.State, _ rune) { fmt.Fprint(f, s.String()) }

// LogValue hides the secret from logs.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText hides the secret from encoders.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Config is what [Parse] makes of a URL. [DefaultConfig] has the values of
// everything a URL may leave out.
type Config struct {
	Mode  Mode
	Unix  string   // path of a socket, instead of Addrs
	Addrs []string // host:port
	// Master is the name under which the Sentinels know the master.
	Master string
	DB     int

	Username     string
	Password     Secret
	PasswordFile string // read for each new connection
	PasswordEnv  string // name of an environment variable, likewise

	SentinelUsername     string
	SentinelPassword     Secret
	SentinelPasswordFile string

	TLS                bool
	CA, Cert, Key      string // files in PEM
	ServerName         string
	InsecureSkipVerify bool
	SkipHostname       bool // verify the chain of the server's certificate, but not its names

	Prefix string // of headgate's own keys
	Layout Layout
	// With the layout Envoy: what envoyproxy/ratelimit begins its keys with, and by up to how
	// many seconds less one, by chance, keys outlive the length of their window.
	CacheKeyPrefix   string
	ExpirationJitter int

	PoolSize    int
	DialTimeout time.Duration
	Timeout     time.Duration // of a call, where its context allows more
	MaxSlice    int           // requests per script call

	// NodeFailures in a row open the circuit breaker of a Cluster's node: calls
	// for its slots fail at once, and pings find out whether it is back, at
	// first every 100 ms, in the end every NodeDelay, less up to half of it
	// by chance. 0 is never.
	NodeFailures int
	NodeDelay    time.Duration

	// Now is the wall clock, by which keys are expected to expire. Nil means that a script decides all, and not only
	// what needs one.
	Now func() time.Time `json:"-"`
	// Panics of what runs in the background are reported to it; nil means to
	// the logger.
	Panics *background.Reporter `json:"-"`
}

// DefaultConfig returns the values that apply where a URL says nothing.
func DefaultConfig() Config {
	return Config{
		Prefix: "headgate:",

		ExpirationJitter: 300,

		PoolSize:    20,
		DialTimeout: 500 * time.Millisecond,
		Timeout:     500 * time.Millisecond,
		MaxSlice:    64,

		NodeFailures: 3,
		NodeDelay:    time.Second,
	}
}

// A scheme is one of URLs, with what it says.
type scheme struct {
	name string
	mode Mode
	tls  bool
	unix bool
}

var schemes = []scheme{
	{name: "redis"},
	{name: "rediss", tls: true},
	{name: "unix", unix: true},
	{name: "redis+unix", unix: true},
	{name: "redis+sentinel", mode: Sentinel},
	{name: "rediss+sentinel", mode: Sentinel, tls: true},
	{name: "redis+cluster", mode: Cluster},
	{name: "rediss+cluster", mode: Cluster, tls: true},
}

// params are the query parameters of a URL. README.md has a table of them.
func (c *Config) params() []params.Row {
	const short, long = time.Millisecond, time.Minute
	return []params.Row{
		params.Text("ca", &c.CA),
		params.Text("cache_key_prefix", &c.CacheKeyPrefix),
		params.Text("cert", &c.Cert),
		params.Number("db", &c.DB, 0, 1<<20),
		params.Duration("dial_timeout", &c.DialTimeout, short, long),
		params.Number("expiration_jitter", &c.ExpirationJitter, 0, 30*24*3600),
		params.Bool("insecure_skip_verify", &c.InsecureSkipVerify),
		params.Text("key", &c.Key),
		params.Word("layout", &c.Layout, layouts[List].name, layouts[ZSet].name, layouts[Envoy].name),
		params.Number("max_slice", &c.MaxSlice, 1, 1024),
		params.Duration("node_delay", &c.NodeDelay, short, long),
		params.Number("node_failures", &c.NodeFailures, 0, 1000),
		params.Text("password_env", &c.PasswordEnv),
		params.Text("password_file", &c.PasswordFile),
		params.Number("pool_size", &c.PoolSize, 1, 10_000),
		params.Text("prefix", &c.Prefix),
		params.Text("sentinel_password", &c.SentinelPassword),
		params.Text("sentinel_password_file", &c.SentinelPasswordFile),
		params.Text("sentinel_username", &c.SentinelUsername),
		params.Text("server_name", &c.ServerName),
		params.Bool("skip_hostname_verification", &c.SkipHostname),
		params.Duration("timeout", &c.Timeout, short, long),
	}
}

// Parse reads a URL: redis, redis+sentinel or redis+cluster, rediss for TLS, or
// unix. The example has one of each, README.md all parameters. Its errors never
// quote the part before the @.
func Parse(rawURL string) (Config, error) {
	c, err := parse(rawURL)
	if err != nil {
		return Config{}, fmt.Errorf("redis URL: %w", err)
	}
	return c, nil
}

// parse splits by hand: net/url refuses lists of hosts, and quotes passwords.
func parse(rawURL string) (Config, error) {
	c := DefaultConfig()
	name, rest, ok := strings.Cut(rawURL, "://")
	if !ok || strings.ContainsAny(name, ":@/") { // not the scheme, and perhaps a part of a password
		return c, errors.New("want SCHEME://HOST:PORT, such as redis://localhost:6379/0")
	}
	var found scheme
	var names []string
	for _, known := range schemes {
		names = append(names, known.name)
		if known.name == name {
			found = known
		}
	}
	if found.name == "" {
		return c, fmt.Errorf("unknown scheme %q%s; known are %s", name, spell.DidYouMean(name, names),
			strings.Join(names, ", "))
	}
	c.Mode, c.TLS = found.mode, found.tls
	if err := params.CheckLogin(rawURL, params.PathMay(found.unix), "sentinel_username", "sentinel_password"); err != nil {
		return c, err
	}
	rest, query, _ := strings.Cut(rest, "?")
	authority, path, _ := strings.Cut(rest, "/")
	if i := strings.LastIndexByte(authority, '@'); i >= 0 {
		if err := c.setUser(authority[:i]); err != nil {
			return c, err
		}
		authority = authority[i+1:]
	}
	if found.unix {
		if authority != "" || path == "" {
			return c, errors.New("want unix:///PATH with three slashes")
		}
		var err error
		if c.Unix, err = url.PathUnescape("/" + path); err != nil {
			return c, errors.New("bad percent-encoding in the path of the socket; write a % itself as %25, and a ? as %3F")
		}
	} else if err := c.setServers(authority, path); err != nil {
		if strings.Contains(query, "@") {
			return c, errHost // what looks like a host may be half a password
		}
		return c, err
	}
	if err := params.Parse(query, c.params()); err != nil {
		return c, err
	}
	return c, c.check()
}

var errHost = errors.New("bad host or database; a / or ? in the user name or password must be written %2F or %3F")

func (c *Config) setUser(user string) error {
	name, password, _ := strings.Cut(user, ":")
	var err1, err2 error
	c.Username, err1 = url.PathUnescape(name)
	password, err2 = url.PathUnescape(password)
	if err1 != nil || err2 != nil {
		return errors.New("bad percent-encoding before the @; write a % itself as %25")
	}
	c.Password = Secret(password)
	return nil
}

// setServers reads host:port,host:port and what follows the slash.
func (c *Config) setServers(hosts, path string) error {
	port := "6379"
	if c.Mode == Sentinel {
		port = "26379"
		c.Master, path, _ = strings.Cut(path, "/")
		var err error
		if c.Master, err = url.PathUnescape(c.Master); err != nil {
			return errors.New("bad percent-encoding in the master's name")
		}
	}
	for host := range strings.SplitSeq(hosts, ",") {
		addr, err := address(host, port)
		if err != nil {
			return err
		}
		c.Addrs = append(c.Addrs, addr)
	}
	if path == "" {
		return nil
	}
	db, err := strconv.Atoi(path)
	if err != nil || db < 0 {
		return fmt.Errorf("want the number of a database after the last slash, not %q", path)
	}
	c.DB = db
	return nil
}

func address(host, port string) (string, error) {
	if h, p, err := net.SplitHostPort(host); err == nil {
		host, port = h, p
	} else if strings.Contains(strings.TrimSuffix(host, "]"), ":") && !strings.HasPrefix(host, "[") {
		return "", fmt.Errorf("host %q: want HOST:PORT, and an IPv6 address in brackets", host)
	} else {
		host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	}
	if host == "" {
		return "", errors.New("a host is missing")
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return "", fmt.Errorf("host %q: bad port %q", host, port)
	}
	return net.JoinHostPort(host, port), nil
}

// check finds what contradicts itself.
func (c *Config) check() error {
	tlsOnly := c.CA != "" || c.Cert != "" || c.Key != "" || c.ServerName != "" || c.InsecureSkipVerify || c.SkipHostname
	sentinelOnly := c.SentinelUsername != "" || c.SentinelPassword != "" || c.SentinelPasswordFile != ""
	passwords := 0
	for _, s := range []string{string(c.Password), c.PasswordFile, c.PasswordEnv} {
		if s != "" {
			passwords++
		}
	}
	switch {
	case c.Unix == "" && len(c.Addrs) == 0:
		return errors.New("a host is missing")
	case c.Mode == Standalone && len(c.Addrs) > 1:
		return errors.New("several hosts need redis+sentinel:// or redis+cluster://")
	case c.Mode == Sentinel && c.Master == "":
		return errors.New("want the master's name after the hosts, such as redis+sentinel://h1:26379,h2:26379/mymaster")
	case c.Mode == Cluster && c.DB != 0:
		return errors.New("a Cluster has database 0 only")
	case tlsOnly && !c.TLS:
		return errors.New("ca, cert, key, server_name, insecure_skip_verify and skip_hostname_verification need a " +
			"rediss scheme")
	case c.SkipHostname && (c.ServerName != "" || c.InsecureSkipVerify):
		return errors.New("skip_hostname_verification goes with neither server_name nor insecure_skip_verify")
	case (c.Cert == "") != (c.Key == ""):
		return errors.New("cert and key go together")
	case sentinelOnly && c.Mode != Sentinel:
		return errors.New("sentinel_ parameters need a sentinel scheme")
	case c.SentinelPassword != "" && c.SentinelPasswordFile != "":
		return errors.New("sentinel_password and sentinel_password_file exclude each other")
	case passwords > 1:
		return errors.New("a password before the @, password_file and password_env exclude each other")
	case strings.ContainsAny(c.Prefix, "{}"):
		return errors.New("parameter prefix: braces would change how keys are spread over a Cluster")
	case c.Layout == ZSet && strings.HasPrefix(c.Prefix, sharedPrefix):
		return fmt.Errorf("parameter prefix: with layout=zset the keys %s… are those of logs shared with other programs, "+
			"and a client could choose a value whose key is another counter's; use another prefix", sharedPrefix)
	case c.Layout != Envoy && (c.CacheKeyPrefix != "" || c.ExpirationJitter != DefaultConfig().ExpirationJitter):
		return errors.New("cache_key_prefix and expiration_jitter need layout=envoy")
	case c.Layout == Envoy && c.Prefix == "":
		return errors.New("parameter prefix: with layout=envoy headgate's own keys need one, " +
			"to differ from those of envoyproxy/ratelimit")
	case c.CacheKeyPrefix != "" && strings.HasPrefix(c.CacheKeyPrefix, c.Prefix+"{"):
		return errors.New("parameter cache_key_prefix: begins as headgate's own keys do, see prefix")
	case len(c.CacheKeyPrefix) > 256:
		return errors.New("parameter cache_key_prefix: at most 256 bytes")
	case len(c.Prefix) > 64:
		return errors.New("parameter prefix: at most 64 bytes")
	case c.PoolSize < 1 || c.MaxSlice < 1 || c.Timeout <= 0 || c.DialTimeout <= 0 || c.NodeFailures < 0 ||
		c.NodeDelay <= 0:
		return errors.New("pool_size, max_slice, timeout, dial_timeout and node_delay must be positive; " +
			"start from DefaultConfig")
	}
	return nil
}

// URL returns a URL with the same meaning, except that secrets are ***.
func (c Config) URL() string {
	var b strings.Builder
	for _, s := range schemes {
		if s.mode == c.Mode && s.tls == c.TLS && s.unix == (c.Unix != "") {
			b.WriteString(s.name + "://")
			break
		}
	}
	if c.Username != "" || c.Password != "" {
		b.WriteString(strings.ReplaceAll(url.QueryEscape(c.Username), "+", "%20"))
		if c.Password != "" {
			b.WriteString(":" + c.Password.String())
		}
		b.WriteString("@")
	}
	b.WriteString(strings.Join(c.Addrs, ",") + (&url.URL{Path: c.Unix}).EscapedPath())
	if c.Mode == Sentinel {
		b.WriteString("/" + url.PathEscape(c.Master))
	}
	if c.DB != 0 && c.Unix == "" {
		fmt.Fprintf(&b, "/%d", c.DB)
	}
	defaults, sep := DefaultConfig(), "?"
	byDefault := defaults.params()
	for i, p := range c.params() {
		if v := p.Get(); v != byDefault[i].Get() && (p.Name != "db" || c.Unix != "") {
			b.WriteString(sep + p.Name + "=" + strings.ReplaceAll(url.QueryEscape(v), "%2A%2A%2A", "***"))
			sep = "&"
		}
	}
	return b.String()
}

// String returns [Config.URL].
func (c Config) String() string { return c.URL() }

// Format prints [Config.URL] for every verb, so that no secret slips out.
func (c Config) Format(f fmt.State, _ rune) { fmt.Fprint(f, c.URL()) }

// LogValue logs [Config.URL].
func (c Config) LogValue() slog.Value { return slog.StringValue(c.URL()) }

// Most units of a sliding log. A log keeps a record per admission (list) or a
// member per unit (zset); see README.md for the memory that takes.
const (
	maxListUnits = 1_000_000
	maxZSetUnits = 20_000
	maxOps       = 64
)

// scripted are the algorithms that the scripts know.
var scripted = []limit.Algorithm{limit.FixedWindow, limit.SlidingLog, limit.SlidingWindow, limit.TokenBucket,
	limit.Concurrency}

// Caps returns what the backend promises under c.
func (c Config) Caps() backends.Caps {
	caps := backends.Caps{
		Name:        "redis",
		Atomicity:   backends.Whole,
		ServerClock: true,
		Precision:   time.Microsecond,
		MaxOps:      maxOps,
		Algorithms:  backends.Promises(scripted, maxListUnits, limit.Concurrency.MaxUnits(), 1),
	}
	if c.Mode == Cluster {
		caps.Atomicity = backends.PerPartition
	}
	if narrow := narrowed[c.Layout]; narrow != nil {
		narrow(&caps)
	}
	return caps
}

// narrowed says what layouts promise otherwise than List.
var narrowed = [...]func(*backends.Caps){
	List: nil,
	ZSet: func(caps *backends.Caps) {
		caps.Precision, caps.SharedLogs = time.Millisecond, true
		for a, ac := range caps.Algorithms {
			if a.Is(limit.Logged) { // what other programs write there owes nothing
				ac.MaxUnits, ac.Overflow = maxZSetUnits, limit.Saturate
				caps.Algorithms[a] = ac
			}
		}
	},
	// envoyproxy/ratelimit uses the clock of each replica, in whole seconds, and its limits
	// are of 32 bits.
	Envoy: func(caps *backends.Caps) {
		caps.Variant = "layout=envoy"
		caps.Precision, caps.ServerClock = time.Second, false
		caps.PlainWindows, caps.LongGroups = true, true
		caps.Windows = windowsOfEnvoy
		caps.Algorithms = map[limit.Algorithm]backends.AlgorithmCaps{
			limit.FixedWindow: {MaxUnits: math.MaxUint32, Overflow: limit.Saturate, Trips: 1},
		}
	},
}

const day = 24 * time.Hour

// windowsOfEnvoy are a second, minute, hour, day, week, month and year of envoyproxy/ratelimit.
var windowsOfEnvoy = []time.Duration{time.Second, time.Minute, time.Hour, day, 7 * day, 30 * day, 365 * day}
