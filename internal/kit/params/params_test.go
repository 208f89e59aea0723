package params

import (
	"errors"
	"strings"
	"testing"
	"time"
)

type word uint8

type secret string

func (secret) String() string { return "***" }

type all struct {
	text   string
	hidden secret
	flag   bool
	number int
	wait   time.Duration
	chosen word
}

func (a *all) rows() []Row {
	return []Row{
		Text("text", &a.text), Text("hidden", &a.hidden), Bool("flag", &a.flag), Number("number", &a.number, 2, 9),
		Duration("wait", &a.wait, time.Second, time.Minute), Word("word", &a.chosen, "one", "two"),
		{Name: "own", Set: func(string) error { return errors.New("own check") }},
	}
}

func TestRowsReadTheirParameters(t *testing.T) {
	var a all
	if err := Parse("text=a%26b&hidden=geheim&flag=true&number=9&wait=1s&word=two", a.rows()); err != nil {
		t.Fatal(err)
	}
	if a != (all{text: "a&b", hidden: "geheim", flag: true, number: 9, wait: time.Second, chosen: 1}) {
		t.Errorf("%+v", a)
	}
	got := ""
	for _, r := range a.rows()[:6] {
		got += r.Name + "=" + r.Get() + " "
	}
	if want := "text=a&b hidden=*** flag=true number=9 wait=1s word=two "; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestProblemsNameTheirParameter(t *testing.T) {
	for query, want := range map[string]string{
		"number=1":          "number=1: want a number from 2 to 9",
		"number=10":         "number=10: want a number from 2 to 9",
		"number=x":          "number=x: want a number from 2 to 9",
		"wait=2m":           "wait=2m: want a duration from 1s to 1m0s",
		"wait=5":            "wait=5: want a duration from 1s to 1m0s",
		"flag=maybe":        "flag=maybe: want true or false",
		"word=three":        "word=three: want one of one, two",
		"own=1":             "own=1: own check",
		"number=2&number=3": "parameter number is given 2 times",
		"nummer=2":          `unknown parameter "nummer"; did you mean "number"?`,
		"other=1":           `unknown parameter "other"; known are text, hidden, flag, number, wait, word, own`,
		"text=%zz":          "the parameters after the ? cannot be parsed",
	} {
		if err := Parse(query, new(all).rows()); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", query, err, want)
		}
	}
}

func TestTakeLeavesOthers(t *testing.T) {
	var a all
	others, err := Take("number=3&sslmode=disable", a.rows())
	if err != nil || others.Encode() != "sslmode=disable" || a.number != 3 {
		t.Errorf("%v, %v, %+v", others, err, a)
	}
	if _, err := Take("nummer=3", a.rows()); err == nil || !strings.Contains(err.Error(), "did you mean") {
		t.Errorf("a misspelt name passes: %v", err)
	}
}

// TestCheckLogin: passwords with characters that end them are refused.
func TestCheckLogin(t *testing.T) {
	for url, ok := range map[string]bool{
		"redis://h": true, "redis://u:p@h/0?x=1": true, "redis://u:p@ss@h": true, "redis://:p%2Fw@h": true,
		"redis://h/0?login=a@b&x=1": true,
		"redis://u:p/w@h":           false, "redis://u:p?w@h": false, "redis://:p@ss/w0rd@h": false,
		"redis://:p@ss?x=w0rd@h": false, "redis://h/d@x": false, "redis://h/0?x=a@b": false,
	} {
		if err := CheckLogin(url, HoldNoAt, "login"); (err == nil) != ok {
			t.Errorf("%s: %v", url, err)
		}
	}
	for url, ok := range map[string]bool{"unix:///r@x": true, "unix://:p@/r@x": true, "unix://:p/w@/r": false} {
		if err := CheckLogin(url, HoldAt); (err == nil) != ok {
			t.Errorf("%s: %v", url, err)
		}
	}
}
