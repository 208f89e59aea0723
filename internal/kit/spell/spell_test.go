package spell

import (
	"strings"
	"testing"
)

func TestNearestWordIsSuggested(t *testing.T) {
	known := []string{"rate_limit", "requests_per_unit", "unit", "key", "share_threshold", "rule-header"}
	for word, want := range map[string]string{
		"rate_limt":                "rate_limit",
		"ratelimit":                "rate_limit",
		"Rate-Limit":               "rate_limit",
		"requests":                 "requests_per_unit",
		"share":                    "share_threshold",
		"unit_multiplier":          "unit",
		"rule":                     "rule-header",
		"units":                    "unit",
		"rule_header":              "rule-header",
		"kez":                      "key",
		"kye":                      "key",
		"uint":                     "unit",
		"algor":                    "",
		"requ":                     "requests_per_unit",
		"x":                        "",
		"algorithm":                "",
		strings.Repeat("u", 1_000): "",
	} {
		if got := Nearest(word, known); got != want {
			t.Errorf("%s: got %q, want %q", word, got, want)
		}
	}
}

// TestSimilarWordsHaveFewWrongLetters: a word that only begins like a name is not similar to it.
func TestSimilarWordsHaveFewWrongLetters(t *testing.T) {
	known := []string{"rate_limit", "requests_per_unit", "unit"}
	for word, want := range map[string]string{
		"rate_limt": "rate_limit", "requests": "", "unit_multiplier": "", "RATELIMIT": "rate_limit",
		strings.Repeat("u", 1_000): "",
	} {
		if got := Similar(word, known); got != want {
			t.Errorf("%s: got %q, want %q", word, got, want)
		}
	}
}

func TestCountSpellsNumbers(t *testing.T) {
	for n, want := range map[int]string{0: "0 rules", 1: "1 rule", 2: "2 rules"} {
		if got := Count(n, "rule"); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}
