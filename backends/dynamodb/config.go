package dynamodb

import (
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/internal/kit/background"
	"github.com/headgate-rls/headgate/internal/kit/params"
	"github.com/headgate-rls/headgate/limit"
)

// Scheme is that of URLs that Parse reads.
const Scheme = "dynamodb"

// A Config says which table keeps the state, and how. [Parse] makes one.
type Config struct {
	// Table is the table's name.
	Table string
	// Region and Endpoint say where it is. Empty: what the chain of the AWS SDK finds in the
	// environment and in its files.
	Region, Endpoint string
	// Timeout bounds a call; the caller's deadline counts if it is earlier.
	Timeout time.Duration
	// InFlight is how many slices are decided at once, and MaxSlice how many requests are gathered
	// into one.
	InFlight, MaxSlice int
	// Tries is how often a decision calls DynamoDB while others write the same items, or while it is
	// throttled.
	Tries int
	// Connections bounds the calls of DynamoDB that are under way.
	Connections int
	// Remember bounds the memory of items that were seen, in bytes.
	Remember int
	// ReadUnits and WriteUnits are the capacity that a new table is provisioned with; both zero:
	// the table is paid for on demand.
	ReadUnits, WriteUnits int

	// Now is this process's clock: rows of the registry end by it, and pauses between calls are
	// measured. No limit is decided by it. Open wants one.
	Now    func() time.Time
	Log    *slog.Logger         // nil: nothing is logged
	Panics *background.Reporter // nil: the default logger
}

const (
	defaultTimeout     = 500 * time.Millisecond
	defaultInFlight    = 2
	defaultMaxSlice    = 256
	defaultTries       = 5
	defaultConnections = 64
	defaultRemember    = 32 << 20
)

// tableName is what DynamoDB takes.
var tableName = regexp.MustCompile(`^[a-zA-Z0-9_.-]{3,255}$`)

// regionName is the form of a region, such as eu-central-1.
var regionName = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)

// Parse reads dynamodb://TABLE with the parameters of README.md. It does not connect. Its errors
// hold no password.
func Parse(rawURL string) (Config, error) {
	c := Config{
		Timeout: defaultTimeout, InFlight: defaultInFlight, MaxSlice: defaultMaxSlice,
		Tries: defaultTries, Connections: defaultConnections, Remember: defaultRemember,
	}
	rest, ok := strings.CutPrefix(rawURL, Scheme+"://")
	if !ok {
		return c, errors.New("want dynamodb://TABLE")
	}
	table, query, _ := strings.Cut(rest, "?")
	if strings.Contains(query, "@") { // errors quote no part of a login
		return c, errors.New("no parameter may hold an @: as endpoint, want the address of a server, such as " +
			"http://localhost:8000")
	}
	if strings.Contains(table, "@") {
		return c, errors.New("a URL of DynamoDB has no user and no password: credentials come from the environment, " +
			"as the AWS SDK finds them")
	}
	if c.Table = strings.TrimSuffix(table, "/"); !tableName.MatchString(c.Table) {
		return c, fmt.Errorf(
			"table %q: want 3 to 255 letters, digits, _, . or -, as in dynamodb://limits?region=eu-central-1", c.Table)
	}
	if err := params.Parse(query, c.parameters()); err != nil {
		return c, err
	}
	if (c.ReadUnits == 0) != (c.WriteUnits == 0) {
		return c, errors.New("read_units and write_units go together: a table is provisioned for both, or paid for on demand")
	}
	return c, nil
}

func (c *Config) parameters() []params.Row {
	return []params.Row{
		params.Number("connections", &c.Connections, 1, 1024),
		{Name: "endpoint", Set: c.setEndpoint},
		params.Number("in_flight", &c.InFlight, 1, 64),
		params.Number("max_slice", &c.MaxSlice, 1, 1000),
		params.Number("read_units", &c.ReadUnits, 1, 1_000_000),
		{Name: "region", Set: c.setRegion},
		params.Number("remember", &c.Remember, 1<<20, 1<<34),
		params.Duration("timeout", &c.Timeout, 10*time.Millisecond, time.Minute),
		params.Number("tries", &c.Tries, 1, 20),
		params.Number("write_units", &c.WriteUnits, 1, 1_000_000),
	}
}

func (c *Config) setRegion(text string) error {
	if !regionName.MatchString(text) {
		return errors.New("want a region such as eu-central-1")
	}
	c.Region = text
	return nil
}

func (c *Config) setEndpoint(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || u.RawQuery != "" ||
		strings.Trim(u.Path, "/") != "" {
		return errors.New("want the address of a server, such as http://localhost:8000")
	}
	c.Endpoint = text
	return nil
}

// Bounds of states that are one attribute of an item, which each admission writes anew.
const (
	maxLog    = 1000
	maxLeases = 512
)

// Caps returns what a backend with this Config promises.
func (c *Config) Caps() backends.Caps {
	return backends.Caps{
		Name: Scheme, Algorithms: backends.Promises(limit.AllAlgorithms(), maxLog, maxLeases, 1),
		Atomicity: backends.Whole, Precision: time.Microsecond, MaxOps: 64,
		InFlight: c.InFlight, MaxSlice: c.MaxSlice,
	}
}
