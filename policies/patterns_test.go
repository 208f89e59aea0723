package policies

import (
	"strings"
	"testing"
)

func TestPatternsMatchKeysAndBeginnings(t *testing.T) {
	p, err := ParsePatterns([]string{"user:alice", "user:gold-*", "a b", "team:%41"})
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]bool{
		"user:alice": true, "user:alice2": false, "user:alic": false, "user:gold-": true, "user:gold-7": true,
		"user:gold": false,
		"a%20b":     true, "team:A": true, "": false, "*": false,
	} {
		if p.Match([]byte(key)) != want {
			t.Errorf("%q: %v, want %v", key, !want, want)
		}
	}
	all, err := ParsePatterns([]string{"*"})
	if err != nil || !all.Match([]byte("anything")) {
		t.Errorf("* does not match all: %v", err)
	}
	var none *Patterns
	if none.Match([]byte("user:alice")) {
		t.Error("no patterns match")
	}
}

func TestWrongPatternsAreRefused(t *testing.T) {
	for pattern, want := range map[string]string{
		"":                             "the key is empty",
		"user:*-gold":                  "may only be at the end",
		"user:**":                      "may only be at the end",
		"user:%4*":                     "no escape",
		strings.Repeat("a", 200) + "*": "bytes before the *",
	} {
		if _, err := ParsePatterns([]string{pattern}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20q: %v, want %q", pattern, err, want)
		}
	}
	if _, err := ParsePatterns(make([]string, maxPatterns+1)); err == nil {
		t.Error("more patterns than the bound are accepted")
	}
}
