package repo

import (
	"os"
	"strings"
	"testing"
	"unicode/utf8"
)

// maxColumns is how long a line of prose may be. Tables, and code that is
// copied as it stands, may be longer.
const maxColumns = 120

func TestMarkdownLinesAreShort(t *testing.T) {
	for _, file := range documents(t) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		code := false
		for i, line := range strings.Split(string(text), "\n") {
			trimmed := strings.TrimSpace(line)
			if strings.HasPrefix(trimmed, "```") {
				code = !code
			}
			n := utf8.RuneCountInString(line)
			if n > maxColumns && !code && !strings.HasPrefix(trimmed, "|") && !strings.HasPrefix(trimmed, "<!--") {
				t.Errorf("%s:%d: %d columns, want at most %d", file, i+1, n, maxColumns)
			}
		}
	}
}

// maxWords is how long documents may be that somebody reads as a whole.
var maxWords = map[string]int{"../../docs/operations.md": 4000, "../../docs/design.md": 4500,
	"../../docs/ARCHITECTURE.md": 1500, "../../docs/performance.md": 2500}

func TestDocumentsAreShort(t *testing.T) {
	for file, bound := range maxWords {
		if n := len(strings.Fields(string(readFile(t, file)))); n > bound {
			t.Errorf("%s: %d words, want at most %d: say it once, or give the subject a page of its own", file, n, bound)
		}
	}
}
