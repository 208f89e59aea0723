package dynamodb

import (
	"fmt"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/test/dbtest"
)

func TestParse(t *testing.T) {
	c, err := Parse("dynamodb://my_limits.prod?region=eu-central-1&endpoint=http%3A%2F%2Flocalhost%3A8000&timeout=1s&" +
		"read_units=10&write_units=20&in_flight=3&max_slice=9&connections=7&tries=8&remember=1048576")
	check(t, err)
	want := Config{Table: "my_limits.prod", Region: "eu-central-1", Endpoint: "http://localhost:8000",
		Timeout:  time.Second,
		InFlight: 3, MaxSlice: 9, Connections: 7, Tries: 8, Remember: 1 << 20, ReadUnits: 10, WriteUnits: 20}
	if fmt.Sprint(c) != fmt.Sprint(want) {
		t.Errorf("%+v, want %+v", c, want)
	}
	if c, err = Parse("dynamodb://limits/"); err != nil || c.Table != "limits" || c.ReadUnits != 0 {
		t.Errorf("%+v (%v)", c, err)
	}
	for url, part := range map[string]string{
		"dynamodb:limits":                              "want dynamodb://TABLE",
		"dynamodb://":                                  `table ""`,
		"dynamodb://ab":                                "3 to 255",
		"dynamodb://a b c":                             `table "a b c"`,
		"dynamodb://key:secret@limits":                 "no user and no password",
		"dynamodb://limits?regoin=eu-central-1":        `unknown parameter "regoin"; did you mean "region"?`,
		"dynamodb://limits?profile=x":                  "known are connections, endpoint",
		"dynamodb://limits?region=EU":                  "want a region such as",
		"dynamodb://limits?endpoint=localhost:8000":    "want the address of a server",
		"dynamodb://limits?endpoint=http://u:p@h":      "want the address of a server",
		"dynamodb://limits?timeout=1":                  "want a duration from 10ms to 1m0s",
		"dynamodb://limits?in_flight=0":                "want a number from 1 to 64",
		"dynamodb://limits?read_units=5":               "go together",
		"dynamodb://limits?timeout=1s&timeout=2s":      "given 2 times",
		"dynamodb://limits?%zz":                        "cannot be parsed",
		"dynamodb://limits?read_units=0&write_units=0": "want a number from 1",
	} {
		_, err := Parse(url)
		dbtest.WantError(t, err, part)
	}
}

// TestNoRegion: a table is in a region, and nobody guesses it.
func TestNoRegion(t *testing.T) {
	t.Setenv("AWS_REGION", "")
	c, err := Parse("dynamodb://limits")
	check(t, err)
	c.Now = time.Now
	_, err = Open(c)
	dbtest.WantError(t, err, "no region", "AWS_REGION")
	t.Setenv("AWS_REGION", "eu-west-1")
	b, err := Open(c)
	check(t, err)
	check(t, b.Close())
}
