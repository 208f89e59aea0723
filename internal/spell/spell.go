// Package spell finds the name that a misspelt one may have meant.
package spell

import "strings"

// maxLength bounds the names that are compared, since comparing takes time in
// proportion to both.
const maxLength = 256

// Nearest returns the one of known that word may have meant, or "". Case, "-"
// and "_" do not matter; else at most two letters may be wrong, and no more
// than about a third of the known name, for short ones are near to everything.
// Failing that, it is the first known name that has a word more at its end, or
// the longest that has one less.
func Nearest(word string, known []string) string {
	if len(word) > maxLength {
		return ""
	}
	best, least := "", 3
	for _, k := range known {
		d := distance(plain(word), plain(k))
		if d == 0 {
			return k
		}
		if d < least && d*3 <= len(k)+1 {
			best, least = k, d
		}
	}
	if best != "" {
		return best
	}
	for _, k := range known {
		if len(word) > 3 && begins(k, word) {
			return k
		}
		if len(k) > 3 && len(k) > len(best) && begins(word, k) {
			best = k
		}
	}
	return best
}

// begins says whether s is start, "-" or "_" and something more.
func begins(s, start string) bool {
	return len(s) > len(start) && s[:len(start)] == start && (s[len(start)] == '-' || s[len(start)] == '_')
}

func plain(s string) string {
	return strings.NewReplacer("-", "", "_", "").Replace(strings.ToLower(s))
}

// distance counts the insertions, deletions and replacements from a to b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replace := diagonal
			if a[i] != b[j] {
				replace++
			}
			diagonal = row[j+1]
			row[j+1] = min(replace, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
