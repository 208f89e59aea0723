package spell

import (
	"fmt"
	"strings"
)

// maxLength bounds the names that are compared, since comparing takes time in
// proportion to both.
const maxLength = 256

// Nearest returns the one of known that word may have meant, or "". Case, "-"
// and "_" do not matter; else at most two letters may be wrong, and no more
// than about a third of the known name, for short ones are near to everything.
// Failing that, it is the first known name that begins with word, or the longest
// that is the beginning of it up to a "-" or "_".
func Nearest(word string, known []string) string {
	if len(word) > maxLength {
		return ""
	}
	best := Similar(word, known)
	if best != "" {
		return best
	}
	for _, k := range known {
		if len(word) > 3 && strings.HasPrefix(k, word) {
			return k
		}
		if len(k) > 3 && len(k) > len(best) && begins(word, k) {
			best = k
		}
	}
	return best
}

// Similar is [Nearest] without the names that only begin like word: for words that may well be
// meant as they are.
func Similar(word string, known []string) string {
	if len(word) > maxLength {
		return ""
	}
	best, least := "", 3
	letters := plain(word)
	for _, k := range known {
		if len(letters) > len(k)+2 {
			continue // further than any that is near
		}
		name := plain(k)
		if len(name) > len(letters)+2 {
			continue
		}
		d := distance(letters, name)
		if d == 0 {
			return k
		}
		if d < least && d*3 <= len(k)+1 {
			best, least = k, d
		}
	}
	return best
}

// begins reports whether s is start, "-" or "_" and something more.
func begins(s, start string) bool {
	return len(s) > len(start) && s[:len(start)] == start && (s[len(start)] == '-' || s[len(start)] == '_')
}

var marks = strings.NewReplacer("-", "", "_", "")

func plain(s string) string { return marks.Replace(strings.ToLower(s)) }

// distance counts the insertions, deletions, replacements and exchanges of
// neighbours from a to b.
func distance(a, b string) int {
	rows := [3][]int{}
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
	}
	before, last, row := rows[0], rows[1], rows[2]
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row[0] = i + 1
		for j := range len(b) {
			replace := last[j]
			if a[i] != b[j] {
				replace++
			}
			row[j+1] = min(replace, row[j]+1, last[j+1]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}

// Count returns a number of things in words: "1 rule", "2 rules".
func Count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// Pairs reads KEY=VALUE pairs with commas between them; a comma in a value is written \,
func Pairs(text string) (pairs [][2]string, err error) {
	const comma = "\x00"
	for part := range strings.SplitSeq(strings.ReplaceAll(text, `\,`, comma), ",") {
		key, value, ok := strings.Cut(strings.ReplaceAll(part, comma, ","), "=")
		if !ok || key == "" {
			return nil, fmt.Errorf("%q: want KEY=VALUE[,KEY=VALUE…]", Short(text))
		}
		pairs = append(pairs, [2]string{key, value})
	}
	return pairs, nil
}

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
