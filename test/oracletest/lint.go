package oracletest

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Lint finds what the grammar lets pass and Oracle 19c does not, and what
// would lead astray. Each finding begins with the name of its rule.
func Lint(text string) (found []string) {
	words := Words(text)
	for _, rule := range []struct {
		name string
		of   func(text string, words []string) []string
	}{
		{"ORA-02014", lockedViews}, {"placeholders", placeholderOrder}, {"end", endings}, {"length", longNames},
		{"unknown to 19c", newerWords}, {"cursor", lockingCursors}, {"empty", emptyTexts},
		{"lock", lockClauses},
	} {
		for _, problem := range rule.of(text, words) {
			found = append(found, rule.name+": "+problem)
		}
	}
	return found
}

var (
	oracleComment = regexp.MustCompile(`(?s)/\*.*?\*/|--[^\n]*`)
	oracleString  = regexp.MustCompile(`'(?:[^']|'')*'`)
	oracleWord    = regexp.MustCompile(`"[^"]*"|''|[A-Za-z_][A-Za-z0-9_$#]*|[0-9]+|\S`)
	oracleBlock   = regexp.MustCompile(
		`(?i)^(BEGIN|DECLARE|CREATE\s+(OR\s+REPLACE\s+)?(PACKAGE|FUNCTION|PROCEDURE|TRIGGER))\b`)
)

// Words are the words and signs of a text in capitals, without comments;
// texts in quotes are ”.
func Words(text string) []string {
	bare := oracleString.ReplaceAllString(Uncommented(text), "''")
	return oracleWord.FindAllString(strings.ToUpper(bare), -1)
}

// Uncommented is a text without comments. A string may hold what looks like one.
func Uncommented(text string) string {
	both := regexp.MustCompile(oracleString.String() + "|" + oracleComment.String())
	return strings.TrimSpace(both.ReplaceAllStringFunc(text, func(part string) string {
		if part[0] == '\'' {
			return part
		}
		return " "
	}))
}

// (a) FOR UPDATE stands at no level that is grouped, limited or made of others. ROWNUM counts
// before rows are skipped.
func lockedViews(_ string, words []string) (found []string) {
	views := []string{"FETCH", "OFFSET", "DISTINCT", "GROUP", "UNION", "MINUS", "INTERSECT", "ROWNUM", "CONNECT"}
	sums := []string{"COUNT", "SUM", "MIN", "MAX", "AVG", "LISTAGG"}
	ends := []string{";", "BEGIN", "THEN", "ELSE", "LOOP", "IS"}
	type level struct{ view, lock bool }
	levels := []level{{}}
	for i, w := range words {
		top := &levels[len(levels)-1]
		next := at(words, i+1)
		switch {
		case w == "(":
			levels = append(levels, level{})
			continue
		case w == ")" && len(levels) > 1:
			levels = levels[:len(levels)-1]
			continue
		case slices.Contains(ends, w):
			*top = level{}
			continue
		case slices.Contains(views, w), slices.Contains(sums, w) && next == "(":
			top.view = true
		case w == "FOR" && next == "UPDATE":
			top.lock = true
		}
		if top.view && top.lock {
			found = append(found, "FOR UPDATE beside "+w)
			*top = level{}
		}
	}
	return found
}

func at(words []string, i int) string {
	if i < 0 || i >= len(words) {
		return ""
	}
	return words[i]
}

// (b) Placeholders count up from 1.
func placeholderOrder(text string, _ []string) (found []string) {
	for i, m := range placeholderN.FindAllStringSubmatch(oracleString.ReplaceAllString(Uncommented(text), "''"), -1) {
		if m[1] != fmt.Sprint(i+1) {
			found = append(found, fmt.Sprintf(":%s stands at place %d", m[1], i+1))
		}
	}
	return found
}

// (c) SQL ends without a semicolon, PL/SQL with one; neither with the slash of
// SQL*Plus.
func endings(text string, _ []string) (found []string) {
	bare := Uncommented(text)
	ends := strings.HasSuffix(bare, ";")
	switch {
	case strings.HasSuffix(bare, "/"):
		return []string{"a slash is sent"}
	case oracleBlock.MatchString(bare) && !ends:
		return []string{"PL/SQL without its semicolon"}
	case oracleBlock.MatchString(bare) && strings.HasSuffix(strings.TrimSpace(strings.TrimSuffix(bare, ";")), ";"):
		return []string{"PL/SQL with two semicolons"}
	case !oracleBlock.MatchString(bare) && ends:
		return []string{"SQL with a semicolon"}
	}
	return nil
}

// (d) Names have 30 bytes at most, as before 12.2.
func longNames(_ string, words []string) (found []string) {
	for _, w := range words {
		if len(strings.Trim(w, `"`)) > 30 {
			found = append(found, w)
		}
	}
	return found
}

// (e) Words of other databases and of later versions.
func newerWords(_ string, words []string) (found []string) {
	for i, w := range words {
		switch {
		case slices.Contains([]string{"LIMIT", "BOOLEAN", "RETURNING", "ILIKE", "AUTO_INCREMENT", "TEXT_PATTERN_OPS"},
			w) && at(words, i-1) != ".",
			w == "NOW" && at(words, i+1) == "(",
			w == "ON" && at(words, i+1) == "CONFLICT",
			w == "IF" && (at(words, i+1) == "EXISTS" || at(words, i+1) == "NOT" && at(words, i+2) == "EXISTS"),
			w == ":" && at(words, i+1) == ":",
			w == "`":
			found = append(found, w)
		}
	}
	return append(found, manyRows(words)...)
}

// manyRows finds VALUES (…), (…).
func manyRows(words []string) (found []string) {
	for i, w := range words {
		if w != "VALUES" || at(words, i+1) != "(" {
			continue
		}
		depth := 0
		for j := i + 1; j < len(words); j++ {
			switch words[j] {
			case "(":
				depth++
			case ")":
				depth--
			}
			if depth == 0 {
				if at(words, j+1) == "," && at(words, j+2) == "(" {
					found = append(found, "VALUES of several rows")
				}
				break
			}
		}
	}
	return found
}

// (f) No cursor locks: databases differ in when it locks, and what.
func lockingCursors(_ string, words []string) (found []string) {
	inCursor := false
	for i, w := range words {
		switch {
		case w == "CURSOR", w == "OPEN", w == "FOR" && at(words, i+2) == "IN":
			inCursor = true
		case w == ";", w == "LOOP":
			inCursor = false
		case w == "FOR" && at(words, i+1) == "UPDATE" && inCursor:
			found = append(found, "a cursor FOR UPDATE")
		}
	}
	return found
}

// (g) ” is NULL: to compare with it is never true, and to insert it is to insert
// nothing.
func emptyTexts(text string, _ []string) (found []string) {
	for _, s := range oracleString.FindAllString(Uncommented(text), -1) {
		if s == "''" {
			found = append(found, "an empty text, which is NULL")
		}
	}
	return found
}

// (h) The grammar takes anything after FOR UPDATE.
func lockClauses(_ string, words []string) (found []string) {
	for i, w := range words {
		if w != "FOR" || at(words, i+1) != "UPDATE" {
			continue
		}
		clause := at(words, i+2) + " " + at(words, i+3)
		if !slices.Contains([]string{" ", "SKIP LOCKED", "WAIT 1"}, clause) && at(words, i+2) != ";" ||
			clause != " " && at(words, i+2) != ";" && !slices.Contains([]string{"", ";"}, at(words, i+4)) {
			found = append(found, "FOR UPDATE "+clause)
		}
	}
	return found
}

// notPortable are words that only one of the two databases knows that run the
// package. The functions of time have them, in a body for each database.
var notPortable = []string{
	"RETURNING", "FORALL", "BULK", "MERGE", "CONNECT", "PRAGMA", "RAISE_APPLICATION_ERROR", "SYS_REFCURSOR",
	"SYSTIMESTAMP", "SYSDATE", "TO_TIMESTAMP", "TO_CHAR", "NUMTODSINTERVAL", "INTERVAL", "TRUNC", "FLOOR",
	"DUAL", "ROWNUM",
}

// NotPortable returns the words of a package that only one of the two databases knows that run it.
func NotPortable(text string) (found []string) {
	for _, w := range Words(text) {
		if slices.Contains(notPortable, w) {
			found = append(found, w)
		}
	}
	return found
}
