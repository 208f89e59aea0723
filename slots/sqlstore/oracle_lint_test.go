package sqlstore

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/headgate-rls/headgate/internal/sqldb"
)

// oracleLint finds what the grammar lets pass and Oracle 19c does not, and what
// would lead astray. Each finding begins with the name of its rule.
func oracleLint(text string) (found []string) {
	words := oracleWords(text)
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
	oracleBlock   = regexp.MustCompile(`(?i)^(BEGIN|DECLARE|CREATE\s+(OR\s+REPLACE\s+)?(PACKAGE|FUNCTION|PROCEDURE|TRIGGER))\b`)
)

// oracleWords are the words and signs of a text in capitals, without comments;
// texts in quotes are ”.
func oracleWords(text string) []string {
	bare := oracleString.ReplaceAllString(uncommented(text), "''")
	return oracleWord.FindAllString(strings.ToUpper(bare), -1)
}

// uncommented is a text without comments. A string may hold what looks like one.
func uncommented(text string) string {
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
	for i, m := range placeholderN.FindAllStringSubmatch(oracleString.ReplaceAllString(uncommented(text), "''"), -1) {
		if m[1] != fmt.Sprint(i+1) {
			found = append(found, fmt.Sprintf(":%s stands at place %d", m[1], i+1))
		}
	}
	return found
}

// (c) SQL ends without a semicolon, PL/SQL with one; neither with the slash of
// SQL*Plus.
func endings(text string, _ []string) (found []string) {
	bare := uncommented(text)
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
		case slices.Contains([]string{"LIMIT", "BOOLEAN", "RETURNING", "ILIKE", "AUTO_INCREMENT", "TEXT_PATTERN_OPS"}, w) && at(words, i-1) != ".",
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
	for _, s := range oracleString.FindAllString(uncommented(text), -1) {
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
		if !slices.Contains([]string{" ", "SKIP LOCKED", "WAIT 1"}, clause) && at(words, i+2) != ";" || clause != " " && at(words, i+2) != ";" && !slices.Contains([]string{"", ";"}, at(words, i+4)) {
			found = append(found, "FOR UPDATE "+clause)
		}
	}
	return found
}

// notPortable are words that only one of the two databases knows that run the
// package. The functions of time have them, in a body for each database.
var notPortable = []string{
	"RETURNING", "FORALL", "BULK", "MERGE", "CONNECT", "PRAGMA", "RAISE_APPLICATION_ERROR", "SYS_REFCURSOR",
	"SYSTIMESTAMP", "SYSDATE", "TO_TIMESTAMP", "TO_CHAR", "NUMTODSINTERVAL", "INTERVAL", "TRUNC", "FLOOR", "DUAL", "ROWNUM",
}

// The package has what both databases understand.
func TestOraclePackagePortable(t *testing.T) {
	for _, text := range oraclePackage(t) {
		for _, w := range oracleWords(text) {
			if slices.Contains(notPortable, w) {
				t.Errorf("%.40s… has %s", text, w)
			}
		}
	}
}

// oraclePackage is the package's specification and body.
func oraclePackage(t *testing.T) []string {
	t.Helper()
	var parts []string
	for _, s := range scriptsOf(t, sqldb.Oracle) {
		for _, text := range s.statements("") {
			if regexp.MustCompile(`^CREATE OR REPLACE PACKAGE `).MatchString(uncommented(text)) {
				parts = append(parts, text)
			}
		}
	}
	if len(parts) != 2 {
		t.Fatalf("there are %d parts of the package: want 2", len(parts))
	}
	return parts
}

func TestOracleLint(t *testing.T) {
	for _, c := range oracleTexts(t) {
		for _, problem := range oracleLint(c.text) {
			t.Errorf("%s: %s\n%s", c.name, problem, c.text)
		}
	}
}

// Every rule must bite, and not at what only looks like its prey.
func TestOracleLintBites(t *testing.T) {
	for _, c := range []struct{ text, rule string }{
		{"SELECT A FROM T WHERE B = 1 ORDER BY A FETCH FIRST 1 ROW ONLY FOR UPDATE SKIP LOCKED", "ORA-02014"},
		{"SELECT DISTINCT A FROM T FOR UPDATE", "ORA-02014"},
		{"SELECT COUNT(*) FROM T FOR UPDATE", "ORA-02014"},
		{"SELECT A FROM T GROUP BY A FOR UPDATE", "ORA-02014"},
		{"SELECT A FROM T OFFSET 1 ROWS FOR UPDATE", "ORA-02014"},
		{"SELECT A FROM T UNION ALL SELECT B FROM U FOR UPDATE", "ORA-02014"},
		{"SELECT A FROM T WHERE ROWNUM = 1 FOR UPDATE SKIP LOCKED", "ORA-02014"},
		{"BEGIN SELECT MIN(A) INTO X FROM T FOR UPDATE; END;", "ORA-02014"},
		{"SELECT A FROM T WHERE A = (SELECT MIN(A) FROM T WHERE B = 1 FETCH FIRST 1 ROW ONLY) FOR UPDATE", ""},
		{"BEGIN SELECT MIN(A) INTO X FROM T; SELECT A INTO Y FROM T WHERE A = X FOR UPDATE; END;", ""},
		{"SELECT :1 FROM T WHERE A = :1", "placeholders"},
		{"SELECT :2 FROM T WHERE A = :1", "placeholders"},
		{"SELECT :1 FROM T WHERE A = 'HH24:MI' AND B = :2", ""},
		{"SELECT A FROM T;", "end"},
		{"SELECT A FROM T\n/", "end"},
		{"BEGIN P(:1); END", "end"},
		{"BEGIN P; END;;", "end"},
		{"CREATE OR REPLACE FUNCTION F RETURN NUMBER IS BEGIN RETURN 1; END F", "end"},
		{"-- BEGIN\nSELECT A FROM T -- ;", ""},
		{"CREATE INDEX RL_EVENT_SLOT_DTL_WITH_A_LONG_NM ON T (A)", "length"},
		{"SELECT A FROM T LIMIT 1", "unknown to 19c"},
		{"SELECT NOW() FROM DUAL", "unknown to 19c"},
		{"CREATE TABLE T (A BOOLEAN)", "unknown to 19c"},
		{"CREATE TABLE IF NOT EXISTS T (A NUMBER)", "unknown to 19c"},
		{"INSERT INTO T (A, B) VALUES (:1, F(:2)), (:3, :4)", "unknown to 19c"},
		{"INSERT INTO T (A) VALUES (:1) ON CONFLICT DO NOTHING", "unknown to 19c"},
		{"INSERT INTO T (A, B) VALUES (F(:1, 2), (:2))", ""},
		{"DECLARE CURSOR C IS SELECT A FROM T FOR UPDATE SKIP LOCKED; BEGIN NULL; END;", "cursor"},
		{"DECLARE CURSOR C IS SELECT A FROM T FOR UPDATE; BEGIN NULL; END;", "cursor"},
		{"BEGIN FOR R IN (SELECT A FROM T FOR UPDATE) LOOP NULL; END LOOP; END;", "cursor"},
		{"BEGIN FOR R IN (SELECT A FROM T) LOOP SELECT A INTO X FROM T FOR UPDATE; END LOOP; END;", ""},
		{"SELECT A FROM T FOR UPDATE SKIP", "lock"},
		{"SELECT A FROM T FOR UPDATE LOCKED SKIP", "lock"},
		{"SELECT A FROM T FOR UPDATE SKIP LOCKED ORDER BY A", "lock"},
		{"SELECT A FROM T FOR UPDATE", ""},
		{"SELECT A FROM T WHERE B = ''", "empty"},
		{"SELECT 'it''s' FROM T -- ''", ""},
	} {
		found := oracleLint(c.text)
		bites := slices.ContainsFunc(found, func(p string) bool { return c.rule != "" && strings.HasPrefix(p, c.rule+":") })
		if bites != (c.rule != "") || len(found) > 0 && c.rule == "" {
			t.Errorf("%s: found %q, want %q", c.text, found, c.rule)
		}
	}
}
