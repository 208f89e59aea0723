package descriptors

import (
	"fmt"
	"strings"

	"github.com/headgate-rls/headgate/internal/spell"
)

// short cuts text that would swamp a message.
func short(s string) string {
	if len(s) <= 60 {
		return s
	}
	return strings.ToValidUTF8(s[:57], "") + "..."
}

func didYouMean(s string, words []string) string {
	if w := spell.Nearest(s, words); w != "" {
		return fmt.Sprintf("; did you mean %q?", w)
	}
	return ""
}

func oneOf(words []string) string {
	if len(words) == 1 {
		return words[0]
	}
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}
