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
