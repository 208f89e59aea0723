package oracletest

import (
	"slices"
	"strings"
	"testing"
)

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
		found := Lint(c.text)
		bites := slices.ContainsFunc(found, func(p string) bool { return c.rule != "" && strings.HasPrefix(p, c.rule+":") })
		if bites != (c.rule != "") || len(found) > 0 && c.rule == "" {
			t.Errorf("%s: found %q, want %q", c.text, found, c.rule)
		}
	}
}
