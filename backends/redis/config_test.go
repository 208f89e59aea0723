package redis

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/internal/kit/params"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/test/golden"
)

func TestParseReadsWhatURLWrites(t *testing.T) {
	with := func(change func(c *Config)) Config {
		c := DefaultConfig()
		change(&c)
		return c
	}
	for url, want := range map[string]Config{
		"redis://localhost":             with(func(c *Config) { c.Addrs = []string{"localhost:6379"} }),
		"redis://h:1/":                  with(func(c *Config) { c.Addrs = []string{"h:1"} }),
		"redis://h:1/7":                 with(func(c *Config) { c.Addrs, c.DB = []string{"h:1"}, 7 }),
		"redis://[::1]:1":               with(func(c *Config) { c.Addrs = []string{"[::1]:1"} }),
		"redis://[::1]":                 with(func(c *Config) { c.Addrs = []string{"[::1]:6379"} }),
		"redis://:p%40%2F%3F%25%3A@h:1": with(func(c *Config) { c.Addrs, c.Password = []string{"h:1"}, "p@/?%:" }),
		"redis://u:p@x:y@h:1": with(func(c *Config) {
			c.Addrs, c.Username, c.Password = []string{"h:1"},
				"u", "p@x:y"
		}),
		"redis://u%3Av@h:1": with(func(c *Config) { c.Addrs, c.Username = []string{"h:1"}, "u:v" }),
		"rediss://h:1?server_name=s&ca=c": with(func(c *Config) {
			c.Addrs, c.TLS, c.ServerName, c.CA = []string{"h:1"}, true, "s", "c"
		}),
		"unix:///run/redis.sock?db=2":    with(func(c *Config) { c.Unix, c.DB = "/run/redis.sock", 2 }),
		"unix:///r%3Fs/%25%20.sock?db=2": with(func(c *Config) { c.Unix, c.DB = "/r?s/% .sock", 2 }),
		"redis+unix:///r@x?timeout=20ms": with(func(c *Config) { c.Unix, c.Timeout = "/r@x", 20*time.Millisecond }),
		"redis+sentinel://u:p@a:1,b/my%2Fm/3?sentinel_username=su&sentinel_password=s%26p": with(func(c *Config) {
			c.Mode, c.Addrs, c.Master, c.DB = Sentinel, []string{"a:1", "b:26379"}, "my/m", 3
			c.Username, c.Password, c.SentinelUsername, c.SentinelPassword = "u", "p", "su", "s&p"
		}),
		"rediss+sentinel://a/m": with(func(c *Config) {
			c.Mode, c.TLS, c.Addrs, c.Master = Sentinel, true, []string{"a:26379"}, "m"
		}),
		"redis+cluster://a:1,b:2,[::1]:3": with(func(c *Config) {
			c.Mode, c.Addrs = Cluster,
				[]string{"a:1", "b:2", "[::1]:3"}
		}),
		"rediss+cluster://a?password_file=%2Ff": with(func(c *Config) {
			c.Mode, c.TLS, c.Addrs, c.PasswordFile = Cluster, true, []string{"a:6379"}, "/f"
		}),
		"redis://h?layout=zset&max_slice=7&prefix=&pool_size=3&dial_timeout=1s": with(func(c *Config) {
			c.Addrs, c.Layout, c.MaxSlice, c.Prefix, c.PoolSize, c.DialTimeout = []string{"h:6379"}, ZSet, 7, "", 3, time.Second
		}),
	} {
		got, err := Parse(url)
		if err != nil || fmt.Sprintf("%#v", plain(got)) != fmt.Sprintf("%#v", plain(want)) {
			t.Errorf("%s: %+v, %v\nwant %+v", url, plain(got), err, plain(want))
			continue
		}
		if strings.Contains(got.URL(), "***") {
			continue
		}
		if again, err := Parse(got.URL()); err != nil || fmt.Sprintf("%#v", plain(again)) != fmt.Sprintf("%#v", plain(got)) {
			t.Errorf("%s: its URL %s does not mean the same: %+v, %v", url, got.URL(), plain(again), err)
		}
	}
}

// plain is Config without its methods, so that tests see every field.
func plain(c Config) any {
	type fields Config
	return struct {
		fields
		Secrets [2]string
	}{fields(c), [2]string{string(c.Password), string(c.SentinelPassword)}}
}

// TestParseErrorsReadAsDocumented compares messages with testdata/urls.txt, which has the
// URLs, each with its message in the line below.
func TestParseErrorsReadAsDocumented(t *testing.T) {
	file := filepath.Join("testdata", "urls.txt")
	known, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for line := range strings.Lines(string(known)) {
		line = strings.TrimRight(line, "\n")
		if line == "" || strings.HasPrefix(line, "\t") {
			continue
		}
		c, err := Parse(line)
		if err == nil {
			t.Errorf("%s: no error: %s", line, c)
			continue
		}
		if strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: the password is in the error %v", line, err)
		}
		fmt.Fprintf(&got, "%s\n\t%v\n", line, err)
	}
	golden.Check(t, file, got.String())
}

func TestSecretsStaySecret(t *testing.T) {
	c := mustParse(t, "redis+sentinel://app:s3cret@h/m?sentinel_password=s3cret")
	var log bytes.Buffer
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "config", c, "pointer", &c, "password", c.Password)
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "config", c, "pointer", &c, "password", c.Password)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		fmt.Fprintf(&log, verb+verb+verb+verb, c, &c, c.Password, []any{c, c.Password})
	}
	encoded, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	log.Write(encoded)
	log.WriteString(c.URL() + c.String() + c.Password.String())
	if text := log.String(); strings.Contains(text, "s3cret") || strings.Contains(text, fmt.Sprintf("%x", "s3cret")) {
		t.Errorf("a secret got out:\n%s", text)
	}
	if c.URL() != "redis+sentinel://app:***@h:26379/m?sentinel_password=***" {
		t.Errorf("URL %s", c.URL())
	}
}

func TestCapsFollowTheURL(t *testing.T) {
	for url, want := range map[string]struct {
		atomicity backends.Atomicity
		precision time.Duration
		log       int64
	}{
		"redis://h":               {backends.Whole, time.Microsecond, maxListUnits},
		"redis://h?layout=zset":   {backends.Whole, time.Millisecond, maxZSetUnits},
		"redis://h?layout=envoy":  {backends.Whole, time.Second, 0},
		"redis+sentinel://h/m":    {backends.Whole, time.Microsecond, maxListUnits},
		"redis+cluster://h1,h2:3": {backends.PerPartition, time.Microsecond, maxListUnits},
	} {
		caps := mustParse(t, url).Caps()
		if caps.Atomicity != want.atomicity || caps.Precision != want.precision ||
			caps.Algorithms[limit.SlidingLog].MaxUnits != want.log {
			t.Errorf("%s: %+v", url, caps)
		}
	}
}

// TestReadmeListsParameters compares README.md's table with the parser.
func TestReadmeListsParameters(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	var documented, known []string
	c := DefaultConfig()
	rows := c.params()
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| ([^|]*) \\|").FindAllStringSubmatch(
		string(readme), -1) {
		documented = append(documented, m[1])
		i := slices.IndexFunc(rows, func(p params.Row) bool { return p.Name == m[1] })
		if i < 0 {
			continue
		}
		if value := strings.Trim(strings.TrimSpace(m[2]), "`"); value != rows[i].Get() && value != "" {
			t.Errorf("README.md says that %s is %q by default, it is %q", m[1], value, rows[i].Get())
		}
	}
	for _, p := range rows {
		known = append(known, p.Name)
	}
	slices.Sort(documented)
	if !slices.Equal(documented, known) {
		t.Errorf("README.md lists %v\nthe parser knows %v", documented, known)
	}
	for _, s := range schemes {
		if !strings.Contains(string(readme), "`"+s.name+"://") {
			t.Errorf("README.md does not mention the scheme %s", s.name)
		}
	}
}
