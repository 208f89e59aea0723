package spell

import (
	"fmt"
	"strings"
)

// Short returns the beginning of text that would swamp a message: at most 60
// bytes.
func Short(s string) string {
	if len(s) <= 60 {
		return s
	}
	return strings.ToValidUTF8(s[:57], "") + "..."
}

// DidYouMean returns "; did you mean" and the nearest of words, or nothing if
// none is near.
func DidYouMean(s string, words []string) string {
	if w := Nearest(s, words); w != "" {
		return fmt.Sprintf("; did you mean %q?", w)
	}
	return ""
}

// OneOf returns words as a list that ends with "or".
func OneOf(words []string) string {
	if len(words) == 1 {
		return words[0]
	}
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}
