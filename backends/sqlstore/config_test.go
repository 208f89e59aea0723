package sqlstore

import (
	"strings"
	"testing"
	"time"
)

func TestParseRefusesWrongSettings(t *testing.T) {
	c, err := Parse("postgres://u:p@h/d?commit=relaxed&in_flight=3&max_slice=9&sweep=1m&timeout=2s&sslmode=disable")
	check(t, err)
	if !c.Relaxed || c.InFlight != 3 || c.MaxSlice != 9 || c.Sweep != time.Minute || c.Timeout != 2*time.Second ||
		c.URL != "postgres://u:p@h/d?sslmode=disable" {
		t.Errorf("got %+v", c)
	}
	if caps := c.Caps(); caps.Name != "postgres" || caps.InFlight != 3 || caps.MaxSlice != 9 {
		t.Errorf("got %+v", caps)
	}
	for url, want := range map[string]string{
		"db2://h/d":                        `unknown scheme "db2" of a database for limits; want one of sqlite, postgres`,
		"oracle://h/d":                     "Oracle wants a username and a password",
		"oracle://u:geheim@h":              "want oracle://host:1521/service",
		"oracle://u:geheim@h/d?sslmode=no": "want oracle://host:1521/service",
		"postgres://u:geheim@h/d?timout=2": `unknown parameter "timout"; did you mean "timeout"?`,
		"postgres://h/d?timeout=2":         "timeout=2: want a duration from 10ms to 1m0s",
		"postgres://h/d?max_slice=1001":    "max_slice=1001: want a number from 1 to 1000",
		"mariadb://h/d?commit=relaxed":     "innodb_flush_log_at_trx_commit",
		"mysql://h/d?tls=maybe":            "tls=true",
		"sqlite:":                          "want sqlite:PATH",
		"sqlite:f?commit=%zz":              "the parameters after the ? cannot be parsed",
	} {
		if _, err := Parse(url); err == nil || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "geheim") {
			t.Errorf("%s: %v, want %q", url, err, want)
		}
	}
}
